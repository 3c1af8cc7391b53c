package backtest

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"gpuvigil/detect/stream"
)

// group is the files of one group of peers.
type group struct {
	lanes      []*lane
	xs, scores []float64
	now        []bool    // whose row is of this instant
	at         time.Time // the instant
	judged     bool      // there have been enough of them at one time
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
		l.among()
		if _, err := l.read(); err != nil {
			return sum, err
		}
	}
	d := stream.NewPeers(len(files))
	for n := 0; ; n++ {
		if n%looks == 0 && ctx.Err() != nil {
			return sum, ctx.Err()
		}
		if err := g.meet(); err != nil {
			return sum, err
		}
		if !g.step() {
			return sum, g.order()
		}
		d.Add(g.xs, g.scores)
		g.judge()
		if err := g.advance(); err != nil {
			return sum, err
		}
	}
}

// order refuses files that are in no order of time.
func (g *group) order() error {
	errs := make([]error, len(g.lanes))
	for i, l := range g.lanes {
		errs[i] = l.clock.order()
	}
	return errors.Join(errs...)
}

// meet takes files whose time went back to where the others are. If those of all did,
// the time of the group begins anew.
func (g *group) meet() error {
	behind := func(l *lane) bool { return l.more && l.row.at.Before(g.at) }
	if !slices.ContainsFunc(g.lanes, func(l *lane) bool { return l.more && !behind(l) }) {
		g.at = time.Time{}
		return nil
	}
	for _, l := range g.lanes {
		for behind(l) {
			if err := l.lose(l.row); err != nil {
				return err
			}
			if _, err := l.read(); err != nil {
				return err
			}
		}
	}
	return nil
}

// step gathers the rows of the earliest instant among the newest rows.
func (g *group) step() (ok bool) {
	for _, l := range g.lanes {
		if l.more && (!ok || l.row.at.Before(g.at)) {
			g.at, ok = l.row.at, true
		}
	}
	for i, l := range g.lanes {
		g.xs[i] = math.NaN()
		if g.now[i] = l.more && l.row.at.Equal(g.at); g.now[i] {
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
