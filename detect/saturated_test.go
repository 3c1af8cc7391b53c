package detect

import (
	"math"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// load is what a test makes of GPU 0 and of the endpoint on it.
type load struct {
	util, cpu, core             float64
	waiting, running, queue, kv float64
	tokens                      float64 // per second
	endpoints                   bool
	gpus                        []string
	owner                       collector.Owner
}

var saturatedLoad = load{util: 0.98, cpu: 0.11, core: 0.4, waiting: 38, running: 64, queue: 4.1, kv: 0.97, tokens: 900,
	endpoints: true, gpus: []string{"GPU-0"}}

func (l load) apply(s *collector.Snapshot) {
	g := &s.GPUs[0]
	g.Set(metric.Utilization, l.util)
	s.Node.Set(metric.CPUBusy, l.cpu)
	s.Node.Set(metric.CPUBusiest, l.core)
	if l.owner.Kind != "" {
		g.Owners = []collector.Owner{l.owner}
	}
	if !l.endpoints {
		return
	}
	e := endpoint(s, l.gpus...)
	e.Set(metric.RequestsWaiting, l.waiting)
	e.Set(metric.RequestsRunning, l.running)
	e.Set(metric.QueueTimeP95, l.queue)
	e.Set(metric.KVCacheUsage, l.kv)
	e.Set(metric.GeneratedTokens, math.Floor(1e6+l.tokens*s.Time.Sub(day).Seconds()))
}

var withSLO = DetectorConfig{Saturated: SaturatedConfig{QueueTimeSLO: time.Second}}

func TestSaturatedGPUWithDemand(t *testing.T) {
	st := newStage(t, withSLO, time.Second)
	st.set = saturatedLoad.apply
	st.run(4*time.Minute + 25*time.Second)
	st.silent("before it lasted five minutes")
	st.run(2 * time.Minute)
	f := st.fires(rules.IDSaturatedGPU)
	if f.Cause != "vram_bound" || f.Severity != rules.Ticket || f.Owner.String() != "unattributed" || f.Evidence.Confidence != Certain {
		t.Errorf("finding %+v, want a ticket for vram_bound, certain, unattributed", f)
	}
	if f.Evidence.Observed != 4.1 || *f.Evidence.Want != 1 || f.Score < 4 || f.Score > 4.2 {
		t.Errorf("observed %v of %v, score %v; want 4.1 s of 1 s and 4.1", f.Evidence.Observed, *f.Evidence.Want, f.Score)
	}
	st.run(3 * time.Minute)
	st.says(st.fires(rules.IDSaturatedGPU),
		"chat-70b: GPU 98 % busy for 9 min, CPU 11 %, 38 requests waiting, queue-time p95 4.1 s, KV cache 97 %",
		"queue-time p95 below its SLO of 1 s")
	if st.finding(rules.IDSaturatedGPU, "gpu:GPU-1") != nil {
		t.Error("the other GPU, which is half idle, has a finding")
	}

	calm := saturatedLoad
	calm.waiting, calm.queue, calm.util = 0, 0.2, 0.6
	st.set = calm.apply
	st.run(4 * time.Minute)
	st.fires(rules.IDSaturatedGPU)
	st.run(3 * time.Minute)
	if f := st.finding(rules.IDSaturatedGPU, "gpu:GPU-0"); f.State != Resolved || f.Ended != "cleared" {
		t.Errorf("seven minutes after the load went away it is %s %s, want resolved, cleared", f.State, f.Ended)
	}
}

// What the headline calls the limit, the cause does too, which routes and alerts go by. It
// does not change while the finding lasts.
func TestCauseOfSaturationIsWhatTheHeadlineSays(t *testing.T) {
	for _, c := range []struct {
		what         string
		kv, later    float64
		cause, title string
	}{
		{"the KV cache is full", 0.97, 0.97, "vram_bound", "KV cache full while the CPU idles"},
		{"the KV cache was full when it began", 0.97, 0.6, "vram_bound", "KV cache full while the CPU idles"},
		{"the KV cache has room", 0.6, 0.6, "gpu_bound", ""},
		{"the KV cache had room when it was told", 0.6, 0.97, "gpu_bound", ""},
	} {
		st := newStage(t, withSLO, time.Second)
		busy := saturatedLoad
		busy.kv = c.kv
		st.set = func(s *collector.Snapshot) { busy.apply(s) }
		st.run(12 * time.Minute)
		busy.kv = c.later
		st.run(12 * time.Minute)
		f := st.fires(rules.IDSaturatedGPU)
		if f.Cause != c.cause || f.Evidence.Title != c.title {
			t.Errorf("%s: its cause is %s and it is called %q, want %s and %q", c.what, f.Cause, f.Evidence.Title, c.cause, c.title)
		}
		told := map[string]bool{}
		for _, in := range st.told {
			if in.Rule == rules.IDSaturatedGPU {
				told[in.ID] = true
			}
		}
		if len(told) != 1 {
			t.Errorf("%s: it is told as %d incidents, want one", c.what, len(told))
		}
	}
}

func TestSaturatedGPUAgainstItsOwnHabit(t *testing.T) {
	usual := saturatedLoad
	usual.util, usual.waiting, usual.queue = 0.7, 1, 0.3
	for name, c := range map[string]struct {
		history time.Duration
		fires   bool
		sure    Confidence
	}{
		"no history yet": {10 * time.Minute, false, ""},
		"two hours":      {2 * time.Hour, true, Young},
		"two days":       {48 * time.Hour, true, Likely},
		"nine days":      {9 * 24 * time.Hour, true, VerySure},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, DetectorConfig{}, 15*time.Second)
			st.set = usual.apply
			st.step = max(15*time.Second, min(c.history/2880, time.Minute))
			st.run(c.history)
			st.silent("at its usual load")
			st.restart() // what is usual survives
			st.step = 15 * time.Second
			st.set = saturatedLoad.apply
			st.run(8 * time.Minute)
			if !c.fires {
				st.silent("with too little history")
				return
			}
			f := st.fires(rules.IDSaturatedGPU)
			if f.Evidence.Confidence != c.sure || f.Evidence.Why == "" {
				t.Errorf("confidence is %q because %q, want %q", f.Evidence.Confidence, f.Evidence.Why, c.sure)
			}
			if want := "queue-time p95 below its own 99th percentile of 0.35 s, usually about 0.32 s"; f.Evidence.Expected != want {
				t.Errorf("expected:\n got %s\nwant %s", f.Evidence.Expected, want)
			}
		})
	}
}

