package detect

import (
	"fmt"
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

func trendDetectors() []Stateful {
	return []Stateful{NewHotGPU(), NewMemoryLeak(), NewStraggler(), NewSlowTraining()}
}

// trending returns the snapshots, second by second, of a node of eight GPUs with a training on
// four of them, four pods and an inference server. Only the numbers change, in place.
func trending() func() *collector.Snapshot {
	now := day
	r := newRanks()
	s := node(now, 8)
	r.set(s)
	for i := 4; i < 8; i++ {
		process(s, i, collector.Owner{Kind: "pod", ID: fmt.Sprint("nlp/chat-", i)}, i, 60*oneGiB)
	}
	workload(s, chat).SetAt(metric.WorkloadMemory, 0, 20*oneGiB)
	e := endpoint(s, "GPU-7")
	e.Set(metric.RequestsRunning, 8)
	e.Set(metric.KVCacheUsage, 0.4)
	e.Set(metric.GeneratedTokens, 0)
	return func() *collector.Snapshot {
		now = now.Add(time.Second)
		s.Time = now
		slow := now.Unix()%15 == 0
		s.Endpoints[0].Stamp(metric.Fast, now)
		s.Endpoints[0].Set(metric.GeneratedTokens, 400*now.Sub(day).Seconds())
		for i := range s.GPUs {
			g := &s.GPUs[i]
			g.Stamp(metric.Fast, now)
			g.Set(metric.PowerDraw, 600+10*math.Sin(float64(now.Unix()+int64(i))))
			g.Set(metric.Temperature, 60+math.Cos(float64(now.Unix()*int64(i))))
			if slow {
				g.Stamp(metric.Slow, now)
				g.Stamp(metric.Processes, now)
			}
		}
		for i := range s.Workloads {
			if slow {
				s.Workloads[i].Stamp(metric.Slow, now)
			}
		}
		return s
	}
}

func TestTrendsAllocateNothing(t *testing.T) {
	for _, d := range trendDetectors() {
		next := trending()
		quiet := func(Observation) {}
		for range 1200 {
			d.Observe(next(), quiet)
		}
		if n := testing.AllocsPerRun(1000, func() { d.Observe(next(), quiet) }); n != 0 {
			t.Errorf("%s: a snapshot allocates %v times, want 0", d.Rule().ID, n)
		}
	}
}

func BenchmarkTrends(b *testing.B) {
	for _, d := range trendDetectors() {
		b.Run(string(d.Rule().ID), func(b *testing.B) {
			next := trending()
			quiet := func(Observation) {}
			for range 1200 {
				d.Observe(next(), quiet)
			}
			b.ReportAllocs()
			for b.Loop() {
				d.Observe(next(), quiet)
			}
		})
	}
}

// A memory that is damaged anywhere is refused or taken up, but breaks nothing; what is
// refused leaves the detector as it was.
func TestTrendsRefuseDamagedMemory(t *testing.T) {
	for i, d := range trendDetectors() {
		next := trending()
		for range 1200 {
			d.Observe(next(), func(Observation) {})
		}
		good, err := d.Save()
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"", "{}", `{"version":9}`, `{"version":1,"gpus":{"":null,"a":null},"series":[{}],"groups":[{}],"paces":[{}],"jobs":[{}]}`, string(good[:len(good)/2])} {
			n := trendDetectors()[i]
			if err := n.Restore(good); err != nil {
				t.Fatalf("%s: %v", d.Rule().ID, err)
			}
			before, err := n.Save()
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Restore([]byte(bad)); err != nil {
				if again, err := n.Save(); err != nil || string(again) != string(before) {
					t.Errorf("%s: a memory that was refused has changed it", d.Rule().ID)
				}
			}
			n.Observe(next(), func(Observation) {})
		}
		if per := len(good) / 8; per > 7<<10 {
			t.Errorf("%s: its memory is %d bytes for each of 8 GPUs, want 7 KiB or less", d.Rule().ID, per)
		}
	}
}

// The fastest sampling there is finds the same as the slower ones do.
func TestTrendsEverySecond(t *testing.T) {
	o, r := newOven(8), slowing(2, 1.2)
	o.extra = after(2, 10)
	st := newStage(t, DetectorConfig{}, time.Second)
	st.set = func(s *collector.Snapshot) {
		o.set(s)
		gpus := s.GPUs
		r.set(s)
		s.GPUs = gpus
	}
	st.run(2 * time.Hour)
	st.silent("before anything was wrong")
	st.run(40 * time.Minute)
	if !st.firing(rules.IDHotGPU, "gpu:GPU-0") {
		t.Errorf("sampled every second, ten kelvin above its peers, it is %+v", st.finding(rules.IDHotGPU, "gpu:GPU-0"))
	}
	if !st.firing(rules.IDSlowTraining, "job:slurm/4711") {
		t.Errorf("sampled every second, a fifth slower, it is %+v", st.finding(rules.IDSlowTraining, "job:slurm/4711"))
	}
}
