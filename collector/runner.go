package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// runner asks one source, never twice at once, and keeps its latest part.
type runner struct {
	Scheduled
	log *slog.Logger

	mu       sync.Mutex
	state    SourceState
	part     *Part
	received time.Time // when part came
	good     time.Time // when the last good sample came
	events   []Event   // not in a snapshot yet
	started  time.Time // of the sample in flight, zero if there is none
	counted  bool      // the sample in flight is counted as an error already
}

// view is what a snapshot takes from one source. Ages are durations so that a
// step of the wall clock does not make a part older or younger.
type view struct {
	part     *Part
	age      time.Duration // since the part came
	sinceOK  time.Duration // since the last good sample; negative: there was none
	interval time.Duration
	events   []Event
	state    SourceState // without Last
}

func newRunner(s Scheduled, log *slog.Logger) *runner {
	name := s.Source.Name()
	return &runner{
		Scheduled: s,
		log:       log.With("source", name),
		state:     SourceState{Name: name, Interval: s.Interval, Expected: s.Expected},
	}
}

func (r *runner) run(ctx context.Context) {
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.sample(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (r *runner) sample(ctx context.Context) {
	r.mu.Lock()
	r.started, r.counted = time.Now(), false
	r.state.Samples++
	r.mu.Unlock()

	limited, cancel := context.WithTimeout(ctx, r.Deadline)
	part, err := r.call(limited)
	cancel()
	r.finish(part, err, ctx.Err() != nil)
}

// call asks the source. A panic is that source's error and nobody else's.
func (r *runner) call(ctx context.Context) (part *Part, err error) {
	defer func() {
		if p := recover(); p != nil {
			part, err = nil, fmt.Errorf("it panicked: %v", p)
			r.log.Debug("a source panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	part, err = r.Source.Sample(ctx)
	switch {
	case part == nil && err == nil:
		err = errors.New("it returned neither a part nor an error")
	case part != nil && part.Time.IsZero():
		part, err = nil, errors.Join(errors.New("it returned a part without a time"), err)
	}
	return part, err
}

// finish takes up a sample, in time or late. A source that returns the part of
// the sample before has nothing new, and its readings grow older.
func (r *runner) finish(part *Part, err error, stopping bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	took := now.Sub(r.started)
	if part != nil && part != r.part {
		r.part, r.received = part, now
		r.events = append(r.events, part.Events...)
	}
	if err == nil && took > r.patience() {
		err = fmt.Errorf("it answered after %v, its limit is %v", took.Round(time.Millisecond), r.Deadline)
	}
	r.started, r.state.Duration = time.Time{}, took
	if stopping {
		return
	}
	if err == nil {
		r.good = now
	} else if !r.counted && !errors.Is(err, ErrAbsent) {
		r.state.Errors++
	}
	r.state.Expected = r.Expected && !errors.Is(err, ErrAbsent)
	r.state.Paused, r.state.Hung = errors.Is(err, ErrPaused), errors.Is(err, ErrHung)
	r.outcome(err)
}

// patience is the deadline and what a source needs to notice that it has passed.
func (r *runner) patience() time.Duration { return r.Deadline + r.Deadline/4 }

// outcome sets the source's error and says it when it comes and when it goes, not
// with every sample.
func (r *runner) outcome(err error) {
	was := r.state.Err
	r.state.Err = ""
	if err != nil {
		r.state.Err = err.Error()
	}
	switch {
	case was == "" && errors.Is(err, ErrAbsent):
		r.log.Debug("a source has nothing to look at", "err", err)
	case was == "" && err != nil:
		r.log.Warn("a source fails: its readings grow old and are then left out", "err", err)
	case was != "" && err == nil:
		r.log.Info("a source answers again")
	}
}

// view returns what the source knows now, and its events for the last time.
func (r *runner) view(now time.Time) view {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waiting := now.Sub(r.started); !r.started.IsZero() && waiting > r.patience() {
		if !r.counted {
			r.counted = true
			r.state.Errors++
		}
		r.outcome(fmt.Errorf("it has not answered for %v, its limit is %v", waiting.Round(100*time.Millisecond), r.Deadline))
	}
	v := view{part: r.part, interval: r.Interval, events: r.events, state: r.state, sinceOK: -1}
	r.events = nil
	if r.part != nil {
		v.age = now.Sub(r.received)
	}
	if !r.good.IsZero() {
		v.sinceOK = now.Sub(r.good)
	}
	return v
}

func (r *runner) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.started.IsZero()
}