// What every healthy node shows now and then must not be a finding. Whether the
// plain state holds is told all the same.
func TestSaturatedLookAlikes(t *testing.T) {
	change := func(f func(*load)) load {
		l := saturatedLoad
		f(&l)
		return l
	}
	for name, c := range map[string]struct {
		load  load
		state bool
	}{
		"healthy training job": {change(func(l *load) {
			l.endpoints = false
			l.util = 1
			l.owner = collector.Owner{Kind: "job", ID: "slurm/4711"}
		}), true},
		"training beside an endpoint":  {change(func(l *load) { l.gpus = nil; l.owner = collector.Owner{Kind: "job", ID: "slurm/4711"} }), true},
		"endpoint on another GPU":      {change(func(l *load) { l.gpus = []string{"GPU-1"} }), true},
		"busy but nobody waits":        {change(func(l *load) { l.waiting = 0 }), true},
		"busy and within its SLO":      {change(func(l *load) { l.queue = 0.8 }), true},
		"no queue time is told":        {change(func(l *load) { l.queue = math.NaN() }), true},
		"queue that is a relic":        {change(func(l *load) { l.waiting, l.kv, l.tokens = 15, 0.904, 0 }), true},
		"GPU with room":                {change(func(l *load) { l.util = 0.9 }), false},
		"CPU that is busy, too":        {change(func(l *load) { l.cpu = 0.8 }), false},
		"one pegged core":              {change(func(l *load) { l.core = 1 }), false},
		"utilization is not supported": {change(func(l *load) { l.util = math.NaN() }), false},
		"CPU is not told":              {change(func(l *load) { l.cpu = math.NaN() }), false},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, withSLO, time.Second)
			st.set = c.load.apply
			st.run(20 * time.Minute)
			// Requests that wait for another reason are queueing's.
			if got := st.causes(rules.IDSaturatedGPU); got != "" {
				t.Errorf("told of %s", got)
			}
			state := false
			for _, cond := range st.e.View().Conditions {
				state = state || cond.Rule == rules.IDSaturatedGPU && cond.Subject.ID == "GPU-0" && cond.Active
			}
			if state != c.state {
				t.Errorf("the state is %t, want %t", state, c.state)
			}
		})
	}
}

