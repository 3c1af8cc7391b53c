// Package push sends what a metrics page has to a receiver, for those whom nobody can
// scrape: by remote write, or as text to an import URL.
//
// A page is looked at on an interval and put into a buffer on the disk, with the time at
// which it was; from there it goes to the receiver, oldest first. A receiver that is away,
// an agent that is killed and a disk that is full cost nothing as long as the buffer's
// limits are kept, and never anybody but the one who pushes.
package push

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/internal/metric"
)

// Config says what is pushed, and where to.
type Config struct {
	// Page returns the families to push, good until done is called. It must not block.
	Page func() (families []*dto.MetricFamily, done func(), err error)

	URL       string
	Format    Format
	Client    *http.Client              // with certificates, without redirects
	Authorize func(*http.Request) error // adds what the receiver wants to know the sender by; nil: nothing
	Headers   map[string]string         // that say which tenant's the samples are, and the like

	Interval time.Duration
	Timeout  time.Duration // of one request
	Labels   []Label       // that all samples get; job and instance, as a scrape would give them

	Dir      string        // of the buffer, used by nobody else
	MaxBytes int64         // of the buffer
	MaxAge   time.Duration // what is older is not sent any more

	Log *slog.Logger
}

// Pusher pushes one page to one receiver.
type Pusher struct {
	cfg  Config
	wake chan struct{}

	mu      sync.Mutex
	buffer  *buffer // nil: Run has not opened it yet
	results [results]uint64
	sent    uint64 // samples
	refused uint64 // samples
}

// result is how a request ended, in the order of metric.PushResults.
type result int

const (
	sent result = iota
	failed
	refused
	results
)

// New returns a pusher that does nothing until it runs.
func New(cfg Config) *Pusher {
	cfg.Dir = filepath.Clean(cfg.Dir)
	return &Pusher{cfg: cfg, wake: make(chan struct{}, 1)}
}

// stopLimit bounds the wait for a disk or a receiver that does not answer.
const stopLimit = 3 * time.Second

// Run pushes until ctx ends. What is then not sent waits on the disk for the next start.
func (p *Pusher) Run(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.run(ctx)
	}()
	<-ctx.Done()
	select {
	case <-ended:
	case <-time.After(stopLimit):
		p.cfg.Log.Warn("The push buffer was not closed: its disk does not answer.", "dir", p.cfg.Dir)
	}
}

func (p *Pusher) run(ctx context.Context) {
	b := openBuffer(bufferConfig{Dir: p.cfg.Dir, MaxBytes: p.cfg.MaxBytes, MaxAge: p.cfg.MaxAge, Log: p.cfg.Log})
	p.mu.Lock()
	p.buffer = b
	p.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { p.look(ctx, b) })
	group.Go(func() { p.send(ctx, b) })
	group.Wait()
	if err := b.close(); err != nil {
		p.cfg.Log.Warn("The push buffer could not be closed.", "dir", p.cfg.Dir, "err", err)
	}
}

// look puts a page into the buffer on each interval.
func (p *Pusher) look(ctx context.Context, b *buffer) {
	ticker := time.NewTicker(p.cfg.Interval)
	defer ticker.Stop()
	e := newEncoder(p.cfg.Format, p.cfg.Labels)
	for {
		if err := p.put(e, b); err != nil {
			p.cfg.Log.Error("The page that is pushed could not be made.", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Pusher) put(e *encoder, b *buffer) error {
	families, done, err := p.cfg.Page()
	if err != nil {
		return err
	}
	records, err := e.encode(families, time.Now())
	done()
	for _, r := range records {
		b.put(r)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return err
}

// The pauses between tries.
const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// send sends what is in the buffer, oldest first.
func (p *Pusher) send(ctx context.Context, b *buffer) {
	pause, failing, refusing := time.Duration(0), false, false
	for ctx.Err() == nil {
		t := b.next(time.Now())
		if t == nil {
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		if t.format != p.cfg.Format {
			b.lose(otherFormat, t.samples)
			b.done(t)
			continue
		}
		again, after, err := p.post(ctx, t.record)
		p.count(err, again, t.samples)
		switch {
		case err == nil:
			b.done(t)
			if failing {
				p.cfg.Log.Info("The receiver of pushed samples takes them again.")
			}
			pause, failing, refusing = 0, false, false
			continue
		case !again:
			if !refusing {
				refusing = true
				p.cfg.Log.Error("The receiver of pushed samples refuses some, and they are dropped.", "samples", t.samples, "of", t.at, "err", err)
			}
			b.done(t)
			continue
		case ctx.Err() != nil:
			return
		case !failing:
			failing = true
			p.cfg.Log.Warn("The receiver of pushed samples does not take them; they wait and are tried again.", "err", err)
		}
		pause = min(max(2*pause, firstPause), maxPause)
		wait(ctx, max(pause+rand.N(pause/4), min(after, maxPause)))
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (p *Pusher) count(err error, again bool, samples int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.results[sent]++
		p.sent += uint64(samples)
	case again:
		p.results[failed]++
	default:
		p.results[refused]++
		p.refused += uint64(samples)
	}
}

// Tell adds what there is to say of pushing to a page.
func (p *Pusher) Tell(add func(d *metric.Def, v float64, labels ...string)) {
	p.mu.Lock()
	b, results, sent, refused := p.buffer, p.results, p.sent, p.refused
	p.mu.Unlock()
	for i, n := range results {
		add(metric.PushRequests, float64(n), metric.PushResults[i])
	}
	add(metric.PushSamples, float64(sent))
	if b == nil {
		return
	}
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	age := 0.0
	if !b.state.oldest.IsZero() {
		age = max(0, time.Since(b.state.oldest).Seconds())
	}
	add(metric.PushBytes, float64(b.state.bytes))
	add(metric.PushAge, age)
	for i, n := range b.state.lost {
		add(metric.PushLost, float64(n), metric.PushLosses[i])
	}
	add(metric.PushLost, float64(refused), metric.PushLosses[losses])
}

// To names the receiver, without what may be a secret in its URL.
func (p *Pusher) To() string { return shown(p.cfg.URL) }
