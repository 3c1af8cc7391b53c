//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

func TestGPMTellsTheTrafficInsteadOfTheCallThatBlocks(t *testing.T) {
	n := newNode(t, 1)
	gpu := fakenvml.GPU(0)
	n.Set(gpu, "gpm/20", 3)
	n.Set(gpu, "gpm/21", 5)
	n.Set(gpu, "gpm/2", math.NaN())
	n.Set(gpu, "gpm/5", 100.4)
	n.start()
	p := n.await("traffic from GPM", func(p *collector.Part) bool {
		return len(p.GPUs) == 1 && p.GPUs[0].Value(metric.PCIeThroughput) == 5<<20
	})
	n.value("GPU", p.GPUs[0].Readings, metric.PCIeThroughput, 1, 3<<20)
	n.value("a metric that is no number", p.GPUs[0].Readings, metric.SMActivity, 0, absent)
	n.value("a share that was rounded up", p.GPUs[0].Readings, metric.TensorActivity, 0, 1)
	asked := countCalls(n.calls(gpu), "nvmlDeviceGetPcieThroughput")
	n.await("some rounds more", func(q *collector.Part) bool { return q.Time.Sub(p.Time) > 300*time.Millisecond })
	if now := countCalls(n.calls(gpu), "nvmlDeviceGetPcieThroughput"); now != asked {
		t.Errorf("the call that blocks for 20 ms was made %d times although GPM tells the traffic", now-asked)
	}
}

func countCalls(keys []string, function string) int {
	n := 0
	for _, k := range keys {
		if strings.HasPrefix(k, function) {
			n++
		}
	}
	return n
}

func TestHungGPMCostsOnlyActivity(t *testing.T) {
	n := newNode(t, 2)
	n.start()
	n.await("activity", func(p *collector.Part) bool {
		return len(p.GPUs) == 2 && p.GPUs[0].Has(metric.SMActivity) && p.GPUs[1].Has(metric.SMActivity)
	})
	n.Fault(fakenvml.GPU(0), gpmGet, fakenvml.Hang)
	n.write()
	p := n.await("GPU 0 to hang", func(p *collector.Part) bool { return p.GPUs[0].Hung })
	p = n.await("GPU 1 to be sampled without GPM", func(q *collector.Part) bool {
		return q.GPUs[1].SampledAt(metric.Fast).After(p.GPUs[1].SampledAt(metric.Fast)) && !q.GPUs[1].Has(metric.SMActivity)
	})
	n.value("GPU 1", p.GPUs[1].Readings, metric.PowerDraw, 0, 350)
	if p.GPUs[1].Hung {
		t.Error("GPU 1 counts as hung because it waits for its turn")
	}
	n.Clear(fakenvml.GPU(0), gpmGet)
	n.write()
	n.await("activity again", func(p *collector.Part) bool {
		return p.GPUs[0].Has(metric.SMActivity) && p.GPUs[1].Has(metric.SMActivity)
	})
}

func TestDriverWithoutGPMTellsNoActivity(t *testing.T) {
	n := newNode(t, 1)
	n.Set(fakenvml.GPU(0), gpmSupport, 0)
	n.start()
	p := n.complete()
	for _, d := range []*metric.Def{metric.SMActivity, metric.TensorActivity, metric.PipeActivity} {
		if !slices.Contains(p.GPUs[0].Unsupported, d) || p.GPUs[0].Has(d) {
			t.Errorf("%s is not unsupported", d)
		}
	}
	n.value("a GPU before Hopper", p.GPUs[0].Readings, metric.Utilization, 0, metric.Utilization.FromRaw(41))
}

func TestBuffersTellWhatARoundDoesNotSee(t *testing.T) {
	n := newNode(t, 1)
	gpu := fakenvml.GPU(0)
	now := time.Now()
	// A stall of half a second between two rounds, and a row of junk.
	for i, percent := range []int{97, 97, 0, 0, 0, 97, 4000} {
		n.Add(gpu, "nvmlDeviceGetSamples/1", "uint", percent, now.Add(time.Hour+time.Duration(i-6)*167*time.Millisecond).UnixMicro())
	}
	n.Add(gpu, "nvmlDeviceGetSamples/0", "uint", 123_000, "now")
	n.start()
	p := n.await("a peak of power", func(p *collector.Part) bool { return len(p.GPUs) == 1 && p.GPUs[0].Has(metric.PowerPeak) })
	n.value("from the buffer, not from the reading of 350 W", p.GPUs[0].Readings, metric.PowerPeak, 0, 123)
	// Samples of an hour ahead cannot be.
	if n := p.GPUs[0].Dropped[metric.Utilization]; n == 0 {
		t.Error("samples from the future are not counted as dropped")
	}
	n.Unset(gpu, "nvmlDeviceGetSamples/1")
	for i, percent := range []int{97, 97, 0, 0, 0, 97, 4000} {
		n.Add(gpu, "nvmlDeviceGetSamples/1", "uint", percent, time.Now().Add(time.Duration(2+i)*167*time.Millisecond).UnixMicro())
	}
	n.write()
	p = n.await("the stall", func(p *collector.Part) bool {
		low := p.GPUs[0].Value(metric.UtilizationLow)
		return low == 0 && p.GPUs[0].ValueAt(metric.UtilizationBands, 0) > 0.3
	})
	if idle := p.GPUs[0].ValueAt(metric.UtilizationBands, 0); idle > 0.6 {
		t.Errorf("%v s were idle, want 0.5", idle)
	}
	all := p.GPUs[0].Distributions
	i := slices.IndexFunc(all, func(d collector.Distribution) bool { return d.Row == metric.UtilizationSampled })
	if i < 0 || all[i].Zero != 3 || all[i].Buckets[len(all[i].Buckets)-1] < 3 {
		t.Errorf("the distributions %+v have not the three samples of 0 and those of 97 %%", all)
	}
}

