package backtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"gpuvigil/detect/stream"
)

// single scores the samples of one series: 1 is its threshold. A sample that is not
// a number has no value.
type single interface {
	Add(at time.Time, x float64) (score float64)
}

// singles are the detectors of one series. They know nothing of it but its values.
func singles() map[string]func() single {
	return map[string]func() single{
		"leak": func() single { return stream.NewLeak() },
		level:  func() single { return &gauge{leak: stream.NewLeak()} },
	}
}

// gauge watches a reading of which nothing is known: its level, and whether it leaks.
type gauge struct {
	level stream.Level
	leak  *stream.Leak
	last  time.Time
	step  time.Duration // the shortest time between samples
	told  bool          // of the leak that there is
}

const (
	// A median of fewer than five samples does not take the noise out of a block, and
	// the shortest window has twelve blocks.
	leakSamples = 60
	leakOver    = 0.7 // of the threshold: below, a leak has ended
)

func (g *gauge) Add(at time.Time, x float64) float64 {
	score, leak := g.level.Add(at, x), g.leak.Add(at, x)
	if d := at.Sub(g.last); !g.last.IsZero() && d > 0 && (g.step == 0 || d < g.step) {
		g.step = d
	}
	g.last = at
	if g.leak.Growth().Over < leakSamples*g.step {
		leak = 0
	}
	if leak < leakOver {
		g.told = false
	}
	if leak >= 1 && !g.told {
		g.told = true
		return max(score, leak)
	}
	return score
}

const (
	level     = "level"
	straggler = "straggler" // the one detector that sees the series of all peers at once
)

// peersLeast is how many members the detector of stragglers needs at one time.
const peersLeast = 4

// Detectors lists the names of the detectors.
func Detectors() []string {
	names := []string{straggler}
	for n := range singles() {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// job scores what has to be scored together.
type job func(context.Context) (Summary, error)

// plan makes a job of each file or, for what compares peers, of each group.
func plan(o Options, files []string, m mappings) ([]job, error) {
	var jobs []job
	if o.Detector == straggler {
		groups := map[string][]string{}
		var order []string
		for _, f := range files {
			g := m.peers(f)
			if groups[g] == nil {
				order = append(order, g)
			}
			groups[g] = append(groups[g], f)
		}
		for _, g := range order {
			jobs = append(jobs, func(ctx context.Context) (Summary, error) {
				return orNone(o.Scores, groups[g])(peers(ctx, o, g, groups[g], m))
			})
		}
		return jobs, nil
	}
	newDetector, ok := singles()[o.Detector]
	if !ok {
		return nil, fmt.Errorf("there is no detector %q, allowed: %s", o.Detector, strings.Join(Detectors(), ", "))
	}
	for _, f := range files {
		jobs = append(jobs, func(ctx context.Context) (Summary, error) {
			return orNone(o.Scores, []string{f})(alone(ctx, o, f, m.find(f), newDetector()))
		})
	}
	return jobs, nil
}

// orNone removes what an earlier run left of files that cannot be scored now: it would
// pass for scores of what is there.
func orNone(scores string, files []string) func(Summary, error) (Summary, error) {
	return func(sum Summary, err error) (Summary, error) {
		if err == nil {
			return sum, nil
		}
		for _, f := range files {
			if stale := os.Remove(scoresOf(scores, f)); stale != nil && !errors.Is(stale, fs.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("remove the scores of an earlier run: %w", stale))
			}
		}
		return sum, err
	}
}

// looks is how many rows are scored between two looks at whether to go on.
const looks = 1 << 12

// alone scores one file.
func alone(ctx context.Context, o Options, file string, is mapping, d single) (Summary, error) {
	l, err := newLane(o, file, is)
	if err != nil {
		return Summary{}, err
	}
	for n := 0; ; n++ {
		if n%looks == 0 && ctx.Err() != nil {
			return Summary{}, errors.Join(ctx.Err(), l.abandon())
		}
		ok, err := l.read()
		if err == nil && ok {
			err = l.write(d.Add(l.clock.seen(l.row.at), l.seen))
		}
		if err != nil {
			return Summary{}, errors.Join(err, l.abandon())
		}
		if !ok {
			return l.close()
		}
	}
}
