// Package sim is the one model of simulated GPU nodes. It feeds the demo (as a
// collector.Source), the fake NVML library (through sim/simfake), tests and
// recordings with the same physics and the same faults, and says of everything
// that it is simulated.
//
// A node is a function of its Config and of time only: the model advances second
// by second from its beginning with seeded generators, so that it does not
// matter how often or when somebody looks.
package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// SourceName is the simulator's name among the sources of samples.
const SourceName = "sim"

const (
	tick = time.Second
	// settle is how long the node lives before the scenario begins, so that
	// temperatures and queues are those of work that has gone on for a while.
	settle = 5 * time.Minute
)

// Config says which node is simulated. Nodes of one fleet share the seed and
// differ in Node.
type Config struct {
	Seed       uint64
	Start      time.Time // when the scenario goes live; the model begins Scenario.Past before
	Scenario   Scenario
	GPUs       int                         // default 8
	Node       string                      // default demo-gpu-01
	Histograms bool                        // distributions of the fast signals, too
	Tiers      [metric.Tiers]time.Duration // default 1 s, 15 s, 15 s, 60 s; multiples of a second
}

// Sim is a simulated node. It is not safe for concurrent use.
type Sim struct {
	cfg       Config
	begin     time.Time
	boot      time.Time
	now       time.Time
	lastPID   int
	gpus      []*gpu
	workloads []*workload
	host      host
	versions  []collector.Version
	timeline  []*happening
	asOf      ownership
	events    []collector.Event // since the last part

	moves []collector.Workload // as of the last time that the tier was sampled
	ports []collector.Interface
}

// New returns the node as it is when its scenario begins. It fails if the
// scenario does not fit the node.
func New(cfg Config) (*Sim, error) {
	if cfg.Start.IsZero() {
		return nil, errors.New("simulate a node: Config.Start is not set")
	}
	if cfg.GPUs == 0 {
		cfg.GPUs = nodeSize
	}
	if cfg.Node == "" {
		cfg.Node = "demo-gpu-01"
	}
	if cfg.Tiers == ([metric.Tiers]time.Duration{}) {
		cfg.Tiers = [metric.Tiers]time.Duration{time.Second, 15 * time.Second, 15 * time.Second, time.Minute}
	}
	for t, d := range cfg.Tiers {
		if d < tick || d%tick != 0 {
			return nil, fmt.Errorf("simulate a node: tier %s is sampled every %v, which is no multiple of %v", metric.Tier(t), d, tick)
		}
	}
	s := &Sim{cfg: cfg, begin: cfg.Start.Add(-cfg.Scenario.Past).Truncate(tick), lastPID: 2100,
		versions: firstVersions()}
	s.now = s.begin.Add(-settle)
	s.boot = s.begin.Add(-9*24*time.Hour - 1234*time.Second)
	if err := s.populate(); err != nil {
		return nil, err
	}
	for s.now.Before(s.begin) {
		s.live()
		s.now = s.now.Add(tick)
	}
	s.live()
	for _, g := range s.gpus {
		s.observeGPU(g)
	}
	s.observeNode()
	s.observeMovement()
	return s, nil
}

// populate puts GPUs and workloads on the node and resolves the timeline.
func (s *Sim) populate() error {
	places, err := s.cfg.Scenario.layout(s.cfg.GPUs)
	if err != nil {
		return err
	}
	for i := range s.cfg.GPUs {
		s.gpus = append(s.gpus, newGPU(s.cfg.Seed, s.cfg.Node, i))
	}
	s.host = newHost(newRand(s.cfg.Seed, s.cfg.Node+"/host"), s.cfg.GPUs, s.begin.Sub(s.boot))
	for _, spec := range s.cfg.Scenario.Workloads {
		w := &workload{Workload: spec, software: softwareOf(spec.Kind), rng: newRand(s.cfg.Seed, s.cfg.Node+"/"+spec.Name)}
		for _, i := range places[spec.Name] {
			w.gpus = append(w.gpus, s.gpus[i])
			if spec.Kind != Batch {
				s.gpus[i].owner = spec.Owner
			}
		}
		if spec.Kind == Inference {
			for i, server := range spec.Servers {
				name := s.cfg.Node + "/" + spec.Name + "/queue"
				if i > 0 {
					name += "/" + server.URL
				}
				w.servers = append(w.servers, newServer(server, newRand(s.cfg.Seed, name)))
			}
		}
		if spec.Kind != Batch {
			w.start(s, s.now.Add(-2*time.Minute))
		}
		s.workloads = append(s.workloads, w)
	}
	if err := s.share(places); err != nil {
		return err
	}
	for i := range s.cfg.Scenario.Timeline {
		e := &s.cfg.Scenario.Timeline[i]
		t, err := s.resolve(e, places)
		if err != nil {
			return err
		}
		s.timeline = append(s.timeline, &happening{Entry: e, target: t})
	}
	return nil
}

