//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxSlots bounds what a driver may claim to have.
const maxSlots = 1024

// census asks what belongs to no single GPU: how many there are, and the versions.
type census struct {
	*session
	actor
	caller
	count    atomic.Pointer[headcount]
	versions atomic.Pointer[[]collector.Version]
	secret   atomic.Pointer[confidential]
	asked    time.Time // when the versions were
	failing  nvml.Return
}

// confidential is whether the GPUs run in confidential-computing mode.
type confidential struct {
	on bool
	at time.Time
}

type headcount struct {
	gpus int
	at   time.Time
}

func newCensus(s *session) *census {
	return &census{session: s, actor: newActor(), caller: caller{account: s.account}}
}

// gpus returns how many GPUs the driver listed last.
func (c *census) gpus() int {
	if h := c.count.Load(); h != nil {
		return h.gpus
	}
	return 0
}

// take counts the GPUs, and asks for the versions when that is due.
func (c *census) take(_ context.Context, now time.Time) {
	n := 0
	ret := c.do("nvmlDeviceGetCount_v2", func() (ret nvml.Return) {
		n, ret = c.lib.DeviceGetCount()
		return ret
	})
	switch {
	case judge(ret) == fatal:
		c.fail(&callError{"nvmlDeviceGetCount", "", ret})
	case ret != nvml.SUCCESS && ret != c.failing:
		c.log.Warn("cannot count the GPUs", "err", text(ret))
	case ret == nvml.SUCCESS:
		n = min(n, maxSlots)
		if n != c.gpus() {
			c.log.Info("the driver lists another number of GPUs", "before", c.gpus(), "now", n)
			c.fleet.generation.Add(1)
		}
		c.count.Store(&headcount{n, now})
	}
	c.failing = ret
	if now.Sub(c.asked) >= c.cfg.Tiers[metric.Inventory] {
		c.asked = now
		c.askVersions()
		c.askConfidential(now)
	}
}

// askVersions reads the versions in the order of their components' names. One
// that cannot be read now keeps its value: a version does not vanish with a call.
func (c *census) askVersions() {
	before := map[string]string{}
	if old := c.versions.Load(); old != nil {
		for _, v := range *old {
			before[v.Component] = v.Value
		}
	}
	var all []collector.Version
	for _, q := range []struct {
		component, function string
		get                 func() (string, nvml.Return)
	}{
		{"cuda", "nvmlSystemGetCudaDriverVersion_v2", func() (string, nvml.Return) {
			v, ret := c.lib.SystemGetCudaDriverVersion_v2()
			return cudaVersion(v), ret
		}},
		{"driver", "nvmlSystemGetDriverVersion", c.lib.SystemGetDriverVersion},
		{"nvml", "nvmlSystemGetNVMLVersion", c.lib.SystemGetNVMLVersion},
	} {
		value := before[q.component]
		if c.guard.has(q.function) {
			c.do(q.function, func() nvml.Return {
				v, ret := q.get()
				if ret == nvml.SUCCESS {
					value = clean(v)
				}
				return ret
			})
		}
		if value != "" {
			all = append(all, collector.Version{Component: q.component, Value: value})
		}
	}
	c.versions.Store(&all)
}

func (c *census) askConfidential(now time.Time) {
	const function = "nvmlSystemGetConfComputeState"
	if !c.guard.has(function) {
		return
	}
	c.do(function, func() nvml.Return {
		state, ret := c.lib.SystemGetConfComputeState()
		if ret == nvml.SUCCESS {
			c.secret.Store(&confidential{state.CcFeature != 0, now})
		}
		return ret
	})
}

// cudaVersion writes 13000 as 13.0.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
