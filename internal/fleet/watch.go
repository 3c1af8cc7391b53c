package fleet

import (
	"context"
	"sync"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

// lookEvery is how often the detectors look at what the schedulers said last.
const lookEvery = 30 * time.Second

// watch is what looks at the queues for something that a person should hear of.
type watch struct {
	mu     sync.Mutex
	engine *detect.Engine
}

// configure starts anew with other settings and keeps the findings.
func (w *watch) configure(cfg Config) {
	next := detect.NewEngine(detect.Config{Node: "cluster", Log: cfg.Log, Settings: cfg.Rules}, detect.FleetDetectors(cfg.Detect))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine != nil {
		state, err := w.engine.Save()
		if err == nil {
			err = next.Restore(state)
		}
		if err != nil {
			cfg.Log.Error("The findings begin anew with the new configuration.", "err", err)
		}
	}
	w.engine = next
}

// Watch looks for findings until ctx ends. They begin anew with the process: the role
// keeps nothing on disk.
func (f *Fleet) Watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f.look(now)
		}
	}
}

// look lets the detectors see what the schedulers said last, and logs what a person
// should hear of.
func (f *Fleet) look(now time.Time) {
	cfg := f.cfg.Load()
	s := &collector.Snapshot{Time: now}
	for _, of := range cfg.Schedulers {
		if c := of.Latest(); c != nil {
			s.Queues = append(s.Queues, queuesOf(of.Name, c)...)
		}
	}
	f.watch.mu.Lock()
	told := f.watch.engine.Observe(s)
	f.watch.mu.Unlock()
	for _, in := range told {
		for i := range in.Members {
			m := &in.Members[i]
			if m.State == detect.Firing {
				cfg.Log.Warn("Finding: "+m.Title(), "rule", m.Rule, "subject", m.Subject.String(), "cause", m.Cause, "since", m.Since, "seen", m.Evidence.Seen, "do", m.Action())
				continue
			}
			cfg.Log.Info("The finding is over.", "rule", m.Rule, "subject", m.Subject.String(), "cause", m.Cause, "why", m.Ended)
		}
	}
}

// findings has those that fire.
func (f *Fleet) findings(p *page) {
	f.watch.mu.Lock()
	view := f.watch.engine.View()
	f.watch.mu.Unlock()
	for i := range view.Findings {
		m := &view.Findings[i]
		if m.State != detect.Firing {
			continue
		}
		labels := []string{string(m.Rule), m.Severity.String(), m.Subject.String(), m.Cause}
		p.add(metric.FindingActive, 1, labels...)
		p.add(metric.FindingStart, float64(m.Since.UnixMilli())/1e3, labels...)
		p.add(metric.FindingObserved, m.Evidence.Observed, labels...)
		if m.Evidence.Want != nil {
			p.add(metric.FindingExpected, *m.Evidence.Want, labels...)
		}
		p.add(metric.FindingScore, m.Score, labels...)
	}
}
