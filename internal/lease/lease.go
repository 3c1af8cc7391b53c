// Package lease has one of several processes lead. Who leads holds a record that all of
// them reach, in a file or in Kubernetes, and renews it; whoever has seen it unchanged for as
// long as it says takes it over.
//
// No clock is compared with another machine's: each process takes the time since it saw the
// record change by its own. Who cannot renew steps down before another one may take over.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Record is what the processes share.
type Record struct {
	Holder      string        // empty: nobody, who led has ended
	Duration    time.Duration // for so long it stands while it does not change
	Renewed     time.Time     // by the holder's clock, for people
	Told        time.Time     // up to which state of things the holder has told people all; zero: not known
	Transitions int           // how often the holder has changed
}

var (
	// ErrNone says that there is no record yet.
	ErrNone = errors.New("there is no lease yet")
	// ErrConflict says that another one has written since the record was read.
	ErrConflict = errors.New("another one has written the lease meanwhile")
)

// Store keeps a record. Versions tell one state of it from another; "" is that there is none.
type Store interface {
	Get(ctx context.Context) (Record, string, error)         // ErrNone: there is none
	Put(ctx context.Context, r Record, version string) error // ErrConflict: it has another version
}

// Config is what an Elector needs. All but Told and Heard are required.
type Config struct {
	Store    Store
	Identity string        // of this process, no other's and no earlier one's
	Duration time.Duration // 5 s or more

	// Told returns up to when all has been told, given that all was up to before. It is
	// called while this process leads; nil: it is not noted.
	Told func(before time.Time) time.Time

	// Heard is given up to when another one has told all, whenever it may have changed, and
	// before this process begins to lead; nil: nobody wants to know.
	Heard func(until time.Time)

	Log *slog.Logger
}

// Elector is one process that would lead.
type Elector struct {
	cfg Config

	mu     sync.Mutex
	term   *Term         // nil: another one leads
	turned chan struct{} // closed when term changes
	leader string        // who leads as far as is known; "": nobody
}

// Term is a time for which this process leads.
type Term struct {
	context.Context // ends with it

	end context.CancelFunc
}

// New returns an elector that does not lead.
func New(cfg Config) *Elector { return &Elector{cfg: cfg, turned: make(chan struct{})} }

// Identity returns that of this process.
func (e *Elector) Identity() string { return e.cfg.Identity }

// Leads reports whether this process leads.
func (e *Elector) Leads() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term != nil
}

// Leader returns the identity of who leads, as far as is known; "" if nobody does.
func (e *Elector) Leader() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader
}

// Wait returns the term once this process leads. The error is that of ctx.
func (e *Elector) Wait(ctx context.Context) (*Term, error) {
	for {
		e.mu.Lock()
		term, turned := e.term, e.turned
		e.mu.Unlock()
		if term != nil && term.Err() == nil {
			return term, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-turned:
		}
	}
}

// seen is a record and since when it is unchanged.
type seen struct {
	Record
	version string
	since   time.Time
}

// tried is what one look at the record came to.
type tried struct {
	seen seen
	held bool
	err  error
}

// Run tries to lead until ctx ends, and then lets another one.
func (e *Elector) Run(ctx context.Context) {
	every := e.cfg.Duration / 5
	tick := time.NewTicker(every)
	defer tick.Stop()
	tenure := time.NewTimer(e.cfg.Duration)
	defer tenure.Stop()
	tenure.Stop()
	defer e.step(nil, "")

	var last seen
	var failing bool
	results := make(chan tried, 1)
	busy, began := false, time.Time{}
	try := func() {
		// A store that hangs, as a file of a network may in the kernel, must not keep the
		// leader from stepping down: it is asked aside, once at a time.
		if !busy {
			busy, began = true, time.Now()
			go func(last seen) { results <- e.try(ctx, last, every*2) }(last)
		}
	}
	for try(); ; {
		select {
		case <-ctx.Done():
			if busy {
				select {
				case r := <-results:
					last = r.seen
				case <-time.After(every):
					return
				}
			}
			e.release(context.WithoutCancel(ctx), last)
			return
		case <-tenure.C:
			e.cfg.Log.Warn("The lease could not be renewed in time: another one may lead from now on.")
			e.step(nil, "")
		case <-tick.C:
			try()
		case r := <-results:
			busy = false
			last = r.seen
			e.complain(r.err, &failing)
			switch {
			case r.err != nil:
			case r.held:
				tenure.Reset(time.Until(began.Add(e.cfg.Duration * 2 / 3)))
				e.lead(ctx, last.Told)
			default:
				tenure.Stop()
				e.step(nil, last.Holder)
				e.heard(last.Told)
			}
		}
	}
}

