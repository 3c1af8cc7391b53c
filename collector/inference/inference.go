// Package inference is the source of the demand side: how many requests the
// inference servers beside the GPUs work on, how many wait, for how long, and what
// follows from it.
package inference

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

// maxAtOnce is how many targets are read side by side. A page is not held in
// memory, so what bounds it are connections.
const maxAtOnce = 64

// Config is what the source needs to know.
type Config struct {
	Targets []Target
	Timeout time.Duration              // of the reading of one page
	GPUs    func() *collector.Snapshot // the last snapshot: GPUs and the processes on them; nil: neither energy nor discovery
	Sockets *Sockets                   // finds further targets; nil: it does not
	Log     *slog.Logger
}

// Target is one server's metrics page.
type Target struct {
	URL      string
	Name     string   // in place of the URL, in labels; empty: the URL without its query
	Engine   string   // auto, or one of metric.Engines
	Model    string   // name of the model of a server that does not tell
	GPUs     []string // uuids that it runs on; empty: any of the node
	TLS      page.TLS
	Token    func() (string, error) // bearer token; nil: none
	User     string                 // of basic authentication
	Password func() (string, error) // nil: none
}

// Inference reads the pages of several targets. It is used from one goroutine.
type Inference struct {
	cfg     Config
	targets []*target
	found   *discovery
	indexes map[string]*index // by engine, or auto
	first   int               // with whom the next sample begins
}

var _ collector.Source = (*Inference)(nil)

// New returns a source for the targets. It fails if a certificate cannot be read or
// a URL does not parse.
func New(cfg Config) (*Inference, error) {
	s := &Inference{cfg: cfg, indexes: indexes()}
	for _, t := range cfg.Targets {
		made, err := s.target(t)
		if err != nil {
			return nil, err
		}
		s.targets = append(s.targets, made)
	}
	if cfg.Sockets != nil {
		s.found = newDiscovery(cfg.Sockets)
	}
	return s, nil
}

// indexes compiles the table for each engine alone, and for all that can be told
// by their page.
func indexes() map[string]*index {
	all := engines()
	out := map[string]*index{}
	for _, e := range all {
		out[e.name] = newIndex([]*engine{e})
	}
	out["auto"] = newIndex(slices.DeleteFunc(all, func(e *engine) bool { return e.told }))
	return out
}

// Name is "inference".
func (s *Inference) Name() string { return "inference" }

// Sample reads all targets side by side. A target that cannot be read is in the part
// as not up, with the reason, and is logged. It is no error of the source: a node does
// not become blind by a server that is not well, or is not one of its own.
func (s *Inference) Sample(ctx context.Context) (*collector.Part, error) {
	var snap *collector.Snapshot
	if s.cfg.GPUs != nil {
		snap = s.cfg.GPUs()
	}
	targets := s.targets
	if s.found != nil {
		targets = slices.Concat(targets, s.found.targets(s, snap, time.Now()))
	}
	errs := s.read(ctx, targets, snap)
	part := &collector.Part{Time: time.Now()}
	for i, t := range targets {
		if t.found != nil {
			if errs[i] = s.found.judge(t, errs[i]); t.found.hidden {
				continue
			}
		}
		part.Endpoints = append(part.Endpoints, t.known...)
		part.Targets = append(part.Targets, t.health(part.Time))
		s.say(t, errs[i])
		s.accuse(t, snap, part.Time)
	}
	return part, nil
}

// read reads the targets side by side, and returns what is wrong with each.
func (s *Inference) read(ctx context.Context, targets []*target, snap *collector.Snapshot) []error {
	var wait sync.WaitGroup
	slots := make(chan struct{}, maxAtOnce)
	errs := make([]error, len(targets))
	for i := range targets {
		// With more hanging targets than slots those at the end would never be read.
		i = (i + s.first) % len(targets)
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = targets[i].read(ctx, snap)
		})
	}
	wait.Wait()
	s.first += maxAtOnce
	return errs
}

// say logs when a target's page goes and comes back.
func (s *Inference) say(t *target, err error) {
	failing := err != nil
	if failing == t.failing {
		return
	}
	t.failing = failing
	if failing {
		s.cfg.Log.Warn("An inference server's metrics cannot be read.", "endpoint", t.shown, "err", err)
	} else {
		s.cfg.Log.Info("An inference server's metrics are read again.", "endpoint", t.shown)
	}
}

// Tried is what came of reading a configured target once.
type Tried struct {
	Endpoint string
	Models   []collector.EndpointKey // what it serves, if it could be read
	GPUs     []string                // of those configured, that are not among the snapshot's
	Err      error
}

// Try reads each configured target once, as Sample does, for somebody who wants to know
// why one cannot be read.
func (s *Inference) Try(ctx context.Context, snap *collector.Snapshot) []Tried {
	var out []Tried
	for i, err := range s.read(ctx, s.targets, snap) {
		t := s.targets[i]
		tried := Tried{Endpoint: t.shown, GPUs: t.strangers(snap), Err: err}
		if err == nil {
			for _, e := range t.known {
				tried.Models = append(tried.Models, e.Key())
			}
		}
		out = append(out, tried)
	}
	return out
}

// listedAfter is how long the GPUs and MIG devices may take until they are all listed.
const listedAfter = time.Minute

// accuse logs once that a target is configured to run on GPUs that are not on this node.
// Where there are no GPUs at all that is said by others.
func (s *Inference) accuse(t *target, snap *collector.Snapshot, now time.Time) {
	if t.found != nil || snap == nil || len(snap.GPUs) == 0 {
		return
	}
	unknown := t.strangers(snap)
	switch {
	case len(unknown) == 0:
		t.strange, t.accused = time.Time{}, false
	case t.strange.IsZero():
		t.strange = now
	case !t.accused && now.Sub(t.strange) >= listedAfter:
		t.accused = true
		s.cfg.Log.Warn("An inference target names GPUs that are not on this node: its tokens for each GPU and joule are left out. Compare with nvidia-smi -L.",
			"endpoint", t.shown, "gpus", unknown)
	}
}

// target makes what is kept of a target.
func (s *Inference) target(t Target) (*target, error) {
	at, err := page.New(page.Address{URL: t.URL, TLS: t.TLS, Token: t.Token, User: t.User, Password: t.Password}, s.cfg.Timeout)
	if err != nil {
		return nil, fmt.Errorf("an inference target: %w", err)
	}
	shown := cmp.Or(t.Name, at.URL())
	x := s.indexes[t.Engine]
	if x == nil {
		return nil, fmt.Errorf("inference target %s is of engine %q, which is not known: known are auto, %v", shown, t.Engine, metric.Engines)
	}
	return &target{Target: t, page: at, shown: shown, book: newBook(x, t.Engine, t.Model)}, nil
}
