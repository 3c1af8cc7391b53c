package synth

import (
	"math"
	"math/rand/v2"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
)

const (
	slotsPerGPU = 32.0 // requests that a server works on at once
	serviceTime = 3.6  // seconds of a request
	promptSize  = 620.0
	answerSize  = 160.0   // tokens
	prefillTime = 0.12    // seconds
	waitShape   = 3.4     // of the log-logistic queue time
	emptyWait   = 0.05    // seconds, when nobody waits
	patience    = 20000.0 // waiting requests at which no more come
)

// server is an inference server: a queue before so many slots.
type server struct {
	url, model        string
	busy              float64 // arrivals at a usual afternoon, as a share of the capacity
	flat              bool    // without a daily course
	bursts, busyness  drift
	running, waiting  float64
	leaked            float64 // share of the KV cache
	ended, cancelled  float64
	failed            float64
	prompt, generated float64
	preempted         float64
	rate              float64 // requests a second that left the queue
	p95               float64
	hist              [4]latency
	window            demand.Window
	work              demand.Work
	ready             bool
}

// latencies are the rows of the histograms that a server counts, by name.
var latencies = [4]*metric.Def{metric.InterTokenLatency, metric.QueueTime, metric.RequestDuration, metric.TimeToFirstToken}

// latency is a histogram of seconds, cumulative.
type latency struct {
	bounds, shaped []float64 // shaped: to the power of waitShape
	counts         []float64
	sum            float64
}

func newLatency(bounds []float64) latency {
	h := latency{bounds: bounds, counts: make([]float64, len(bounds)+1)}
	for _, b := range bounds {
		h.shaped = append(h.shaped, math.Pow(b, waitShape))
	}
	return h
}

// meanWait is the mean over the median of a log-logistic time.
var meanWait = math.Pi / waitShape / math.Sin(math.Pi/waitShape)

// observe adds n log-logistic times with the given median.
func (h *latency) observe(median, n float64) {
	if n == 0 {
		return
	}
	m := math.Pow(median, waitShape)
	for i, b := range h.shaped {
		h.counts[i] += n * b / (b + m)
	}
	h.counts[len(h.bounds)] += n
	h.sum += n * median * meanWait
}

func newServer(url, model string, busy float64) *server {
	s := &server{url: url, model: model, busy: busy, bursts: drift{spread: 0.12, back: 900}, busyness: drift{spread: 0.1, back: 6 * 3600}}
	s.open()
	return s
}

var secondsBounds = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60}

func (s *server) open() {
	s.running, s.waiting, s.leaked, s.ready = 0, 0, 0, false
	s.ended, s.cancelled, s.failed, s.prompt, s.generated, s.preempted = 0, 0, 0, 0, 0, 0
	for i, bounds := range [4][]float64{{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5}, secondsBounds, secondsBounds, {0.02, 0.06, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20}} {
		s.hist[i] = newLatency(bounds)
	}
	s.window.Forget()
	s.work = demand.Work{}
}

// course is the share of the usual load at that time of day and week (UTC).
func course(now time.Time) float64 {
	hour := float64(now.Hour()) + float64(now.Minute())/60
	c := 1 - 0.45*math.Cos(2*math.Pi*(hour-2)/24)
	if d := now.Weekday(); d == time.Saturday || d == time.Sunday {
		c *= 0.7
	}
	return c
}

// serve is a step of a server.
func (t *tenant) serve(n *Node, dt float64) {
	s, k := t.server, float64(len(t.gpus))
	if n.now.Sub(t.since) < 3*time.Minute {
		for _, g := range t.gpus {
			g.work = work{duty: 0.03, full: 0.3, dram: 0.02, power: 0.2, rx: noise(t.rng, 8e9, 8e8), tx: 1e7}
		}
		t.ask = demandOnHost{cores: 2, busiest: 0.6, read: noise(t.rng, 6e8*k, 2e7)}
		return
	}
	s.ready = true
	all := slotsPerGPU * k
	slots := all * scale(t.woes.narrow)
	capacity := slots / (serviceTime * scale(t.woes.lengths))
	rate := s.busy * all / serviceTime * math.Exp(s.bursts.step(t.rng, dt)+s.busyness.step(t.rng, dt)) * scale(t.woes.load)
	if !s.flat {
		rate *= course(n.now)
	}
	if t.woes.growth > 0 {
		rate += t.woes.growth * capacity * n.now.Sub(n.cfg.Trial.From).Hours()
	}
	rate = math.Max(rate, t.woes.over*capacity)
	if t.woes.polls || t.woes.idle {
		rate = 0
	}
	if t.woes.silent {
		capacity = 0
	}
	s.queue(t, rate, capacity, slots, dt)
	s.page(n.now, t)
	t.workOfServer(all, k)
}

