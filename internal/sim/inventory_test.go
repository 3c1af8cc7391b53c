package sim

import (
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
)

// TestUpgradeOfARuntime is what the demo shows as having changed just before an
// endpoint ran into its limit.
func TestUpgradeOfARuntime(t *testing.T) {
	s := newSim(t, "demo")
	loaded := func(p *collector.Part, component string) (versions []string) {
		for _, r := range p.Inventory.Runtimes {
			if r.Owner == chat().Owner && r.Component == component {
				versions = append(versions, r.Version)
			}
		}
		return versions
	}
	before := s.Part(start.Add(-11*time.Minute - time.Second))
	after := s.Part(start.Add(-11 * time.Minute))
	if old, now := loaded(before, "vllm"), loaded(after, "vllm"); !slices.Equal(old, []string{"0.10.2"}) || !slices.Equal(now, []string{"0.11.0"}) {
		t.Errorf("the pod has vLLM %v before the upgrade and %v after it", old, now)
	}
	if !slices.ContainsFunc(after.Events, func(e collector.Event) bool {
		return e.Kind == collector.VersionEvent && e.Owner == chat().Owner && e.Component == "vllm" && e.From == "0.10.2" && e.To == "0.11.0"
	}) {
		t.Errorf("nothing tells of the upgrade: %+v", after.Events)
	}
	if old := loaded(before, "libcuda"); !slices.Equal(old, []string{s.version("driver")}) {
		t.Errorf("the driver's own library is %v, the driver %s", old, s.version("driver"))
	}
	i := after.Inventory
	if len(i.Images) == 0 || len(i.Datasets) == 0 || len(i.APIs) != 1 || i.APIs[0].Model != chat().Servers[0].Model {
		t.Errorf("the inventory has %d images, %d data sets, APIs %+v", len(i.Images), len(i.Datasets), i.APIs)
	}
}

func TestUpgradeOfNothing(t *testing.T) {
	for _, e := range []Entry{{Kind: Upgrade, Target: "chat", Component: "fortran"}, {Kind: Upgrade, Target: "nobody", Component: "vllm"}} {
		sc := demo()
		sc.Timeline = []Entry{e}
		if _, err := New(Config{Seed: 1, Start: start, Scenario: sc}); err == nil {
			t.Errorf("a scenario with %+v was accepted", e)
		}
	}
}
