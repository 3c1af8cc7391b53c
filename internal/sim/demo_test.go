package sim_test

import (
	"iter"
	"log/slog"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/sim"
	"gpuvigil/rules"
)

// replay composes parts into snapshots as a sampler without other sources does.
func replay() *collector.Replay {
	tiers := [metric.Tiers]time.Duration{5 * time.Second, 15 * time.Second, 15 * time.Second, time.Minute}
	return collector.NewReplay(collector.SamplerConfig{Tiers: tiers, Log: slog.New(slog.DiscardHandler)}, sim.SourceName)
}

func newScenario(t *testing.T, name string) *sim.Sim {
	t.Helper()
	sc, err := sim.ScenarioByName(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(sim.Config{Seed: 1, Start: time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC), Scenario: sc})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDemoIsFullWhenItGoesLive is the demo's promise: who opens the page finds
// each of the rules on it.
func TestDemoIsFullWhenItGoesLive(t *testing.T) {
	engine := detect.NewEngine(detect.Config{}, detect.Detectors(detect.DetectorConfig{}))
	node := replay()
	for p := range newScenario(t, "demo").Prelude(5 * time.Second) {
		engine.Observe(node.Snapshot(p))
	}
	found := map[string]detect.Finding{}
	for _, f := range engine.View().Findings {
		found[f.Cause] = f
	}
	for cause, want := range map[string]rules.Severity{
		"xid_79": rules.Page, "vram_bound": rules.Ticket, "idle_with_context": rules.Info, "xid_31": rules.Info,
	} {
		if f, ok := found[cause]; !ok || f.State != detect.Firing || f.Severity != want || !f.Simulated {
			t.Errorf("when the demo goes live %s does not fire as a simulated %s: %+v", cause, want, f)
		}
	}
	if _, ok := found["driver"]; !ok {
		t.Error("when the demo goes live nobody has noticed the new driver")
	}
}

// TestSaturateShowsWhatItIsNamedFor looks at both ways to see the scenario: the demo,
// with its past, and a recording of an hour from its start.
func TestSaturateShowsWhatItIsNamedFor(t *testing.T) {
	for name, parts := range map[string]func(*sim.Sim) iter.Seq[*collector.Part]{
		"the demo as it goes live": func(s *sim.Sim) iter.Seq[*collector.Part] { return s.Prelude(5 * time.Second) },
		"a recording of an hour": func(s *sim.Sim) iter.Seq[*collector.Part] {
			return func(yield func(*collector.Part) bool) {
				for at := time.Hour; at <= 2*time.Hour && yield(s.Part(s.Begin().Add(at))); at += 5 * time.Second {
				}
			}
		},
	} {
		engine := detect.NewEngine(detect.Config{}, detect.Detectors(detect.DetectorConfig{}))
		node := replay()
		told := map[rules.ID]int{}
		for p := range parts(newScenario(t, "saturate")) {
			for _, in := range engine.Observe(node.Snapshot(p)) {
				if in.State == detect.Firing {
					told[in.Rule]++
				}
			}
		}
		if told[rules.IDSaturatedGPU] != 1 || len(told) != 1 {
			t.Errorf("%s tells %v, want one incident of saturated GPUs and nothing else", name, told)
		}
	}
}

// TestQuietStaysQuiet is the look-alikes' promise.
func TestQuietStaysQuiet(t *testing.T) {
	engine := detect.NewEngine(detect.Config{}, detect.Detectors(detect.DetectorConfig{}))
	s, node := newScenario(t, "quiet"), replay()
	for at := time.Duration(0); at < 4*time.Hour; at += 5 * time.Second {
		engine.Observe(node.Snapshot(s.Part(s.Begin().Add(at))))
		for _, f := range engine.View().Findings {
			if f.State != detect.Pending {
				t.Fatalf("after %v a healthy node has a finding: %s %s, %s", at, f.Rule, f.Subject, f.Evidence.Seen)
			}
		}
	}
}
