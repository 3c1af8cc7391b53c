//go:build linux && cgo

package nvml

import (
	"context"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// GPM counts what the parts of a GPU do between two samples. Calls of it in
// parallel, on whatever GPUs, have been seen to crash, so one at a time makes them.
const (
	gpmMetrics = "nvmlGpmMetricsGet"
	gpmSupport = "nvmlGpmQueryDeviceSupport"
	gpmGet     = "nvmlGpmSampleGet"
	gpmGetMIG  = "nvmlGpmMigSampleGet"

	gpmPCIeSent, gpmPCIeReceived = 20, 21

	gpmApart   = 100 * time.Millisecond // the least that two samples must be
	gpmRounded = 101                    // a share of a little more than 100 % is a rounded one
)

// gpmQuery is one metric of a batch.
type gpmQuery struct {
	id uint32
	at int // position in the row's dimension
}

// gpmSamples are the two samples of a device between which its metrics are. They
// take turns.
type gpmSamples struct {
	pair  [2]nvml.GpmSample
	newer int
	at    time.Time // of the newer one; zero: there is none
	asked bool      // whether the device has GPM
	has   bool
	pcie  traffic
}

// traffic is bytes per second, in the order of metric.Direction.
type traffic struct {
	rate [2]float64
	ok   bool
}

func (t *traffic) known() bool { return t != nil && t.ok }

// gpmTurn lets one worker at a time into GPM.
type gpmTurn struct {
	token chan struct{} // holds one while nobody is inside
	get   nvml.GpmMetricsGetType
}

func newGPMTurn() *gpmTurn {
	t := &gpmTurn{token: make(chan struct{}, 1)}
	t.token <- struct{}{}
	return t
}

// enter waits for the turn, but not for a worker that hangs inside.
func (t *gpmTurn) enter(ctx context.Context, patience time.Duration) bool {
	select {
	case <-t.token:
		return true
	default:
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-t.token:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

func (t *gpmTurn) leave() { t.token <- struct{}{} }

func hasGPM(g *guard) bool {
	for _, function := range []string{"nvmlGpmSampleAlloc", "nvmlGpmSampleFree", gpmSupport, gpmGet, gpmGetMIG} {
		if !g.has(function) {
			return false
		}
	}
	return true
}

// askGPM samples the device and asks for the metrics since the sample before.
// gi is a MIG instance's GPU instance, or nobody.
func (w *worker) askGPM(ctx context.Context, b *subject, calls []*call, gi int, s *sample, now time.Time) (all ended) {
	if !w.turn.enter(ctx, w.cfg.Tiers[metric.Fast]/4) {
		return ended{}
	}
	defer w.turn.leave()
	ret := w.sampleGPM(&b.gpm, gi, now)
	if ret == nvml.ERROR_NO_DATA {
		// Too soon after the sample before, whose metrics still hold; or this was the first.
		for _, c := range calls {
			s.readings.SetAt(c.rows[0], c.gpm.at, s.before.ValueAt(c.rows[0], c.gpm.at))
		}
		return ended{good: true}
	}
	if ret == nvml.SUCCESS {
		ret = w.metricsBetween(&b.gpm, calls, gi == nobody)
	}
	for i, c := range calls {
		one := ret
		if ret == nvml.SUCCESS {
			one = take(&w.turn.get.Metrics[i], c, s)
		}
		all.join(w.conclude(b, c, one, now))
		if all.stop {
			break
		}
	}
	return all
}

// sampleGPM replaces the older sample. NO_DATA says that there is no other one
// yet that is far enough away.
func (w *worker) sampleGPM(g *gpmSamples, gi int, now time.Time) nvml.Return {
	if !g.asked {
		var support nvml.GpmSupport
		ret := w.do(gpmSupport, func() (ret nvml.Return) {
			support, ret = w.handle.GpmQueryDeviceSupport()
			return ret
		})
		if ret != nvml.SUCCESS {
			return ret
		}
		g.asked, g.has = true, support.IsSupportedDevice != 0
	}
	if !g.has {
		return nvml.ERROR_NOT_SUPPORTED
	}
	older := 1 - g.newer
	if g.pair[older] == nil {
		ret := w.do("nvmlGpmSampleAlloc", func() (ret nvml.Return) {
			g.pair[older], ret = w.lib.GpmSampleAlloc()
			return ret
		})
		if ret != nvml.SUCCESS {
			g.pair[older] = nil
			return ret
		}
	}
	if !g.at.IsZero() && now.Sub(g.at) < gpmApart {
		return nvml.ERROR_NO_DATA
	}
	var ret nvml.Return
	if gi == nobody {
		ret = w.do(gpmGet, func() nvml.Return { return w.handle.GpmSampleGet(g.pair[older]) })
	} else {
		ret = w.do(gpmGetMIG, func() nvml.Return { return w.handle.GpmMigSampleGet(gi, g.pair[older]) })
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	first := g.at.IsZero()
	g.newer, g.at = older, now
	if first {
		return nvml.ERROR_NO_DATA
	}
	return nvml.SUCCESS
}

// metricsBetween asks for the calls' metrics and, for a whole GPU, its PCIe traffic.
func (w *worker) metricsBetween(g *gpmSamples, calls []*call, whole bool) nvml.Return {
	get := &w.turn.get
	get.Sample1, get.Sample2 = g.pair[1-g.newer], g.pair[g.newer]
	n := 0
	add := func(id uint32) {
		get.Metrics[n] = nvml.GpmMetric{MetricId: id}
		n++
	}
	for _, c := range calls {
		add(c.gpm.id)
	}
	if whole {
		add(gpmPCIeReceived)
		add(gpmPCIeSent)
	}
	get.NumMetrics = uint32(n)
	ret := w.do(gpmMetrics, func() nvml.Return { return w.lib.GpmMetricsGet(get) })
	g.pcie.ok = false
	if ret == nvml.SUCCESS && whole {
		g.pcie = trafficOf(get.Metrics[n-2 : n])
	}
	return ret
}

// forgetGPM gives the samples of a device back.
func (w *worker) forgetGPM(g *gpmSamples) {
	for i, s := range g.pair {
		if s != nil {
			w.do("nvmlGpmSampleFree", s.Free)
			g.pair[i] = nil
		}
	}
	*g = gpmSamples{}
}
