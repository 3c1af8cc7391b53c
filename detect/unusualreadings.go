package detect

import (
	"math"
	"strconv"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// The readings that rule unusual looks at.
const (
	oddBusy = iota
	oddSM
	oddTensor
	oddPower
	oddMemory
	oddPCIe
	oddNVLink
	oddOwner
	oddQueue
	oddTokens
	oddStarved
	oddPerRequest
	oddPerJoule
	oddPerToken
	unusualReadings // the number of them
)

// unusualKinds says of each reading what it tells of, its name in the saved habits, how
// people read it, and how large a change of it matters. Ratios are there because a series
// that comes in bursts hides what they show.
var unusualKinds = [unusualReadings]struct {
	kind kind
	name string
	say  string
	unit func(float64) string
	effect
}{
	oddBusy:       {ofLoad, "busy", "GPU busy", percentOf, points},
	oddSM:         {ofLoad, "sm", "SMs active", percentOf, points},
	oddTensor:     {ofLoad, "tensor", "tensor cores active", percentOf, points},
	oddPower:      {ofLoad, "power", "power", watts, effect{part: 0.15, most: powerLimit}},
	oddMemory:     {ofMemory, "memory", "GPU memory", gibibytes, effect{least: 1 << 30, part: 0.05, most: memorySize}},
	oddPCIe:       {ofLoad, "pcie", "PCIe", perSecond, effect{least: 1e8, times: 1.5}},
	oddNVLink:     {ofLoad, "nvlink", "NVLink", perSecond, effect{least: 1 << 30, times: 1.5}},
	oddOwner:      {ofOwner, "owner_memory", "host memory of its holder", gibibytes, effect{least: 1 << 30, part: 0.05}},
	oddQueue:      {ofWaiting, "queue_wait", "requests wait in the queue for", seconds, effect{least: 0.5, times: 2}},
	oddTokens:     {ofLoad, "tokens", "tokens a second", plain, effect{least: 1, times: 1.5}},
	oddStarved:    {ofEfficiency, "waiting_while_idle", "time in which requests wait and the GPU does nothing", percentOf, points},
	oddPerRequest: {ofEfficiency, "busy_per_request", "GPU time for a request", seconds, costs},
	oddPerJoule:   {ofEfficiency, "tokens_per_joule", "energy for a token", joules, costs},
	oddPerToken:   {ofEfficiency, "bytes_per_token", "PCIe traffic for a token", mebibytes, costs},
}

// From what on there is work to divide by: what an idle GPU draws is no energy of tokens
// that other GPUs of the job make.
const (
	leastRequests = 1.0 / 60 // a second
	leastTokens   = 1        // a second
)

// What people care for in shares of time, and in what a piece of work costs.
var (
	points = effect{least: 0.15}
	costs  = effect{times: 1.5}
)

func watts(w float64) string     { return strconv.FormatFloat(w, 'f', 0, 64) + " W" }
func perSecond(b float64) string { return gibibytes(b) + "/s" }
func plain(x float64) string     { return significant(x, 3) }

// joules writes tokens a joule as what a token costs, which is what people compare.
func joules(tokens float64) string { return significant(1/tokens, 2) + " J" }

func mebibytes(b float64) string { return significant(b/(1<<20), 3) + " MiB" }

// per is a ratio, absent where less than least is there to divide by: the rest of a rate
// that dies away makes it as large as one likes.
func per(a, b, least float64) float64 { return orAbsent(a/b, b >= least) }

func sum(values ...float64) float64 { // of those that are there
	total, any := 0.0, false
	for _, x := range values {
		if !math.IsNaN(x) {
			total, any = total+x, true
		}
	}
	return orAbsent(total, any)
}

func orAbsent(x float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return x
}

// serving is what the servers on a GPU do, NaN where they do not tell.
type serving struct{ waiting, wait, done, tokens float64 }

func (d *Unusual) serving(s *collector.Snapshot, g *collector.GPU) serving {
	v := serving{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !covers(e, g) {
			continue
		}
		v.waiting = sum(v.waiting, e.Value(metric.RequestsWaiting))
		v.wait = maxOf(v.wait, e.Value(metric.QueueTimeMean))
		v.done = sum(v.done, e.Value(metric.ServiceRate))
		if t := d.tokens[e.Key()]; t != nil {
			v.tokens = sum(v.tokens, t.now)
		}
	}
	return v
}

func maxOf(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

// values returns the readings of a GPU now, NaN where there is none.
func (d *Unusual) values(s *collector.Snapshot, g *collector.GPU, st *unusualGPU) [unusualReadings]float64 {
	var v [unusualReadings]float64
	on := d.serving(s, g)
	busy, power := g.Value(metric.Utilization), g.Value(metric.PowerDraw)
	v[oddBusy], v[oddSM], v[oddTensor], v[oddPower] = busy, g.Value(metric.SMActivity), g.Value(metric.TensorActivity), power
	v[oddMemory] = g.Value(metric.MemoryUsed)
	v[oddPCIe] = sum(g.ValueAt(metric.PCIeThroughput, 0), g.ValueAt(metric.PCIeThroughput, 1))
	v[oddNVLink] = st.nvlink.next(g.SampledAt(metric.Slow), sum(g.ValueAt(metric.NVLinkBytes, 0), g.ValueAt(metric.NVLinkBytes, 1)))
	v[oddOwner] = math.NaN()
	if w := s.WorkloadOf(st.owner); w != nil {
		v[oddOwner] = sum(w.ValueAt(metric.WorkloadMemory, 0), w.ValueAt(metric.WorkloadMemory, 1))
		if math.IsNaN(on.tokens) {
			on.tokens = w.Value(metric.WorkloadTokenRate)
		}
	}
	v[oddQueue], v[oddTokens] = on.wait, on.tokens
	v[oddStarved] = orAbsent(indicator(on.waiting > 0 && busy == 0), !math.IsNaN(on.waiting) && !math.IsNaN(busy))
	v[oddPerRequest], v[oddPerToken] = per(busy, on.done, leastRequests), per(v[oddPCIe], on.tokens, leastTokens)
	v[oddPerJoule] = orAbsent(on.tokens/power, on.tokens >= leastTokens && busy >= idleUtilization && power > 0)
	return v
}

func powerLimit(g *collector.GPU) float64 { return g.Value(metric.PowerLimit) }
func memorySize(g *collector.GPU) float64 {
	return g.Value(metric.MemoryUsed) + g.Value(metric.MemoryFree)
}
