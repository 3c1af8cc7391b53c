package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// bursty is a node whose first GPU serves in bursts for a pod. A test changes what it
// does.
type bursty struct {
	*stage
	rng  *rand.Rand
	pod  string
	each func(s *collector.Snapshot, g *collector.GPU, e *collector.Endpoint, w *collector.Workload)
}

func newServer(t *testing.T) *bursty {
	v := &bursty{stage: newStage(t, DetectorConfig{}, 15*time.Second), rng: rand.New(rand.NewPCG(5, 8)), pod: "nlp/chat-7d8f9c6b54-x2x4z"}
	v.each = func(*collector.Snapshot, *collector.GPU, *collector.Endpoint, *collector.Workload) {}
	v.set = v.snapshot
	return v
}

func (v *bursty) snapshot(s *collector.Snapshot) {
	who := collector.Owner{Kind: "pod", ID: v.pod}
	s.Workloads = []collector.Workload{{Owner: who, Stage: "inference", Readings: collector.NewReadings(metric.Workload)}}
	w := &s.Workloads[0]
	w.Set(metric.WorkloadMemory, gib(30)+gib(0.01)*v.rng.Float64())
	g := &s.GPUs[0]
	g.Owners = []collector.Owner{who}
	busy := 0.0
	if v.rng.IntN(3) == 0 {
		busy = 0.4 * v.rng.Float64()
	}
	g.Set(metric.Utilization, busy)
	g.Set(metric.PowerDraw, 120+300*busy)
	g.Set(metric.MemoryUsed, gib(40)+gib(0.02)*v.rng.Float64())
	e := endpoint(s, g.UUID)
	e.Set(metric.RequestsWaiting, 0)
	v.each(s, g, e, w)
}

func gib(n float64) float64 { return n * (1 << 30) }

func runsAway(_ *collector.Snapshot, g *collector.GPU, _ *collector.Endpoint, w *collector.Workload) {
	g.Set(metric.Utilization, 0.99)
	g.Set(metric.PowerDraw, 420)
	g.Set(metric.MemoryUsed, gib(48))
	w.Set(metric.WorkloadMemory, gib(36))
}

func TestRunawayIsOneFindingOfAllItsReadings(t *testing.T) {
	v := newServer(t)
	v.run(30 * time.Hour)
	v.silent("a server that works as usual")
	v.each = runsAway
	began := v.now
	v.run(45 * time.Minute)
	f := v.fires(rules.IDUnusual)
	if f.Severity != rules.Ticket || f.Surprise <= 0 || f.Evidence.Confidence != Likely {
		t.Errorf("it is a %s of %g nats, %s; want a ticket that is likely", f.Severity, f.Surprise, f.Evidence.Confidence)
	}
	for _, want := range []string{"(usually ", "GPU memory 48 GiB (usually 40 GiB)", "emory of its holder 36 GiB (usually 30 GiB)", ", since 0"} {
		if !strings.Contains(f.Evidence.Seen, want) {
			t.Errorf("seen %q does not say %q", f.Evidence.Seen, want)
		}
	}
	if n := strings.Count(f.Evidence.Seen, "usually"); n != 3 {
		t.Errorf("seen %q: busy and power tell the same, want one of them", f.Evidence.Seen)
	}
	if age := f.Since.Sub(began).Abs(); age > 10*time.Minute {
		t.Errorf("since is %v away from when it began", age)
	}
}

// A stalled server is not busy, which it often is not. That requests wait meanwhile is
// what gives it away.
func TestStalledServerIsFoundByWhoWaits(t *testing.T) {
	v := newServer(t)
	v.run(30 * time.Hour)
	v.each = func(_ *collector.Snapshot, g *collector.GPU, e *collector.Endpoint, _ *collector.Workload) {
		g.Set(metric.Utilization, 0)
		g.Set(metric.MemoryUsed, gib(32))
		e.Set(metric.RequestsWaiting, 3)
	}
	v.run(time.Hour)
	if f := v.fires(rules.IDUnusual); !strings.Contains(strings.ToLower(f.Evidence.Seen), "time in which requests wait and the gpu does nothing 100 %") {
		t.Errorf("seen %q does not say that requests wait", f.Evidence.Seen)
	}
}

