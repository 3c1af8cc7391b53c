package backtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
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
		"leak":  func() single { return stream.NewLeak() },
		"level": func() single { return &gauge{leak: stream.NewLeak()} },
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

// straggler is the one detector that sees the series of all peers at once.
const straggler = "straggler"

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
			err = l.write(d.Add(l.row.at, l.seen))
		}
		if err != nil {
			return Summary{}, errors.Join(err, l.abandon())
		}
		if !ok {
			return l.close()
		}
	}
}

// lane is one file on its way from rows to scores.
type lane struct {
	in     *reader
	out    *writer
	input  input
	row    row     // the newest
	seen   float64 // what a detector sees of it
	absent bool
	more   bool // there is a newest row
}

func newLane(o Options, file string, is mapping) (*lane, error) {
	in, err := open(o.Series, file)
	if err != nil {
		return nil, err
	}
	out, err := create(o.Scores, file)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &lane{in: in, out: out, input: input{def: is.def}}, nil
}

// read takes the next row; there is none after the last.
func (l *lane) read() (bool, error) {
	r, err := l.in.next()
	if errors.Is(err, io.EOF) {
		l.more = false
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.row, l.more = r, true
	l.seen, l.absent = l.input.take(r.at, r.x)
	return true, nil
}

func (l *lane) write(score float64) error { return l.out.write(l.row, score, l.absent) }

func (l *lane) abandon() error { return errors.Join(l.in.Close(), l.out.abandon()) }

func (l *lane) close() (Summary, error) {
	if err := errors.Join(l.in.Close(), l.out.finish()); err != nil {
		return Summary{}, err
	}
	return l.out.sum, nil
}

// group is the files of one group of peers.
type group struct {
	lanes      []*lane
	xs, scores []float64
	now        []bool // whose row is of this instant
	judged     bool   // there have been enough of them at one time
}

// peers scores a group of files. Rows of one instant are one step; a file without
// one has no value in that step.
func peers(ctx context.Context, o Options, name string, files []string, m mappings) (Summary, error) {
	g := &group{xs: make([]float64, len(files)), scores: make([]float64, len(files)), now: make([]bool, len(files))}
	sum, err := g.run(ctx, o, files, m)
	if err != nil {
		for _, l := range g.lanes {
			err = errors.Join(err, l.abandon())
		}
		return Summary{}, err
	}
	for _, l := range g.lanes {
		s, closing := l.close()
		sum.add(s)
		err = errors.Join(err, closing)
	}
	if !g.judged {
		sum.Unjudged = []string{name}
	}
	return sum, err
}

func (g *group) run(ctx context.Context, o Options, files []string, m mappings) (sum Summary, err error) {
	for _, f := range files {
		l, err := newLane(o, f, m.find(f))
		if err != nil {
			return sum, err
		}
		g.lanes = append(g.lanes, l)
		if _, err := l.read(); err != nil {
			return sum, err
		}
	}
	d := stream.NewPeers(len(files))
	for n := 0; ; n++ {
		if n%looks == 0 && ctx.Err() != nil {
			return sum, ctx.Err()
		}
		ok := g.step()
		if !ok {
			return sum, nil
		}
		d.Add(g.xs, g.scores)
		g.judge()
		if err := g.advance(); err != nil {
			return sum, err
		}
	}
}

// step gathers the rows of the earliest instant among the newest rows.
func (g *group) step() (ok bool) {
	var at time.Time
	for _, l := range g.lanes {
		if l.more && (!ok || l.row.at.Before(at)) {
			at, ok = l.row.at, true
		}
	}
	for i, l := range g.lanes {
		g.xs[i] = math.NaN()
		if g.now[i] = l.more && l.row.at.Equal(at); g.now[i] {
			g.xs[i] = l.seen
		}
	}
	return ok
}

// judge takes away the scores of steps before the first that has enough members: until
// then nothing is compared.
func (g *group) judge() {
	values := 0
	for _, x := range g.xs {
		if x > 0 {
			values++
		}
	}
	g.judged = g.judged || values >= peersLeast
	if !g.judged {
		for i := range g.scores {
			g.scores[i] = math.NaN()
		}
	}
}

// advance writes the rows of this step and takes the ones after them.
func (g *group) advance() error {
	for i, l := range g.lanes {
		if !g.now[i] {
			continue
		}
		if err := l.write(g.scores[i]); err != nil {
			return err
		}
		if _, err := l.read(); err != nil {
			return err
		}
	}
	return nil
}