// try looks at the record, and writes it if it is ours or nobody's any more.
func (e *Elector) try(ctx context.Context, last seen, limit time.Duration) tried {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, version, err := e.cfg.Store.Get(ctx)
	switch {
	case errors.Is(err, ErrNone):
		r, version = Record{}, ""
	case err != nil:
		return tried{last, false, fmt.Errorf("read the lease: %w", err)}
	}
	now := time.Now()
	if version != last.version || last.since.IsZero() {
		last = seen{r, version, now}
	}
	ours := r.Holder == e.cfg.Identity
	if !ours && r.Holder != "" && now.Sub(last.since) < max(r.Duration, e.cfg.Duration) {
		return tried{last, false, nil}
	}
	next := Record{Holder: e.cfg.Identity, Duration: e.cfg.Duration, Renewed: now, Told: r.Told, Transitions: r.Transitions}
	if !ours {
		next.Transitions++
	} else if e.cfg.Told != nil {
		next.Told = e.cfg.Told(r.Told)
	}
	if err := e.cfg.Store.Put(ctx, next, version); err != nil {
		if errors.Is(err, ErrConflict) {
			return tried{last, false, nil} // whose it is shows with the next look
		}
		return tried{last, false, fmt.Errorf("write the lease: %w", err)}
	}
	last.Record = next
	return tried{last, true, nil}
}

// complain logs trouble once, and that it is over.
func (e *Elector) complain(err error, failing *bool) {
	switch {
	case err != nil && !*failing:
		e.cfg.Log.Error("The lease cannot be had: while that is so this process does not lead for long.", "err", err)
	case err == nil && *failing:
		e.cfg.Log.Info("The lease can be had again.")
	}
	*failing = err != nil
}

// lead begins a term unless one goes on.
func (e *Elector) lead(ctx context.Context, told time.Time) {
	if e.Leads() {
		return
	}
	e.heard(told)
	inner, end := context.WithCancel(ctx)
	e.step(&Term{inner, end}, e.cfg.Identity)
}

func (e *Elector) heard(until time.Time) {
	if e.cfg.Heard != nil {
		e.cfg.Heard(until)
	}
}

// step ends the term, if there is one, and begins another, if one is given.
func (e *Elector) step(next *Term, leader string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leader != leader && leader != "" {
		e.cfg.Log.Info("Who notifies has changed.", "leader", leader, "this_one", leader == e.cfg.Identity)
	}
	e.leader = leader
	if e.term == next {
		return
	}
	if e.term != nil {
		e.term.end()
	}
	e.term = next
	close(e.turned)
	e.turned = make(chan struct{})
}

// release gives the record back, so that nobody waits for it to run out.
func (e *Elector) release(ctx context.Context, last seen) {
	led := e.Leads()
	e.step(nil, "")
	if !led {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Duration/3)
	defer cancel()
	r, version, err := e.cfg.Store.Get(ctx)
	if err == nil && r.Holder != e.cfg.Identity {
		return
	}
	if err == nil {
		r.Holder = ""
		if e.cfg.Told != nil {
			r.Told = e.cfg.Told(r.Told)
		}
		err = e.cfg.Store.Put(ctx, r, version)
	}
	if err != nil {
		e.cfg.Log.Warn("The lease is not given back: another one leads once it has run out.", "after", last.Duration, "err", err)
	}
}