func scale(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

// queue lives through dt seconds of arrivals. Between steps it is a fluid with
// Sakasegawa's waiting time for many servers; the backlog is what did not fit.
func (s *server) queue(t *tenant, rate, capacity, slots, dt float64) {
	rate *= math.Max(0, 1-s.waiting/patience)
	arrivals := poisson(t.rng, rate*dt)
	work := s.waiting + arrivals
	served := math.Min(work, math.Floor(capacity*dt))
	before := s.waiting
	s.waiting = work - served
	rho := 0.0
	if capacity > 0 {
		rho = clamp(served/(capacity*dt), 0, 0.995)
	}
	service := slots / math.Max(capacity, 1e-9)
	wait := emptyWait + math.Pow(rho, math.Sqrt(2*(slots+1))-1)/(slots*(1-rho))*service
	if capacity > 0 {
		wait += (before + s.waiting) / 2 / capacity
	}
	s.running = math.Round(math.Min(slots, rho*slots+math.Sqrt(rho*slots)*0.3*t.rng.NormFloat64()))
	if s.waiting > 0 {
		s.running = slots
	}
	s.running = math.Max(0, s.running)
	s.rate = served / dt
	s.leaked = math.Min(0.9, s.leaked+t.woes.leakKV*dt)
	s.p95 = math.NaN()
	if served > 0 {
		s.p95 = wait * math.Pow(19, 1/waitShape)
	}
	s.count(t, served, wait, service, rho)
}

// count adds what the server's page counts.
func (s *server) count(t *tenant, served, wait, service, rho float64) {
	s.ended += served
	s.cancelled += poisson(t.rng, served/40)
	s.failed += poisson(t.rng, served*(1.0/2000+t.woes.errors))
	s.prompt += math.Round(promptSize * scale(t.woes.prompts) * served * (1 + 0.02*t.rng.NormFloat64()))
	s.generated += math.Round(answerSize * scale(t.woes.lengths) * served * (1 + 0.02*t.rng.NormFloat64()))
	if s.waiting > 0 {
		s.preempted += math.Floor(served / 30)
	}
	between := service / (answerSize * scale(t.woes.lengths)) * (0.8 + 0.4*rho)
	s.hist[0].observe(between, answerSize*scale(t.woes.lengths)*served)
	s.hist[1].observe(wait, served)
	s.hist[2].observe(wait+service, served)
	s.hist[3].observe(wait+prefillTime*scale(t.woes.prompts), served)
}

func (s *server) kv(slots float64) float64 {
	return math.Min(0.99, 0.04+s.leaked+0.93*s.running/slots)
}

// page lets the collector read the server's page.
func (s *server) page(now time.Time, t *tenant) {
	slots := slotsPerGPU * float64(len(t.gpus))
	sum := func(i int) demand.Sum {
		return demand.Sum{Seconds: s.hist[i].sum, Count: s.hist[i].counts[len(s.hist[i].bounds)]}
	}
	s.window.Add(demand.Page{At: now, Running: s.running, Waiting: s.waiting, KV: s.kv(slots), Ended: s.ended, Generated: s.generated, Queue: sum(1), Duration: sum(2)})
	o := demand.Output{At: now, Tokens: s.generated, Drawn: now}
	for _, g := range t.gpus {
		o.Joules += g.energy
	}
	s.work.Add(o)
}

// workOfServer is what the requests make of the GPUs.
func (t *tenant) workOfServer(slots, k float64) {
	s, fill := t.server, t.server.running/slots
	for _, g := range t.gpus {
		w := work{full: 0.5 + 0.3*fill, tensor: 0.1 + 0.2*fill, power: 0.5 + 0.2*fill, rx: noise(t.rng, 4e7+4e7*fill, 4e6), tx: noise(t.rng, 3e7+3e7*fill, 3e6),
			link: 0.05 * g.board.linkSpeed * fill * bit(k > 1), wobble: 0.004 + 0.02*(1-fill)}
		if s.running > 0 {
			w.duty = clamp(noise(t.rng, 0.35+0.64*fill, 0.006), 0.1, 1)
		}
		if c := t.woes.cost; c > 0 {
			w.duty, w.power, w.tensor = math.Min(1, c*w.duty), math.Min(1, c*w.power), math.Min(0.6, c*w.tensor)
		}
		w.dram = 0.72 * w.duty
		if t.woes.silent { // it works on requests that never end
			w = work{duty: 0.98, full: 0.8, tensor: 0.3, dram: 0.6, power: 0.7, rx: 1e6, tx: 1e6, wobble: 0.005}
		}
		if t.woes.polls { // tensor-parallel ranks wait for work by spinning
			w = work{duty: 1, full: 0.12, power: 0.015, dram: 0.001}
		}
		g.work = w
	}
	t.ask = demandOnHost{cores: noise(t.rng, 2+3*k*fill, 0.2), busiest: clamp(noise(t.rng, 0.45+0.2*fill, 0.03), 0, 0.88),
		rx: 4e3 * scale(t.woes.prompts) * s.rate, tx: 900 * scale(t.woes.lengths) * s.rate}
}

// endpoint tells of the server as a collector of its page does.
func (t *tenant) endpoint(now time.Time) (collector.Endpoint, collector.Target) {
	s, slots := t.server, slotsPerGPU*float64(len(t.gpus))
	e := collector.Endpoint{URL: s.url, Engine: "vllm", Model: s.model, Readings: collector.NewReadings(metric.Endpoint)}
	target := collector.Target{URL: s.url, Readings: collector.NewReadings(metric.Target)}
	for _, g := range t.gpus {
		e.GPUs = append(e.GPUs, g.uuid)
	}
	e.Stamp(metric.Fast, now)
	target.Stamp(metric.Fast, now)
	e.Set(metric.EndpointUp, bit(s.ready))
	target.Set(metric.TargetUp, bit(s.ready))
	target.Set(metric.TargetDuration, 0.004)
	if !s.ready {
		target.SetAt(metric.TargetFailing, metric.TargetReasons.Index("unreachable"), 1)
		return e, target
	}
	r := e.Readings
	r.Set(metric.RequestsRunning, s.running)
	r.Set(metric.RequestsWaiting, s.waiting)
	r.Set(metric.QueueTimeP95, s.p95)
	r.Set(metric.KVCacheUsage, s.kv(slots))
	r.SetAt(metric.Requests, metric.Outcomes.Index("success"), math.Max(0, s.ended-s.cancelled-s.failed))
	r.SetAt(metric.Requests, metric.Outcomes.Index("cancelled"), s.cancelled)
	r.SetAt(metric.Requests, metric.Outcomes.Index("error"), s.failed)
	r.Set(metric.PromptTokens, s.prompt)
	r.Set(metric.GeneratedTokens, s.generated)
	r.Set(metric.Preemptions, s.preempted)
	s.window.Set(r)
	e.Histograms = s.histograms()
	target.Set(metric.TargetAge, 0)
	target.Set(metric.TargetBytes, 27<<10)
	s.work.Set(target.Readings, len(t.gpus))
	return e, target
}

func (s *server) histograms() []collector.Histogram {
	counts := make([]uint64, 0, 64)
	out := make([]collector.Histogram, 0, len(s.hist))
	for i, row := range latencies {
		h, from := &s.hist[i], len(counts)
		for _, c := range h.counts {
			counts = append(counts, uint64(math.Round(c)))
		}
		out = append(out, collector.Histogram{Row: row, Bounds: h.bounds, Counts: counts[from:len(counts):len(counts)], Sum: h.sum})
	}
	return out
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
