package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shelf is a store in memory, which can be made to fail or to hang.
type shelf struct {
	mu      sync.Mutex
	record  *Record
	version int
	down    map[string]bool // identities that cannot reach it
	hang    map[string]bool
}

// of is the shelf as one process reaches it.
type of struct {
	*shelf
	who string
}

var errDown = errors.New("it cannot be reached")

func (s of) reach(ctx context.Context) error {
	s.mu.Lock()
	down, hang := s.down[s.who], s.hang[s.who]
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if down {
		return errDown
	}
	return nil
}

func (s of) Get(ctx context.Context) (Record, string, error) {
	if err := s.reach(ctx); err != nil {
		return Record{}, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return Record{}, "", ErrNone
	}
	return *s.record, strconv.Itoa(s.version), nil
}

func (s of) Put(ctx context.Context, r Record, version string) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := strconv.Itoa(s.version); s.record == nil && version != "" || s.record != nil && now != version {
		return ErrConflict
	}
	s.record, s.version = &r, s.version+1
	return nil
}

func (s *shelf) set(of map[string]bool, who string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of[who] = on
}

// process is an elector that runs.
type process struct {
	*Elector
	end   func()
	mu    sync.Mutex
	told  time.Time
	heard time.Time
}

func start(t *testing.T, s *shelf, who string) *process {
	p := &process{}
	p.Elector = New(Config{Store: of{s, who}, Identity: who, Duration: 15 * time.Second, Log: slog.New(slog.DiscardHandler),
		Told: func(before time.Time) time.Time {
			p.mu.Lock()
			defer p.mu.Unlock()
			if before.After(p.told) {
				return before
			}
			return p.told
		},
		Heard: func(until time.Time) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.heard = until
		}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	p.end = func() {
		cancel()
		<-done
	}
	return p
}

func newShelf() *shelf { return &shelf{down: map[string]bool{}, hang: map[string]bool{}} }

// alone fails the test unless just this one of all leads.
func alone(t *testing.T, when, who string, all ...*process) {
	t.Helper()
	for _, p := range all {
		if p.Leads() != (p.Identity() == who) {
			t.Errorf("%s: that %s leads is %v, %q should", when, p.Identity(), p.Leads(), who)
		}
	}
}

func TestOneLeadsAndAnotherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		a := start(t, s, "a")
		time.Sleep(time.Second)
		b, c := start(t, s, "b"), start(t, s, "c")
		said := time.Now()
		a.mu.Lock()
		a.told = said
		a.mu.Unlock()
		for range 600 {
			time.Sleep(time.Second)
			alone(t, "in ten minutes", "a", a, b, c)
		}
		b.mu.Lock()
		if !b.heard.Equal(said) {
			t.Errorf("who follows hears that all is told up to %v, it is up to %v", b.heard, said)
		}
		b.mu.Unlock()
		if b.Leader() != "a" {
			t.Errorf("who follows takes %q to lead", b.Leader())
		}
		a.end()
		time.Sleep(4 * time.Second)
		if b.Leads() == c.Leads() {
			t.Errorf("4 s after the leader has ended b leads: %v, c leads: %v, want one of them", b.Leads(), c.Leads())
		}
		b.end()
		c.end()
		if s.record.Holder != "" || !s.record.Told.Equal(said) || s.record.Transitions != 2 {
			t.Errorf("at the end the record is %+v, want nobody's, after two leaders, with what the first told", *s.record)
		}
	})
}

// Who cannot renew stops before another one may begin, whatever keeps it from renewing.
func TestTwoNeverLead(t *testing.T) {
	for what, break_ := range map[string]func(*shelf) map[string]bool{
		"fails": func(s *shelf) map[string]bool { return s.down }, "hangs": func(s *shelf) map[string]bool { return s.hang },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf()
				a, b := start(t, s, "a"), (*process)(nil)
				time.Sleep(time.Second)
				alone(t, "at first", "a", a)
				b = start(t, s, "b")
				defer b.end()
				defer a.end()
				time.Sleep(time.Minute)
				term, err := a.Wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.set(break_(s), "a", true)
				led, free := false, time.Duration(0)
				for step := range 300 {
					time.Sleep(100 * time.Millisecond)
					if a.Leads() && b.Leads() {
						t.Fatalf("%d ms after the store %s for a, both lead", 100*step, what)
					}
					if !a.Leads() && !b.Leads() {
						free += 100 * time.Millisecond
					}
					led = led || b.Leads()
				}
				if !led || term.Err() == nil || free < time.Second {
					t.Errorf("b has led: %v, a's term has ended: %v, and for %v nobody led, want a second at least", led, term.Err(), free)
				}
				s.set(break_(s), "a", false)
				time.Sleep(time.Minute)
				alone(t, "once a can reach it again", "b", a, b)
			})
		})
	}
}

func TestWhoDiesIsSucceededAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.record = &Record{Holder: "dead", Duration: 15 * time.Second, Renewed: time.Now().Add(1000 * time.Hour), Told: time.Unix(1, 0)} // its clock was wrong
		a := start(t, s, "a")
		defer a.end()
		time.Sleep(14 * time.Second)
		alone(t, "before the lease has run out", "", a)
		time.Sleep(5 * time.Second)
		alone(t, "after it", "a", a)
		if !a.heard.Equal(time.Unix(1, 0)) {
			t.Errorf("it hears that all is told up to %v, want what the dead one wrote", a.heard)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if term, err := a.Wait(ctx); err != nil || term.Err() != nil {
			t.Errorf("who leads waits for it: %v", err)
		}
	})
}

func TestManyNeverLeadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		var all []*process
		for i := range 5 {
			all = append(all, start(t, s, fmt.Sprint("p", i)))
		}
		changes, last := 0, ""
		for step := range 3000 {
			time.Sleep(time.Second)
			s.set(s.down, all[step/60%5].Identity(), step%60 < 40)
			leads := ""
			for _, p := range all {
				if p.Leads() {
					if leads != "" {
						t.Fatalf("after %d s %s and %s lead", step, leads, p.Identity())
					}
					leads = p.Identity()
				}
			}
			if leads != "" && leads != last {
				changes, last = changes+1, leads
			}
		}
		if changes < 3 {
			t.Errorf("the lease has changed hands %d times while those that lead are cut off in turn", changes)
		}
		for _, p := range all {
			p.end()
		}
	})
}