// live lives through the second that ends now.
func (s *Sim) live() {
	for _, h := range s.timeline {
		h.check(s, s.now.Sub(s.cfg.Start))
	}
	var asked hostWork
	for _, w := range s.workloads {
		w.live(s)
		ask := w.ask(s.now)
		w.move(ask)
		asked.cores += ask.cores
		asked.busiest = math.Max(asked.busiest, ask.busiest)
		asked.read += ask.read
		asked.write += ask.write
		asked.rx += ask.rx
		asked.tx += ask.tx
	}
	for _, g := range s.gpus {
		if len(g.procs) == 0 {
			g.work = work{}
		}
		throttled := g.reasons[reasonSoftThermal]
		g.step()
		if g.reasons[reasonSoftThermal] && !throttled {
			s.tell(collector.Event{Kind: collector.ClocksEvent, UUID: g.uuid, Text: metric.ClockReason.Values[reasonSoftThermal]})
		}
	}
	s.host.step(asked, s.gpus)
	s.observe()
}

// Begin returns when the model begins: Scenario.Past before it goes live.
func (s *Sim) Begin() time.Time { return s.begin }

// Part advances the node to the time and returns what is seen of it then. Time
// does not go back: for an earlier one it is the node as it last was. Events are
// those since the part before.
func (s *Sim) Part(t time.Time) *collector.Part {
	s.advance(t)
	return s.part()
}

func (s *Sim) advance(t time.Time) {
	for next := s.now.Add(tick); !next.After(t); next = next.Add(tick) {
		s.now = next
		s.live()
	}
}

// Prelude plays the scenario's past up to its start, a part for each step.
func (s *Sim) Prelude(step time.Duration) iter.Seq[*collector.Part] {
	return func(yield func(*collector.Part) bool) {
		for t := s.begin; !t.After(s.cfg.Start); t = t.Add(step) {
			if !yield(s.Part(t)) {
				return
			}
		}
	}
}

// Source returns the node as a source of samples: its time is the wall clock.
func (s *Sim) Source() collector.Source { return source{s} }

type source struct{ sim *Sim }

func (source) Name() string { return SourceName }

// Sample catches up in pieces: the machine may have slept for days.
func (s source) Sample(ctx context.Context) (*collector.Part, error) {
	const piece = 10 * time.Minute
	for now := time.Now(); ; {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("simulate the node up to %v: %w", now, err)
		}
		if !s.sim.now.Add(piece).Before(now) {
			return s.sim.Part(now), nil
		}
		s.sim.advance(s.sim.now.Add(piece))
	}
}

func (s *Sim) tell(e collector.Event) {
	e.Time = s.now
	s.events = append(s.events, e)
}

// newRand returns a generator of its own for each thing, so that one more GPU
// does not change the others.
func newRand(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// noise returns a normal number that is not negative.
func noise(r *rand.Rand, mean, sigma float64) float64 {
	return math.Max(0, mean+sigma*r.NormFloat64())
}

// poisson returns how many events of the given mean number there are.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return math.Round(noise(r, mean, math.Sqrt(mean)))
	}
	n := 0.0
	for p := r.Float64(); p > math.Exp(-mean); p *= r.Float64() {
		n++
	}
	return n
}
