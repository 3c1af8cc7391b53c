// Package history replays the past: samples that a Prometheus, what speaks like one, or
// a file has of some time, in the order of that time, through a series.Assembler, with
// the snapshots of all nodes at each step. What sees them cannot tell it from the present.
//
// Samples are taken in windows, so that weeks need no more memory than hours; and of the
// samples of a series within one step the last counts, as it does where somebody looks
// once a step.
package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
)

// Span is the time that is replayed.
type Span struct {
	From, To time.Time     // zero in a file's: from its first sample, to its last
	Step     time.Duration // between two rounds of snapshots, in whole milliseconds; 0: DefaultStep
}

// DefaultStep is the time between two rounds of snapshots.
const DefaultStep = time.Minute

// steps are the numbers of the rounds in the span: round n is at n steps after 1970, and
// has the samples since the one before.
func (s Span) steps() (first, last int64, err error) {
	switch step := s.step(); {
	case step < time.Second || step > time.Hour || step%time.Millisecond != 0:
		return 0, 0, fmt.Errorf("a step of %s: give one from 1s to 1h", step)
	case !s.To.After(s.From):
		return 0, 0, fmt.Errorf("the time ends at %s and does not begin before (%s)", s.To.UTC().Format(time.RFC3339), s.From.UTC().Format(time.RFC3339))
	}
	return s.number(s.From.UnixMilli()) + 1, s.final(), nil
}

func (s Span) step() time.Duration {
	if s.Step == 0 {
		return DefaultStep
	}
	return s.Step
}

// number is that of the round that a sample of the time is first seen in.
func (s Span) number(ms int64) int64 {
	step := s.step().Milliseconds()
	n := ms / step
	if ms%step > 0 {
		n++
	}
	return n
}

// final is the number of the last round: none is after the span.
func (s Span) final() int64 { return s.To.UnixMilli() / s.step().Milliseconds() }

func (s Span) at(number int64) time.Time {
	return time.UnixMilli(number * s.step().Milliseconds()).UTC()
}

// Source has the samples of a span.
type Source interface {
	// Next returns the window that follows the one before; io.EOF after the last. A window
	// is the caller's.
	Next(ctx context.Context) (*Window, error)
}

// Stats counts what was replayed.
type Stats struct {
	From, To time.Time // of the snapshots
	Rounds   int
	Samples  int // that were read
	Kept     int // of them, the last of each series and step
}

// Replay gives the source's samples to the assembler and calls observe with the snapshots
// of each step, in the order of time, until the source ends, ctx does, or an error comes
// from either. The next window is read while one is replayed.
func Replay(ctx context.Context, from Source, a *series.Assembler, observe func(now time.Time, nodes []*collector.Snapshot) error) (Stats, error) {
	type read struct {
		w   *Window
		err error
	}
	ctx, stop := context.WithCancel(ctx)
	ahead, done := make(chan read), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var r read
			r.w, r.err = from.Next(ctx)
			select {
			case ahead <- r:
			case <-ctx.Done():
				return
			}
			if r.err != nil {
				return
			}
		}
	}()
	defer func() { // the source is not used any more when Replay has returned
		stop()
		<-done
	}()
	var stats Stats
	for {
		select {
		case <-ctx.Done():
			return stats, ctx.Err()
		case r := <-ahead:
			if errors.Is(r.err, io.EOF) {
				return stats, nil
			}
			if r.err != nil {
				return stats, r.err
			}
			if err := r.w.replay(ctx, a, &stats, observe); err != nil {
				return stats, err
			}
		}
	}
}