// One reading alone is never a finding, however odd it is.
func TestOneOddReadingIsNoFinding(t *testing.T) {
	v := newServer(t)
	v.run(30 * time.Hour)
	v.each = func(_ *collector.Snapshot, g *collector.GPU, _ *collector.Endpoint, _ *collector.Workload) {
		g.Set(metric.MemoryUsed, gib(79))
	}
	v.run(2 * time.Hour)
	v.silent("GPU memory alone")
}

// What is improbable need not matter: a steady server whose readings all move by little,
// and stay there, is no finding.
func TestSmallChangesAreNoFinding(t *testing.T) {
	v := newServer(t)
	by := 0.0
	v.each = func(_ *collector.Snapshot, g *collector.GPU, e *collector.Endpoint, w *collector.Workload) {
		g.Set(metric.Utilization, 0.41+0.001*v.rng.Float64()+0.1*by)
		g.Set(metric.PowerDraw, 300+v.rng.Float64()+90*by)
		g.Set(metric.PowerLimit, 700)
		g.Set(metric.MemoryUsed, gib(40)+gib(0.02)*v.rng.Float64()+gib(3)*by)
		g.Set(metric.MemoryFree, gib(80)-g.Value(metric.MemoryUsed))
		w.Set(metric.WorkloadMemory, gib(30)+gib(0.01)*v.rng.Float64()+gib(1.2)*by)
		e.Set(metric.QueueTimeMean, 0.06+0.001*v.rng.Float64()+0.3*by)
	}
	v.run(30 * time.Hour)
	by = 1
	v.run(3 * time.Hour)
	v.silent("readings that all moved by less than matters")
	by = 3
	v.run(time.Hour)
	v.fires(rules.IDUnusual)
}

func TestEffectsThatMatter(t *testing.T) {
	g := &collector.GPU{Readings: collector.NewReadings(metric.GPU)}
	unknown := &collector.GPU{Readings: collector.NewReadings(metric.GPU)}
	g.Set(metric.PowerLimit, 700)
	g.Set(metric.MemoryUsed, gib(40))
	g.Set(metric.MemoryFree, gib(40))
	for _, c := range []struct {
		reading    int
		usual, now float64
		on         *collector.GPU
		want       bool
	}{
		{oddBusy, 0.41, 0.42, g, false},
		{oddBusy, 0.41, 0.57, g, true},
		{oddBusy, 0.41, 0.25, g, true},
		{oddPower, 300, 400, g, false},
		{oddPower, 300, 410, g, true},
		{oddPower, 300, 350, unknown, true},
		{oddMemory, gib(40), gib(43.9), g, false},
		{oddMemory, gib(40), gib(44.1), g, true},
		{oddMemory, gib(2), gib(2.9), unknown, false},
		{oddMemory, gib(2), gib(3.1), unknown, true},
		{oddOwner, gib(100), gib(104), g, false},
		{oddOwner, gib(100), gib(106), g, true},
		{oddQueue, 0.06, 0.3, g, false},
		{oddQueue, 0.06, 0.6, g, true},
		{oddQueue, 4, 5, g, false},
		{oddTokens, 6000, 4100, g, false},
		{oddTokens, 6000, 3900, g, true},
		{oddPerRequest, 0.05, 0.074, g, false},
		{oddPerRequest, 0.05, 0.076, g, true},
		{oddBusy, math.NaN(), 0.9, g, false},
		{oddBusy, 0.1, math.NaN(), g, false},
	} {
		k := &unusualKinds[c.reading]
		if got := k.effect.matters(c.usual, c.now, c.on); got != c.want {
			t.Errorf("%s from %g to %g matters: %t, want %t", k.say, c.usual, c.now, got, c.want)
		}
	}
}

// What is usual of a pod is so of the one that replaces it, and a restart of the agent
// forgets nothing.
func TestReplacedPodAndRestartAreNoChange(t *testing.T) {
	v := newServer(t)
	v.run(30 * time.Hour)
	v.pod = "nlp/chat-7d8f9c6b54-zzzzz"
	v.run(3 * time.Hour)
	v.restart()
	v.run(3 * time.Hour)
	v.silent("a pod that was replaced, and a restart of the agent")
	v.each = runsAway
	v.run(45 * time.Minute)
	v.fires(rules.IDUnusual)
}

