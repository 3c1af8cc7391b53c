package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// healthyNode is a synthetic node of eight GPUs on which jobs come and go, minute by minute, with
// nothing wrong: each GPU has a place in the air of its own and warms the one behind it, the room
// has its days, and jobs have noise that lasts, checkpoints and ranks with uneven work.
type healthyNode struct {
	r           *rand.Rand
	now         time.Time
	place, heat [8]float64
	wander      float64
	jobs        []*healthyJob
	on          [8]*healthyJob
	n           int
}

type healthyJob struct {
	who                 collector.Owner
	gpus                []int
	began, until        time.Time
	watts, memory, step float64
	every, pause        float64 // hours between checkpoints, and of each
	uneven, unrest      [8]float64
	train               bool
	noise, common, rate float64
}

func newHealthyNode(seed uint64) *healthyNode {
	h := &healthyNode{r: rand.New(rand.NewPCG(seed, 99)), now: day}
	for i := range h.place {
		h.place[i] = 3 * h.r.NormFloat64()
	}
	return h
}

// next returns the next minute.
func (h *healthyNode) next() *collector.Snapshot {
	h.now = h.now.Add(time.Minute)
	h.schedule()
	s := node(h.now, 8)
	for i := range s.GPUs {
		if h.on[i] == nil {
			s.GPUs[i].Set(metric.PowerDraw, 75)
		}
	}
	for _, j := range h.jobs {
		h.run(s, j)
	}
	h.warm(s)
	return s
}

func (h *healthyNode) schedule() {
	kept := h.jobs[:0]
	for _, j := range h.jobs {
		if h.now.Before(j.until) {
			kept = append(kept, j)
			continue
		}
		for _, g := range j.gpus {
			h.on[g] = nil
		}
	}
	h.jobs = kept
	var free []int
	for i, j := range h.on {
		if j == nil {
			free = append(free, i)
		}
	}
	r := h.r
	k := []int{1, 2, 4, 8}[r.IntN(4)]
	if k > len(free) || r.Float64() > 0.02 {
		return
	}
	h.n++
	j := &healthyJob{who: collector.Owner{Kind: "job", ID: fmt.Sprint("slurm/", h.n)}, gpus: free[:k], began: h.now,
		until: h.now.Add(time.Duration((0.5 + 30*r.ExpFloat64()) * float64(time.Hour))),
		watts: 200 + 450*r.Float64(), memory: 10 + 60*r.Float64(), step: 0.3 + 2*r.Float64(),
		every: 0.5 + 2*r.Float64(), pause: 0.02 + 0.08*r.Float64(), train: r.Float64() < 0.7, noise: 0.003 + 0.03*r.Float64()}
	for i := range j.uneven {
		j.uneven[i] = 1 - 0.15*r.Float64()*float64(r.IntN(2))
	}
	j.rate = 1 / j.step
	for _, g := range j.gpus {
		h.on[g] = j
	}
	h.jobs = append(h.jobs, j)
}

// run is a minute of a job: a training, or a server with the course of the day.
func (h *healthyNode) run(s *collector.Snapshot, j *healthyJob) {
	hours := hoursSince(day, h.now)
	pausing := math.Mod(hours, j.every) < j.pause
	j.common = 0.8*j.common + 0.6*j.noise*h.r.NormFloat64()
	for k, i := range j.gpus {
		j.unrest[k] = 0.7*j.unrest[k] + 0.7*j.noise*h.r.NormFloat64()
		work := j.uneven[k] * (1 + j.unrest[k] + j.common)
		watts := 100 + (j.watts-100)*work
		switch {
		case !j.train:
			watts = 120 + (j.watts-120)*(0.5+0.4*math.Sin(hours*math.Pi/12))*(1+3*j.unrest[k])
		case pausing && k == 0:
			watts = 110
		case pausing:
			watts = 200
		}
		g := &s.GPUs[i]
		g.Set(metric.PowerDraw, watts)
		g.Set(metric.SMActivity, min(1, 0.8*work))
		g.Set(metric.TensorActivity, 0.5*work)
		g.SetAt(metric.Clock, smClock, 1.98e9*(1-0.1*max(0, (watts-500)/200)))
		g.Set(metric.MemoryUsed, j.memory*oneGiB)
		loaded := min(1, 0.05+4*h.now.Sub(j.began).Hours())
		process(s, i, j.who, 1000*h.n+k, oneGiB*(j.memory*loaded+0.02*h.r.Float64()))
	}
	if !j.train {
		return
	}
	rate := 1 / (j.step * (1 - j.common))
	if pausing {
		rate = 0
	}
	j.rate += (rate - j.rate) / 5
	l := workload(s, j.who)
	l.Set(metric.WorkloadSampleRate, 64*j.rate)
	l.SetAt(metric.WorkloadMemory, 0, oneGiB*(30+h.r.Float64()))
}

// warm lets heat follow power.
func (h *healthyNode) warm(s *collector.Snapshot) {
	h.wander = 0.999*h.wander + 0.05*h.r.NormFloat64()
	air := 25 + 2.5*math.Sin(hoursSince(day, h.now)*math.Pi/12) + h.wander
	for i := range s.GPUs {
		g := &s.GPUs[i]
		goal := air + 0.06*g.Value(metric.PowerDraw) + h.place[i]
		if i >= 4 { // behind another one
			goal += 0.01 * s.GPUs[i-4].Value(metric.PowerDraw)
		}
		h.heat[i] += 0.5 * (goal - h.heat[i])
		g.Set(metric.Temperature, math.Round(h.heat[i]))
		g.Set(metric.MemoryTemperature, math.Round(h.heat[i]+8))
		g.SetAt(metric.TemperatureLimit, slowdownLimit, 95)
	}
}

// TestTrendsAreSilentOnHealthyNodes: in 16 GPU-weeks no trend is a ticket.
func TestTrendsAreSilentOnHealthyNodes(t *testing.T) {
	for seed := range uint64(2) {
		var ds []Detector
		for _, d := range trendDetectors() {
			ds = append(ds, d)
		}
		e, h := NewEngine(Config{Node: "n1"}, ds), newHealthyNode(seed)
		for range 7 * 24 * 60 {
			for _, in := range e.Observe(h.next()) {
				if in.State == Firing && in.Severity >= rules.Ticket {
					f := in.Members[0]
					t.Errorf("seed %d, %.1f h in: a ticket of %s of %s: %s", seed, hoursSince(day, h.now), in.Rule, f.Subject, f.Evidence.Seen)
				}
			}
		}
		if h.n < 10 {
			t.Errorf("seed %d: only %d jobs ran in the week", seed, h.n)
		}
	}
}
