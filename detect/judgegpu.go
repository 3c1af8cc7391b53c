package detect

import (
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

// The readings of a GPU of which means are kept.
const (
	meanUtil   = iota // utilization
	meanFull          // share of the time in which that is at least 99 %
	meanSM            // activity of the SMs
	meanTensor        // of the tensor cores
	meanDRAM          // of the device memory's bandwidth
	meanMemory        // NVML's memory utilization
	meanCodec         // the busier of video encoder and decoder
	meanPower         // power draw as a share of the limit
	meanClock         // of the SMs, hertz
	meanCapped        // share of the time under the software power cap
	meanNVLink        // bytes a second in the busier direction
	meanPCIe          // likewise
	meanLinks         // bytes a second over both, in both directions
	gpuMeans
)

const (
	jobWindow  = 5 * time.Minute // over which a hang is judged
	powerEvery = time.Second     // readings of power are kept
	powerKept  = int(jobWindow / powerEvery)
)

// judged is what is kept of one GPU. Its exported fields survive a restart.
type judged struct {
	Name   VerdictName       `json:"verdict"`
	Since  time.Time         `json:"since"`
	Holder collector.Owner   `json:"holder"`
	Rest   *stream.Histogram `json:"rest"`    // watts with a context open and nothing to do
	Usual  *stream.Histogram `json:"usual"`   // activity while its holder works
	Seen   time.Time         `json:"sampled"` // the newest reading

	next     VerdictName // what would take over, and since when it holds
	nextAt   time.Time
	heldAt   time.Time // when readings last spoke for the verdict that stands
	opened   bool      // it was begun anew when a process opened the GPU
	sure     Confidence
	worded   string
	wordedAt time.Time

	begun  time.Time // to be looked at, by this process
	seen   time.Time // in a snapshot
	slowAt time.Time
	mean   [gpuMeans]*stream.Mean
	power  powers
	nvlink flow
	pcie   flow
	slow   slowdowns

	open         int  // processes that have it open
	listed       bool // that is known
	notebook     bool // one of them is a notebook's
	server       bool // one of them is an inference server's
	pid, lastPID int  // the lowest and the highest of them; 0: not told
}

func newJudged() *judged {
	st := &judged{Rest: stream.NewHistogram(powerHalfLife), Usual: stream.NewHistogram(powerHalfLife), slow: newSlowdowns()}
	st.resetMeans()
	return st
}

func (st *judged) resetMeans() {
	for i := range st.mean {
		st.mean[i] = stream.NewMean(jobWindow, 30, sampleGap)
	}
}

// take takes up a GPU's readings.
func (st *judged) take(s *collector.Snapshot, g *collector.GPU) {
	if !g.Answers() {
		return
	}
	if at := g.SampledAt(metric.Slow); !at.Equal(st.slowAt) {
		st.slowAt = at
		nvlink, nvlinkAll := st.nvlink.next(at, &g.Readings, metric.NVLinkBytes, metric.NVLinkThroughput)
		pcie, pcieAll := st.pcie.next(at, &g.Readings, metric.PCIeBytes, metric.PCIeThroughput)
		st.mean[meanNVLink].Add(at, nvlink)
		st.mean[meanPCIe].Add(at, pcie)
		st.mean[meanLinks].Add(at, sumKnown(nvlinkAll, pcieAll))
	}
	at := g.SampledAt(metric.Fast)
	if at.IsZero() || at.Equal(st.Seen) {
		return
	}
	dt := min(max(at.Sub(st.Seen), 0), sampleGap)
	if st.Seen.IsZero() {
		dt = 0
	}
	st.Seen = at
	util, power := g.Value(metric.Utilization), g.Value(metric.PowerDraw)/g.Value(metric.PowerLimit)
	full := math.NaN()
	if !math.IsNaN(util) {
		full = indicator(util >= spinUtil)
	}
	st.mean[meanUtil].Add(at, util)
	st.mean[meanFull].Add(at, full)
	st.mean[meanSM].Add(at, g.Value(metric.SMActivity))
	st.mean[meanTensor].Add(at, g.Value(metric.TensorActivity))
	st.mean[meanDRAM].Add(at, g.Value(metric.DRAMActivity))
	st.mean[meanMemory].Add(at, g.Value(metric.MemoryUtilization))
	st.mean[meanCodec].Add(at, largerKnown(g.Value(metric.EncoderUtilization), g.Value(metric.DecoderUtilization)))
	st.mean[meanPower].Add(at, power)
	st.mean[meanClock].Add(at, g.ValueAt(metric.Clock, 1))
	st.mean[meanCapped].Add(at, g.ValueAt(metric.ClockEvent, reasonCapped))
	st.power.add(at, power)
	st.slow.take(at, g, util)
	st.learn(g, at, dt)
}

// learn learns what the GPU draws at rest, and how active its holder keeps it.
func (st *judged) learn(g *collector.GPU, at time.Time, dt time.Duration) {
	if owner := holder(g); owner != st.Holder {
		st.Usual = stream.NewHistogram(powerHalfLife)
	}
	util := g.Value(metric.Utilization)
	if st.open > 0 && util <= resting {
		st.Rest.Add(at, g.Value(metric.PowerDraw), dt.Seconds())
	}
	if a := activity(g); a >= busyActivity {
		st.Usual.Add(at, a, dt.Seconds())
	}
}

// activity is how much of the GPU works: of its SMs, if it tells, else of the time.
func activity(g *collector.GPU) float64 {
	if sm := g.Value(metric.SMActivity); !math.IsNaN(sm) {
		return sm
	}
	return g.Value(metric.Utilization)
}

// over returns a mean over the last d; NaN unless samples cover so much of that.
func over(m *stream.Mean, now time.Time, d, least time.Duration) float64 {
	mean, covered := m.Over(now, d)
	if covered < least {
		return math.NaN()
	}
	return mean
}

// powers are the readings of power of the last minutes, as shares of the limit.
type powers struct {
	at    [powerKept]int64 // Unix seconds
	share [powerKept]float32
	next  int
	last  time.Time
}

func (p *powers) add(at time.Time, share float64) {
	if math.IsNaN(share) || at.Sub(p.last).Abs() < powerEvery*9/10 { // a tick may be early
		return
	}
	p.at[p.next], p.share[p.next], p.last = at.Unix(), float32(share), at
	p.next = (p.next + 1) % powerKept
}

// spread returns how far the 95th percentile of the window is above the fifth; NaN if
// there are less than three readings.
func (p *powers) spread(now time.Time) float64 {
	var values [powerKept]float32
	n := 0
	for i, at := range p.at {
		if age := now.Unix() - at; at != 0 && age >= 0 && age <= int64(jobWindow.Seconds()) {
			values[n] = p.share[i]
			n++
		}
	}
	if n < 3 {
		return math.NaN()
	}
	slices.Sort(values[:n])
	low := n * 5 / 100
	return float64(values[n-1-low] - values[low])
}

func (p *powers) shift(by time.Duration) {
	shift(by, &p.last)
	for i := range p.at {
		if p.at[i] != 0 {
			p.at[i] += int64(by.Seconds())
		}
	}
}

// flow is the traffic of a link by its newest two readings.
type flow [2]rate

// next returns the bytes a second in the busier direction and in both, by a counter or,
// where there is none, by a gauge.
func (f *flow) next(at time.Time, r *collector.Readings, counter, gauge *metric.Def) (busier, both float64) {
	a, b := f[0].next(at, r.ValueAt(counter, 0)), f[1].next(at, r.ValueAt(counter, 1))
	if gauge != nil && !r.Has(counter) {
		a, b = r.ValueAt(gauge, 0), r.ValueAt(gauge, 1)
	}
	return largerKnown(a, b), sumKnown(a, b)
}

func (f *flow) shift(by time.Duration) {
	f[0].shift(by)
	f[1].shift(by)
}

// sumKnown adds what is known; NaN if nothing is.
func sumKnown(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return a + b
}

// largerKnown returns the larger of what is known; NaN if nothing is.
func largerKnown(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return max(a, b)
}

// isServer reports whether a process calls itself an inference server.
func isServer(name string) bool {
	for _, word := range []string{"VLLM", "vllm", "sglang", "tritonserver", "trtllm", "text-generation", "llama-server", "lmdeploy", "ollama", "torchserve"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
