package detect

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestVerdictsAreAClosedSet(t *testing.T) {
	seen := map[VerdictName]bool{}
	for _, n := range VerdictNames {
		if seen[n] {
			t.Errorf("%s is listed twice", n)
		}
		seen[n] = true
	}
	for n, want := range map[VerdictName]string{
		VerdictVRAMBound: "VRAM bound", VerdictPCIeBound: "PCIe bound", VerdictCPUStarved: "CPU starved", VerdictHeldWithoutProcess: "held without process",
	} {
		if got := n.Words(); got != want {
			t.Errorf("%s reads %q, want %q", n, got, want)
		}
	}
}

// Readings that are noisy around a limit change the verdict once at most.
func TestVerdictsDoNotFlicker(t *testing.T) {
	for _, step := range paces {
		t.Run(step.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 11))
			st := newStage(t, DetectorConfig{}, step)
			c := atWork()
			c.gpus, c.owner, c.tensor, c.dram = 1, pod, 0.3, 0.3
			c.also = func(s *collector.Snapshot) {
				g := &s.GPUs[0]
				g.Set(metric.SMActivity, min(1, fullSM+0.15*rng.NormFloat64()))
				g.Set(metric.Utilization, min(1, 0.9+0.1*rng.NormFloat64()))
				g.Set(metric.PowerDraw, 700*(lowPower+0.1*rng.NormFloat64()))
			}
			st.set = c.apply
			changes, last := 0, VerdictName("")
			for range int(6 * time.Hour / step / 10) {
				st.run(10 * step)
				if v := st.verdict(); v.Name != last {
					changes, last = changes+1, v.Name
				}
			}
			if changes > 3 {
				t.Errorf("%d verdicts in six hours of the same noise, want the first and one more at most", changes)
			}
		})
	}
}

func TestJudgeForgetsWhatIsGone(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Minute)
	n := 0
	c := atWork()
	c.gpus = 1
	c.served, c.running = true, 1
	c.also = func(s *collector.Snapshot) {
		n++
		owner := collector.Owner{Kind: "pod", ID: fmt.Sprint("p", n)}
		s.GPUs[0].UUID, s.GPUs[0].Owners = fmt.Sprint("GPU-", n), []collector.Owner{owner}
		s.Workloads[0].Owner = owner
		s.Endpoints[0].URL = fmt.Sprint("http://", n)
	}
	st.play(&c, 20*time.Hour)
	j := st.e.judge
	for what, size := range map[string]int{"GPUs": len(j.gpus), "jobs": len(j.jobs), "workloads": len(j.work), "endpoints": len(j.servers)} {
		if size > maxJudged || size == 0 {
			t.Errorf("%d %s are kept after 1200 came and went, want at most %d", size, what, maxJudged)
		}
	}
	if v := st.verdict(); v.GPU != fmt.Sprint("GPU-", n) {
		t.Errorf("the newest GPU has no verdict of its own: %+v", v)
	}
}

// Memory that cannot be read costs the memory of verdicts only.
func TestVerdictsWithoutMemory(t *testing.T) {
	for name, memory := range map[string]string{"damaged": `{"version":1,"gpus":[]}`, "of a newer release": `{"version":9}`} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			e := NewEngine(Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, Detectors(DetectorConfig{}))
			if err := e.Restore([]byte(`{"version":1,"verdicts":` + memory + `}`)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), "the verdicts start without memory") {
				t.Errorf("nobody is told: %s", log.String())
			}
			e.Observe(node(day, 2))
			if v := e.View().Verdicts; len(v) != 2 {
				t.Errorf("there are %d verdicts of two GPUs", len(v))
			}
		})
	}
}

// A verdict that this release does not know is no label value.
func TestVerdictOfAnotherRelease(t *testing.T) {
	j := NewJudge()
	if err := j.Restore([]byte(`{"version":1,"gpus":{"GPU-0":{"verdict":"enchanted","rest":{},"usual":{}}}}`)); err != nil {
		t.Fatal(err)
	}
	j.Observe(node(day, 1))
	if got := j.Verdicts()[0].Name; got != VerdictUnknown {
		t.Errorf("the verdict is %q, want unknown", got)
	}
}

func atWorkJudge() (*Judge, func() *collector.Snapshot) {
	j, c, now := NewJudge(), atWork(), day
	s := node(now, 8)
	c.apply(s)
	next := func() *collector.Snapshot {
		now = now.Add(time.Second)
		s.Time = now
		s.Node.Stamp(metric.Fast, now)
		for i := range s.GPUs {
			for tier := range metric.Tiers {
				s.GPUs[i].Stamp(tier, now)
			}
		}
		s.Workloads[0].Stamp(metric.Slow, now)
		return s
	}
	for range 3600 {
		j.Observe(next())
	}
	return j, next
}

func TestJudgeAllocatesNothing(t *testing.T) {
	j, next := atWorkJudge()
	// Words are found anew each minute, eight in sixty snapshots.
	if got := testing.AllocsPerRun(600, func() { j.Observe(next()) }); got > 0 {
		t.Errorf("a snapshot costs %.2f allocations, want none", got)
	}
}

func BenchmarkJudge(b *testing.B) {
	j, next := atWorkJudge()
	b.ReportAllocs()
	for b.Loop() {
		j.Observe(next())
	}
}