func TestShortOrBrokenDemandIsNoFinding(t *testing.T) {
	st := newStage(t, withSLO, time.Second)
	quiet := saturatedLoad
	quiet.waiting, quiet.queue = 0, 0.1
	for range 6 {
		st.set = saturatedLoad.apply
		st.run(4 * time.Minute)
		st.set = quiet.apply
		st.run(3 * time.Minute)
	}
	st.silent("queues that last four minutes")
}

func TestSingleDipsChangeNothing(t *testing.T) {
	st := newStage(t, withSLO, time.Second)
	i := 0
	st.set = func(s *collector.Snapshot) {
		l := saturatedLoad
		if i++; i%40 == 0 {
			l.util = 0.2
		}
		if i%25 == 0 {
			l.waiting, l.queue = 0, math.NaN()
		}
		l.apply(s)
	}
	st.run(8 * time.Minute)
	st.fires(rules.IDSaturatedGPU)
}

// A queue that stays full after all its requests were cancelled ends the finding.
func TestStaleQueueEndsTheFinding(t *testing.T) {
	st := newStage(t, withSLO, time.Second)
	st.set = saturatedLoad.apply
	st.run(8 * time.Minute)
	st.fires(rules.IDSaturatedGPU)
	frozen := st.now
	st.set = func(s *collector.Snapshot) {
		saturatedLoad.apply(s)
		s.Endpoints[0].Set(metric.GeneratedTokens, math.Floor(1e6+saturatedLoad.tokens*frozen.Sub(day).Seconds()))
	}
	st.run(9 * time.Minute)
	if st.firing(rules.IDSaturatedGPU, "gpu:GPU-0") {
		t.Error("nine minutes after the endpoint last made a token the GPU still counts as saturated by it")
	}
}

func TestShorterWindow(t *testing.T) {
	cfg := withSLO
	cfg.Saturated.Window = 20 * time.Second
	short := time.Duration(0)
	st := newStage(t, cfg, time.Second)
	st.e = NewEngine(Config{Settings: map[rules.ID]Setting{rules.IDSaturatedGPU: {For: &short}}}, Detectors(cfg))
	st.set = saturatedLoad.apply
	st.run(30 * time.Second)
	if f := st.fires(rules.IDSaturatedGPU); !strings.Contains(f.Evidence.Seen, "busy for 1") && !strings.Contains(f.Evidence.Seen, "busy for 2") {
		t.Errorf("seen %q, want a time of some 20 s", f.Evidence.Seen)
	}
}

// Evidence made in the minute after a queue has emptied is of the queue, and says until
// when it was there.
func TestSaturatedSaysUntilWhenRequestsWaited(t *testing.T) {
	st := newStage(t, withSLO, time.Second)
	st.set = saturatedLoad.apply
	st.run(8 * time.Minute)
	st.fires(rules.IDSaturatedGPU)
	until := clock(st.now)
	empty := saturatedLoad
	empty.waiting, empty.kv = 0, 0.5
	st.set = empty.apply
	st.run(20 * time.Second)
	seen := st.fires(rules.IDSaturatedGPU).Evidence.Seen
	if !strings.Contains(seen, "38 requests waiting") || !strings.Contains(seen, "KV cache 97 %") || !strings.HasSuffix(seen, "until "+until) {
		t.Errorf("after the queue has emptied it says %q, want what it was until %s", seen, until)
	}
}

// What the verdict calls the limit is what the finding asks to be widened.
func TestSaturatedNamesTheKVCache(t *testing.T) {
	for _, full := range []bool{true, false} {
		st := newStage(t, withSLO, time.Second)
		l := saturatedLoad
		if l.owner = pod; !full {
			l.kv = 0.4
		}
		st.set = func(s *collector.Snapshot) {
			l.apply(s)
			s.GPUs[0].Set(metric.SMActivity, 0.8)
			s.GPUs[0].Set(metric.ProcessCount, 1)
		}
		st.run(15 * time.Minute)
		st.mustBe(map[bool]VerdictName{true: VerdictVRAMBound, false: VerdictComputeBound}[full])
		ev := st.fires(rules.IDSaturatedGPU).Evidence
		if strings.Contains(ev.Title, "KV cache") != full || strings.Contains(ev.Action, "KV cache is the limit") != full {
			t.Errorf("with the verdict %s the finding is called %q and asks: %s", st.verdict().Name, ev.Title, ev.Action)
		}
	}
}
