//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// TestLostGPUDoesNotSilenceTheOthers loses one of three GPUs, whose set of events
// then fails each wait, and lets another have an error after that.
func TestLostGPUDoesNotSilenceTheOthers(t *testing.T) {
	n := newNode(t, 3)
	n.start()
	n.complete()
	n.Fault(fakenvml.GPU(0), fakenvml.Every, fakenvml.Error(nvml.ERROR_GPU_IS_LOST))
	n.write()
	n.await("GPU 0 to be gone and the set of events to be another", func(p *collector.Part) bool {
		return !p.GPUs[0].Present && p.Node.Value(metric.NVMLEventSets) == 1
	})
	n.raise(2, 31)
	p := n.next()
	if !p.GPUs[2].Has(metric.PowerDraw) || slices.Contains(p.GPUs[2].Unsupported, metric.XidErrors) {
		t.Errorf("the GPU that is left: power %v, unsupported %s", p.GPUs[2].Value(metric.PowerDraw), names(p.GPUs[2].Unsupported))
	}

	n.Clear(fakenvml.GPU(0), fakenvml.Every)
	n.write()
	n.await("GPU 0 to be back", func(p *collector.Part) bool { return p.GPUs[0].Present && p.GPUs[0].Has(metric.PowerDraw) })
	n.raise(0, 48)

	calls := n.calls(fakenvml.Sys)
	count := func(key string) (c int) {
		for _, k := range calls {
			if k == key {
				c++
			}
		}
		return c
	}
	if made, freed := count("nvmlEventSetCreate"), count("nvmlEventSetFree"); made != 2 || freed != 1 {
		t.Errorf("%d sets of events were made and %d freed, want 2 and 1", made, freed)
	}
}

// raise lets a GPU have errors until one was told: those from before a GPU is
// registered are not.
func (n *node) raise(gpu, code int) {
	n.Helper()
	n.await(fmt.Sprintf("Xid %d on GPU %d", code, gpu), func(p *collector.Part) bool {
		if slices.ContainsFunc(p.GPUs[gpu].Xids, func(x collector.XidCount) bool { return x.Code == code }) {
			return true
		}
		n.Event(fakenvml.GPU(gpu), nvml.EventTypeXidCriticalError, uint64(code))
		n.write()
		return false
	})
}

func TestSetOfEventsIsReplacedWhenThatHelps(t *testing.T) {
	const (
		ok, timeout = nvml.SUCCESS, nvml.ERROR_TIMEOUT
		gone, odd   = nvml.ERROR_GPU_IS_LOST, nvml.ERROR_UNKNOWN
	)
	for name, c := range map[string]struct {
		waits func(second int) nvml.Return
		want  []int // seconds at which the set is replaced
	}{
		"nothing happens":               {func(int) nvml.Return { return timeout }, nil},
		"it fails now and then":         {func(s int) nvml.Return { return map[bool]nvml.Return{true: timeout, false: odd}[s%5 == 0] }, nil},
		"a GPU is lost":                 {func(s int) nvml.Return { return map[bool]nvml.Return{true: gone, false: timeout}[s == 3] }, []int{3}},
		"it fails for ever":             {func(int) nvml.Return { return odd }, []int{4, 9, 14, 19, 27, 43, 75, 135}},
		"a GPU is lost and not let go":  {func(int) nvml.Return { return gone }, []int{0, 1, 3, 7, 15, 31, 63, 123, 183}},
		"two are lost with a day apart": {func(s int) nvml.Return { return map[bool]nvml.Return{true: gone, false: ok}[s == 3 || s == 86403] }, []int{3, 86403}},
	} {
		t.Run(name, func(t *testing.T) {
			var trouble eventTrouble
			var got []int
			limit := 190
			if len(c.want) == 2 {
				limit = 86500
			}
			for s := range limit {
				now := start.Add(time.Duration(s) * time.Second)
				if trouble.note(c.waits(s), now) {
					trouble.replaced(now)
					got = append(got, s)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the set is replaced at these seconds (-want +got):\n%s", diff)
			}
		})
	}
}

// namedSet is a set of events that can only be told apart from others.
type namedSet struct {
	nvml.EventSet
	name int
}

func TestSetOfEventsIsFreedOnceAndNotUnderACall(t *testing.T) {
	made, answer := 0, nvml.SUCCESS
	var freed []int
	sets := &eventSets{
		create: func() (nvml.EventSet, nvml.Return) {
			if answer != nvml.SUCCESS {
				return nil, answer
			}
			made++
			return namedSet{name: made}, nvml.SUCCESS
		},
		free: func(s nvml.EventSet) { freed = append(freed, s.(namedSet).name) },
	}
	expect := func(when string, want ...int) {
		t.Helper()
		if diff := cmp.Diff(want, freed); diff != "" {
			t.Errorf("%s, these sets are freed (-want +got):\n%s", when, diff)
		}
	}
	sets.replace()
	hanging, other := sets.take(), sets.take()
	sets.replace()
	sets.put(other)
	expect("while a call on the first hangs")
	if g := sets.current().number(); g != 2 {
		t.Errorf("the set in use is of generation %d, want 2", g)
	}
	sets.replace()
	expect("when the second was replaced", 2)
	sets.put(hanging)
	expect("when the call on the first has returned", 2, 1)
	answer = nvml.ERROR_INSUFFICIENT_RESOURCES
	sets.replace()
	expect("when none could be made in the place of the third", 2, 1, 3)
	if none := sets.take(); none.number() != 0 {
		t.Errorf("a set of generation %d is in use, want none", none.number())
	}
	sets.put(nil)
	sets.close()
	expect("when the watcher has ended", 2, 1, 3)
}
