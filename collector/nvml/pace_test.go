//go:build linux && cgo

package nvml

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// rounds notes n rounds that take as long, and returns the slowdowns that followed.
func (p *pace) rounds(n int, took, configured time.Duration) (changes []int) {
	for range n {
		if p.note(took, configured) {
			changes = append(changes, int(p.slowdown()))
		}
	}
	return changes
}

func TestPaceFollowsTheDriver(t *testing.T) {
	var p pace
	for _, step := range []struct {
		what string
		n    int
		took time.Duration
		want []int
	}{
		{"a quick driver", 100, 20 * time.Millisecond, nil},
		{"a call that hung once", 1, time.Hour, nil},
		{"a quick driver after that", 100, 20 * time.Millisecond, nil},
		{"rounds of just less than a fifth of the interval", 1000, 199 * time.Millisecond, nil},
		{"rounds of 0.3 s", 100, 300 * time.Millisecond, []int{2}},
		{"rounds between the limits", 1000, 150 * time.Millisecond, nil},
		{"rounds of 0.7 s", 100, 700 * time.Millisecond, []int{4}},
		{"rounds that are never done in time", 1000, time.Minute, []int{8}},
		{"rounds of 0.5 s, too much for half the interval", 1000, 500 * time.Millisecond, nil},
		{"rounds of 0.15 s", 1000, 150 * time.Millisecond, []int{4, 2}},
		{"a quick driver again", 1000, 20 * time.Millisecond, []int{1}},
	} {
		if diff := cmp.Diff(step.want, p.rounds(step.n, step.took, time.Second)); diff != "" {
			t.Errorf("after %s the interval is multiplied by (-want +got):\n%s", step.what, diff)
		}
	}
}

// slowed returns the slowdown of each tier of a GPU.
func slowed(g collector.GPU) (all []float64) {
	for t := range metric.Tiers {
		all = append(all, g.ValueAt(metric.GPUSlowdown, int(t)))
	}
	return all
}

func TestSlowTierIsSampledLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := newFakeGPU(0), newFakeGPU(1)
		_, s := fakeSession(t, slow, quick)
		minute := func(from time.Duration) (p *collector.Part, asked, beside int) {
			before, other := slow.asked["GetPowerUsage"], quick.asked["GetPowerUsage"]
			for after := range 60 {
				p = s.at(t, from+time.Duration(after)*time.Second)
			}
			return p, slow.asked["GetPowerUsage"] - before, quick.asked["GetPowerUsage"] - other
		}
		if p, asked, _ := minute(0); asked != 60 || p.Node.Value(metric.TierSlowdown) != 1 {
			t.Errorf("a quick GPU is asked %d times a minute at a slowdown of %v, want 60 and 1", asked, p.Node.Value(metric.TierSlowdown))
		}
		slow.delay = map[string]time.Duration{"GetPowerUsage": 700 * time.Millisecond}
		minute(time.Minute)
		p, asked, beside := minute(2 * time.Minute)
		if asked != 15 || beside != 60 {
			t.Errorf("a GPU whose rounds take 0.7 s is asked %d times a minute, the one beside it %d times; want 15 and 60", asked, beside)
		}
		if diff := cmp.Diff([]float64{4, 1, 1, 1}, slowed(p.GPUs[0])); diff != "" {
			t.Errorf("slowdown of its tiers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]float64{1, 1, 1, 1}, slowed(p.GPUs[1])); diff != "" {
			t.Errorf("slowdown of the GPU beside it (-want +got):\n%s", diff)
		}
		if got := p.Node.Value(metric.TierSlowdown); got != 4 {
			t.Errorf("the node tells of a slowdown of %v, want that of its slowest GPU, 4", got)
		}
		slow.delay = nil
		for m := range 5 {
			minute(time.Duration(3+m) * time.Minute)
		}
		if p, asked, _ := minute(8 * time.Minute); asked != 60 || p.Node.Value(metric.TierSlowdown) != 1 {
			t.Errorf("quick again, the GPU is asked %d times a minute at a slowdown of %v, want 60 and 1", asked, p.Node.Value(metric.TierSlowdown))
		}
	})
}

func TestSlowLibrarySlowsItsGPUsTier(t *testing.T) {
	n := newNode(t, 2)
	n.Fault(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", fakenvml.Delay(200*time.Millisecond))
	n.start()
	p := n.await("the fast tier of GPU 0 to be as slow as it gets", func(p *collector.Part) bool {
		return len(p.GPUs) == 2 && p.GPUs[0].Value(metric.GPUSlowdown) == metric.MaxSlowdown
	})
	n.value("node", p.Node.Readings, metric.TierSlowdown, int(metric.Fast), metric.MaxSlowdown)
	n.value("GPU 0", p.GPUs[0].Readings, metric.PowerDraw, 0, 350)
	power := metric.NVMLFunction.Index("nvmlDeviceGetPowerUsage")
	if s := p.Node.ValueAt(metric.FunctionSeconds, power); !(s > 0.2) {
		t.Errorf("%v s are counted in nvmlDeviceGetPowerUsage, of which one call takes 0.2 s", s)
	}
	n.Clear(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage")
	n.write()
	n.await("the tier to become faster again", func(p *collector.Part) bool {
		return p.GPUs[0].Value(metric.GPUSlowdown) < metric.MaxSlowdown
	})
}