func TestEachLinkInTheFullProfile(t *testing.T) {
	gpu := newFakeGPU(0)
	gpu.links = 3
	_, s := fakeSession(t, gpu)
	if p := s.at(t, 0); len(p.Links) != 0 {
		t.Fatalf("the default profile samples %d links", len(p.Links))
	}
	s.cfg.Full = true
	p := s.at(t, 15*time.Second)
	if len(p.Links) != 3 {
		t.Fatalf("%d links, want 3", len(p.Links))
	}
	for i, l := range p.Links {
		if l.Number != i || l.UUID != uuid(0) {
			t.Errorf("link %d of %s is in place %d", l.Number, l.UUID, i)
		}
		for _, c := range linkCalls() {
			d, at := c.rows[0], c.field.at
			raw := linkAnswer(c.field.id, uint32(i))
			want := d.FromRaw(float64(raw))
			if d == metric.LinkBER {
				want = float64(raw>>8) * math.Pow10(-(raw & 0xff))
			}
			if got := l.ValueAt(d, at); got != want {
				t.Errorf("link %d: %s/%d is %v, want %v", i, d, at, got, want)
			}
		}
	}
}

// TestSharesNeverExceedTheGPU lets a driver tell anything of up to 20 processes.
func TestSharesNeverExceedTheGPU(t *testing.T) {
	gpu := newFakeGPU(0)
	_, s := fakeSession(t, gpu)
	for round := range 100 {
		gpu.processes = nil
		var usage []nvml.ProcessUtilizationSample
		for pid := range uint32(round % 20) {
			gpu.processes = append(gpu.processes, nvml.ProcessInfo{Pid: pid, UsedGpuMemory: uint64(pid) << 20})
			use := (pid*37 + uint32(round)*11) % 104 // some of it junk
			usage = append(usage, nvml.ProcessUtilizationSample{
				Pid: pid, SmUtil: use, MemUtil: use / 2, EncUtil: 100 - use/2, DecUtil: 0,
				TimeStamp: uint64(start.Add(time.Duration(round) * 15 * time.Second).UnixMicro()),
			})
		}
		gpu.usage = func(uint64) []nvml.ProcessUtilizationSample { return usage }
		p := s.at(t, time.Duration(round)*15*time.Second)
		for i, d := range usageRows {
			sum := total(p.Processes, d)
			if sum > 1+1e-9 {
				t.Fatalf("round %d: %s of %d processes sums to %v", round, d, len(p.Processes), sum)
			}
			rest := p.GPUs[0].ValueAt(metric.UnattributedUtilization, i)
			if whole := p.GPUs[0].Value(engines[i]); !(rest >= 0 && math.Abs(math.Max(0, whole-sum)-rest) < 1e-9) {
				t.Fatalf("round %d: %s of the GPU is %v, its processes' %v, and %v is left over", round, d, whole, sum, rest)
			}
		}
		held := p.GPUs[0].Value(metric.ProcessMemory)
		if rest := p.GPUs[0].Value(metric.UnattributedMemory); rest != math.Max(0, 2<<30-held) {
			t.Fatalf("round %d: processes hold %v of %v bytes, and %v is left over", round, held, 2<<30, rest)
		}
	}
}

func TestOneCallForAllFieldsOfATier(t *testing.T) {
	n := newNode(t, 1)
	n.start()
	n.await("some rounds", func(*collector.Part) bool {
		return countCalls(n.calls(fakenvml.GPU(0)), "nvmlDeviceGetPowerUsage") > 30
	})
	keys := n.calls(fakenvml.GPU(0))
	// One for the fast tier in each round and, in fewer, one for the slow tier and
	// one for the states of the links. There are more than a hundred fields.
	rounds, batches := countCalls(keys, "nvmlDeviceGetPowerUsage"), countCalls(keys, fieldValues)
	if batches > 2*rounds+5 {
		t.Errorf("%d batches of fields in %d rounds", batches, rounds)
	}
}