// Another job on the GPU is another habit, and a holder that loses most of its memory has
// started again.
func TestAnotherJobAndAWarmUpAreNoFinding(t *testing.T) {
	v := newServer(t)
	v.run(30 * time.Hour)
	v.pod, v.each = "vision/train-0", runsAway
	v.run(5 * time.Hour)
	v.pod = "nlp/chat-7d8f9c6b54-x2x4z"
	v.each = func(*collector.Snapshot, *collector.GPU, *collector.Endpoint, *collector.Workload) {}
	v.run(3 * time.Hour)
	up := v.now
	v.each = func(s *collector.Snapshot, g *collector.GPU, _ *collector.Endpoint, w *collector.Workload) {
		loaded := min(s.Time.Sub(up).Minutes()/30, 1)
		w.Set(metric.WorkloadMemory, gib(1+29*loaded))
		g.Set(metric.MemoryUsed, gib(1+39*loaded))
	}
	v.run(3 * time.Hour)
	v.silent("another job, and a server that starts again")
}

// In its first day a habit is young: what is odd is worth knowing, and nobody is sent.
func TestYoungHabitsAreInformation(t *testing.T) {
	v := newServer(t)
	v.run(8 * time.Hour)
	v.silent("the first hours")
	v.each = runsAway
	v.run(45 * time.Minute)
	f := v.fires(rules.IDUnusual)
	if f.Severity != rules.Info || f.Evidence.Confidence != Young || !strings.HasSuffix(f.Evidence.Why, "less than a day of history") {
		t.Errorf("after eight hours it is a %s, %s, as %q; want information that is young", f.Severity, f.Evidence.Confidence, f.Evidence.Why)
	}
}

func TestAFleetNeedsStrongerEvidence(t *testing.T) {
	v := newServer(t)
	v.e = NewEngine(Config{Node: "n1", Budget: Budget{GPUs: 1_000_000}}, Detectors(v.cfg))
	v.run(30 * time.Hour)
	v.each = runsAway
	v.run(45 * time.Minute)
	if f := v.finding(rules.IDUnusual, "gpu:GPU-0"); f == nil || f.State != Pending {
		t.Errorf("among a million GPUs it is %+v, want pending", f)
	}
}

func TestFuseCountsEachKindOnce(t *testing.T) {
	reading := func(k kind, nats float64) fusedReading { return fusedReading{kind: k, nats: nats, large: true} }
	for name, c := range map[string]struct {
		readings []fusedReading
		want     fused
	}{
		"nothing":                 {nil, fused{}},
		"one reading":             {[]fusedReading{reading(ofMemory, 9)}, fused{9, 0}},
		"two of one kind":         {[]fusedReading{reading(ofLoad, 3), reading(ofLoad, 4)}, fused{4, 0}},
		"two kinds":               {[]fusedReading{reading(ofLoad, 3), reading(ofOwner, 4)}, fused{7, 3}},
		"the strongest four only": {[]fusedReading{reading(ofLoad, 1), reading(ofMemory, 2), reading(ofWaiting, 3), reading(ofOwner, 4), reading(ofEfficiency, 5)}, fused{14, 4}},
	} {
		if got := fuse(c.readings); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	alone, pair := fused{50, 0.1}, fused{fusedLimit, 1}
	if alone.score() >= 1 || pair.score() != 1 || pair.surprise() <= 0 {
		t.Errorf("one kind scores %g, two at the threshold %g with surprise %g; want below 1, 1 and above 0", alone.score(), pair.score(), pair.surprise())
	}
}

// A habit without history begins from the oldest of its class, and from nobody else's.
func TestHabitBeginsFromItsPeers(t *testing.T) {
	chat, other := class{Kind: "pod", Name: "nlp/chat"}, class{Kind: "pod", Name: "nlp/other"}
	hs := newHabits()
	rng := rand.New(rand.NewPCG(1, 2))
	at := day
	grow := func(gpu string, c class, hours int) {
		h := hs.get(habitKey{gpuSubject(gpu), "power", c}, at)
		for i := range 60 * hours {
			h.add(at.Add(time.Duration(i)*time.Minute), 300+rng.Float64())
		}
	}
	grow("GPU-0", chat, 48)
	grow("GPU-1", chat, 3)
	grow("GPU-2", class{}, 48)
	at = at.Add(48 * time.Hour)
	for _, c := range []struct {
		key    habitKey
		judges bool
	}{
		{habitKey{gpuSubject("GPU-3"), "power", chat}, true},
		{habitKey{gpuSubject("GPU-3"), "busy", chat}, false},
		{habitKey{gpuSubject("GPU-3"), "power", other}, false},
		{habitKey{gpuSubject("GPU-3"), "power", class{}}, false},
	} {
		h := hs.get(c.key, at)
		for i := range 34 {
			h.add(at.Add(time.Duration(i)*time.Minute), 300+rng.Float64())
		}
		if h.judges() != c.judges || !h.young() {
			t.Errorf("%+v judges after half an hour: %t, young: %t; want %t and true", c.key, h.judges(), h.young(), c.judges)
		}
	}
}

// busyNode is a node of eight GPUs with a server on each.
func busyNode(at time.Time, n int) *collector.Snapshot {
	s := node(at, 8)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		who := collector.Owner{Kind: "pod", ID: fmt.Sprintf("nlp/chat-%d", i)}
		g.Owners = []collector.Owner{who}
		g.Set(metric.Utilization, float64((n*7+i)%11)/20)
		g.Set(metric.SMActivity, float64((n*3+i)%13)/20)
		g.Set(metric.MemoryUsed, gib(40))
		g.SetAt(metric.PCIeThroughput, 0, float64((n*5+i)%17)*1e8)
		w := collector.Workload{Owner: who, Readings: collector.NewReadings(metric.Workload)}
		w.Set(metric.WorkloadMemory, gib(30))
		s.Workloads = append(s.Workloads, w)
		e := collector.Endpoint{URL: fmt.Sprintf("http://chat-%d/metrics", i), GPUs: []string{g.UUID}, Readings: collector.NewReadings(metric.Endpoint)}
		e.Stamp(metric.Fast, at)
		e.Set(metric.RequestsWaiting, float64(n%3))
		e.Set(metric.GeneratedTokens, float64(n*100))
		e.Set(metric.ServiceRate, 2)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// unusualNode is a detector that has seen two hours of a busy node, and what follows.
func unusualNode() (*Unusual, func() *collector.Snapshot) {
	d := NewUnusual()
	now, n := day, 0
	snapshots := make([]*collector.Snapshot, 240)
	for i := range snapshots {
		snapshots[i] = busyNode(day, i)
	}
	next := func() *collector.Snapshot {
		now, n = now.Add(time.Second), n+1
		s := snapshots[n%len(snapshots)]
		s.Time = now
		for i := range s.GPUs {
			s.GPUs[i].Stamp(metric.Fast, now)
			s.Endpoints[i].Stamp(metric.Fast, now)
			s.Endpoints[i].Set(metric.GeneratedTokens, float64(100*n))
		}
		return s
	}
	for range 7200 {
		d.Observe(next(), func(Observation) {})
	}
	return d, next
}

func TestUnusualCostsNoAllocation(t *testing.T) {
	d, next := unusualNode()
	nobody := func(Observation) {}
	if got := testing.AllocsPerRun(2000, func() { d.Observe(next(), nobody) }); got > 0 {
		t.Errorf("a snapshot of eight GPUs costs %g allocations, want none", got)
	}
}

func BenchmarkUnusual(b *testing.B) {
	d, next := unusualNode()
	nobody := func(Observation) {}
	b.ReportAllocs()
	for b.Loop() {
		d.Observe(next(), nobody)
	}
}

// BenchmarkEngineOfEight is an engine with all detectors over eight busy GPUs.
func BenchmarkEngineOfEight(b *testing.B) {
	_, next := unusualNode()
	e := NewEngine(Config{Node: "n1"}, Detectors(DetectorConfig{}))
	for range 4000 {
		e.Observe(next())
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Observe(next())
	}
}

// A fatal Xid on one GPU stops the whole job: that its other GPUs stand still is part of
// that, also when the finding of the Xid itself is over long before the job is restarted.
func TestFaultOfOneGPUExplainsWhatIsUnusualOnTheOthers(t *testing.T) {
	for _, c := range []struct {
		what  string
		cause func(s *collector.Snapshot)
		tells bool
	}{
		{"a fatal Xid on another GPU of the job", func(s *collector.Snapshot) {
			s.Events = []collector.Event{{Kind: collector.XidEvent, UUID: s.GPUs[1].UUID, Code: 79, Time: s.Time}}
		}, false},
		{"nothing that anybody knows of", func(*collector.Snapshot) {}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			v := newServer(t)
			stopped := false
			v.each = func(s *collector.Snapshot, g *collector.GPU, _ *collector.Endpoint, w *collector.Workload) {
				other := &s.GPUs[1]
				other.Owners = g.Owners
				if stopped {
					g.Set(metric.Utilization, 1)
					g.Set(metric.PowerDraw, 600)
					g.Set(metric.MemoryUsed, gib(10))
					w.Set(metric.WorkloadMemory, gib(20))
				}
			}
			v.run(30 * time.Hour)
			fault := v.each
			v.each = func(s *collector.Snapshot, g *collector.GPU, e *collector.Endpoint, w *collector.Workload) {
				fault(s, g, e, w)
				c.cause(s)
			}
			stopped = true
			v.run(v.step)
			v.each = fault
			v.run(3 * time.Hour)
			told := 0
			for _, in := range v.told {
				for _, f := range in.Members {
					if f.Rule == rules.IDUnusual {
						told++
					}
				}
			}
			if told > 0 != c.tells {
				t.Errorf("after %s the other GPU of the job is told of as unusual %d times: %+v", c.what, told, v.told)
			}
		})
	}
}

// What an idle GPU draws is no energy of the tokens that its job makes elsewhere, and the
// rest of a rate that dies away is nothing to divide by.
func TestRatiosOfIdleGPUsAreAbsent(t *testing.T) {
	for _, c := range []struct {
		what                       string
		busy, tokens, done, pcie   float64
		perRequest, joule, traffic bool
	}{
		{"a busy GPU", 0.8, 900, 3, 1e9, true, true, true},
		{"a GPU that idles in a job that is at work", 0, 1.1e6, 3, 1e9, true, false, true},
		{"a server that has nearly nothing to do", 0.8, 0.01, 0.001, 1e9, false, false, false},
		{"a server that has nothing to do", 0, 0, 0, 0, false, false, false},
	} {
		s := node(day, 1)
		g := &s.GPUs[0]
		who := collector.Owner{Kind: "pod", ID: "nlp/chat-0"}
		g.Owners = []collector.Owner{who}
		g.Set(metric.Utilization, c.busy)
		g.Set(metric.PowerDraw, 118)
		g.SetAt(metric.PCIeThroughput, 0, c.pcie)
		endpoint(s, g.UUID).Set(metric.ServiceRate, c.done)
		s.Workloads = []collector.Workload{{Owner: who, Readings: collector.NewReadings(metric.Workload)}}
		s.Workloads[0].Set(metric.WorkloadTokenRate, c.tokens)
		v := NewUnusual().values(s, g, &unusualGPU{owner: who})
		for _, r := range []struct {
			reading int
			want    bool
		}{{oddPerRequest, c.perRequest}, {oddPerJoule, c.joule}, {oddPerToken, c.traffic}} {
			if there := !math.IsNaN(v[r.reading]); there != r.want {
				t.Errorf("of %s %s is told: %t (%g), want %t", c.what, unusualKinds[r.reading].say, there, v[r.reading], r.want)
			}
		}
	}
	if got := unusualKinds[oddPerJoule].unit(0.4); got != "2.5 J" {
		t.Errorf("0.4 tokens a joule are read as %s for a token", got)
	}
}
