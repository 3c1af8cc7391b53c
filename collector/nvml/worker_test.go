//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestUnsupportedIsAskedAgainAfterTenMinutes(t *testing.T) {
	gpu := newFakeGPU(0)
	gpu.returns["GetPowerUsage"] = nvml.ERROR_NOT_SUPPORTED
	_, s := fakeSession(t, gpu)
	for after := time.Duration(0); after < 10*time.Minute; after += 5 * time.Second {
		s.at(t, after)
	}
	if n := gpu.asked["GetPowerUsage"]; n != 1 {
		t.Errorf("a call that is not supported was made %d times in ten minutes, want once", n)
	}
	if p := s.at(t, 10*time.Minute-time.Second); !slices.Contains(p.GPUs[0].Unsupported, metric.PowerDraw) {
		t.Error("power draw is not among what is unsupported")
	}
	delete(gpu.returns, "GetPowerUsage")
	p := s.at(t, 10*time.Minute+time.Second)
	if got := p.GPUs[0].Value(metric.PowerDraw); got != 350 || slices.Contains(p.GPUs[0].Unsupported, metric.PowerDraw) {
		t.Errorf("now that it is supported, power draw is %v and unsupported: %s", got, names(p.GPUs[0].Unsupported))
	}
}

func TestLostGPUIsLeftAloneForThirtySeconds(t *testing.T) {
	gpu := newFakeGPU(0)
	_, s := fakeSession(t, gpu)
	s.at(t, 0)
	gpu.returns["GetUtilizationRates"] = nvml.ERROR_GPU_IS_LOST
	if p := s.at(t, time.Second); p.GPUs[0].Present {
		t.Fatal("the lost GPU is present")
	}
	found := gpu.asked["GetUUID"]
	gpu.returns["GetUtilizationRates"] = nvml.SUCCESS
	for after := 2 * time.Second; after < 31*time.Second; after += time.Second {
		if s.at(t, after).GPUs[0].Present {
			t.Fatalf("the lost GPU is present again after %v", after-time.Second)
		}
	}
	if n := gpu.asked["GetUUID"]; n != found {
		t.Errorf("the lost GPU was looked for %d times within the back-off", n-found)
	}
	if !s.at(t, 31*time.Second).GPUs[0].Present {
		t.Error("the GPU is not found again after the back-off")
	}
}

func TestHiccupOfTheInventoryIsForgiven(t *testing.T) {
	gpu := newFakeGPU(0)
	d, s := fakeSession(t, gpu)
	s.at(t, 0)
	d.handles = nvml.ERROR_UNKNOWN
	if p := s.at(t, time.Minute); !p.GPUs[0].Present || !p.GPUs[0].Has(metric.PowerDraw) {
		t.Error("a GPU that answers is given up because the driver could not list it once")
	}
	// One that does not answer either is gone.
	for method := range fakeFunctions {
		gpu.returns[method[len("nvmlDevice"):]] = nvml.ERROR_UNKNOWN
	}
	s.at(t, 61*time.Second)
	if p := s.at(t, 2*time.Minute); p.GPUs[0].Present {
		t.Error("a GPU that neither answers nor is listed is present")
	}
}

func TestTiersKeepTheirIntervals(t *testing.T) {
	gpu := newFakeGPU(0)
	_, s := fakeSession(t, gpu)
	var fast, processes time.Time
	changes := map[string]int{}
	for after := time.Duration(0); after < time.Minute; after += time.Second {
		p := s.at(t, after-time.Duration(after%3)) // timers do not fire on the dot
		if at := p.GPUs[0].SampledAt(metric.Fast); !at.Equal(fast) {
			fast, changes["fast"] = at, changes["fast"]+1
		}
		if at := p.GPUs[0].SampledAt(metric.Processes); !at.Equal(processes) {
			processes, changes["processes"] = at, changes["processes"]+1
		}
	}
	if diff := cmp.Diff(map[string]int{"fast": 60, "processes": 4}, changes); diff != "" {
		t.Errorf("samples in a minute (-want +got):\n%s", diff)
	}
}

func TestProcessListsAreNeverFrequent(t *testing.T) {
	cfg := Config{Tiers: [metric.Tiers]time.Duration{metric.Processes: time.Second}}.withDefaults()
	if got := cfg.Tiers[metric.Processes]; got != 15*time.Second {
		t.Errorf("process lists every %v, want not more often than every 15 s", got)
	}
}

func TestFailedListIsNoList(t *testing.T) {
	gpu := newFakeGPU(0)
	gpu.processes = []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: 1 << 30}}
	_, s := fakeSession(t, gpu)
	if p := s.at(t, 0); len(p.Processes) != 1 || p.GPUs[0].Value(metric.ProcessCount) != 1 {
		t.Fatalf("processes: %+v", p.Processes)
	}
	gpu.returns["GetGraphicsRunningProcesses"] = nvml.ERROR_UNKNOWN
	if p := s.at(t, 15*time.Second); len(p.Processes) != 0 || p.GPUs[0].Has(metric.ProcessCount) {
		t.Errorf("with one list unread there are %d processes and a count of %v, want none and no count",
			len(p.Processes), p.GPUs[0].Value(metric.ProcessCount))
	}
	gpu.returns["GetGraphicsRunningProcesses"] = nvml.ERROR_NOT_SUPPORTED
	if p := s.at(t, 30*time.Second); len(p.Processes) != 1 {
		t.Errorf("with a list that is not supported there are %d processes, want the one of the other", len(p.Processes))
	}
}

func TestProcessUtilizationGoesOnFromTheNewest(t *testing.T) {
	gpu := newFakeGPU(0)
	gpu.processes = []nvml.ProcessInfo{{Pid: 4711}}
	var asked []uint64
	newest := uint64(start.Add(-time.Second).UnixMicro())
	gpu.usage = func(since uint64) []nvml.ProcessUtilizationSample {
		asked = append(asked, since)
		return []nvml.ProcessUtilizationSample{
			{Pid: 4711, SmUtil: 20, TimeStamp: newest},
			{Pid: 4711, SmUtil: 101, TimeStamp: newest + 5},
			{Pid: 4711, SmUtil: 50, TimeStamp: math.MaxUint64},
		}
	}
	_, s := fakeSession(t, gpu)
	p := s.at(t, 0)
	s.at(t, 15*time.Second)
	want := []uint64{uint64(start.Add(-15 * time.Second).UnixMicro()), newest}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("utilization was asked for from (-want +got):\n%s", diff)
	}
	if got := p.Processes[0].Value(metric.ProcessUtilization); got != 0.2 {
		t.Errorf("utilization of the process is %v, want 0.2", got)
	}
	if got := p.GPUs[0].Dropped[metric.ProcessUtilization]; got != 2 {
		t.Errorf("%d junk rows are counted, want 2", got)
	}
}

// go-nvml slices beyond its buffer when a process starts between its two calls.
func TestPanicOfTheBindingCostsTheUtilization(t *testing.T) {
	gpu := newFakeGPU(0)
	gpu.processes = []nvml.ProcessInfo{{Pid: 4711}}
	gpu.usage = func(uint64) []nvml.ProcessUtilizationSample {
		samples, count := make([]nvml.ProcessUtilizationSample, 1), 2
		return samples[:count]
	}
	_, s := fakeSession(t, gpu)
	if p := s.at(t, 0); len(p.Processes) != 1 || p.Processes[0].Has(metric.ProcessUtilization) {
		t.Errorf("processes: %+v", p.Processes)
	}
}

func TestPartsDoNotChangeAfterwards(t *testing.T) {
	gpu := newFakeGPU(0)
	gpu.power = math.MaxUint32
	_, s := fakeSession(t, gpu)
	first := s.at(t, 0)
	s.fleet.xid(gpu, 79, start)
	second := s.at(t, time.Second)
	readings, dropped := slices.Clone(second.GPUs[0].Vector()), second.GPUs[0].Dropped[metric.PowerDraw]
	gpu.power = 1000
	s.fleet.xid(gpu, 79, start)
	s.at(t, 2*time.Second)
	if len(first.GPUs[0].Xids) != 0 || second.GPUs[0].Xids[0].Count != 1 || second.GPUs[0].Dropped[metric.PowerDraw] != dropped {
		t.Errorf("an earlier part has counts of a later one: %+v, %+v", first.GPUs[0].Xids, second.GPUs[0])
	}
	for i, v := range second.GPUs[0].Vector() {
		if v != readings[i] && !(math.IsNaN(v) && math.IsNaN(readings[i])) {
			t.Errorf("column %d of an earlier part changed from %v to %v", i, readings[i], v)
		}
	}
}

func TestUnreadEventsAreBounded(t *testing.T) {
	gpu := newFakeGPU(0)
	_, s := fakeSession(t, gpu)
	s.at(t, 0)
	for i := range maxPending + 10 {
		s.fleet.xid(gpu, i%2+13, start)
	}
	p := s.at(t, time.Second)
	if len(p.Events) != maxPending || p.GPUs[0].Xids[0].Count+p.GPUs[0].Xids[1].Count != maxPending+10 {
		t.Errorf("%d events are delivered and Xids are %+v, want %d and all counted", len(p.Events), p.GPUs[0].Xids, maxPending)
	}
	if p := s.at(t, 2*time.Second); len(p.Events) != 0 {
		t.Errorf("%d events are delivered twice", len(p.Events))
	}
}

// slowReader takes parts only when it is told to.
type slowReader struct {
	take  chan struct{}
	parts []*collector.Part
}

func (r *slowReader) Write(p *collector.Part) error {
	<-r.take
	r.parts = append(r.parts, p)
	return nil
}

func TestFramesAreLeftOutWhileNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := fakeSession(t, newFakeGPU(0))
		r := &slowReader{take: make(chan struct{})}
		s.out, s.workers = r, nil
		ended := make(chan error)
		go func() { ended <- s.run(t.Context()) }()
		time.Sleep(time.Minute + 500*time.Millisecond)
		close(r.take)
		time.Sleep(2 * time.Second)
		s.fail(fmt.Errorf("the end"))
		if err := <-ended; err == nil || err.Error() != "the end" {
			t.Errorf("serving ends with %v", err)
		}
		// The one that was being written, and one for each tick since.
		if len(r.parts) != 3 {
			t.Fatalf("%d parts were written, want 3", len(r.parts))
		}
		if gap := r.parts[1].Time.Sub(r.parts[0].Time); gap < time.Minute {
			t.Errorf("the second part is of %v after the first: an old one was kept", gap)
		}
	})
}

type brokenPipe struct{}

func (brokenPipe) Write(*collector.Part) error { return fmt.Errorf("nobody is there") }

func TestServeEndsWhenNobodyReads(t *testing.T) {
	d := &fakeDriver{gpus: []*fakeGPU{newFakeGPU(0)}}
	err := serve(t.Context(), func() (library, error) { return d, nil }, brokenPipe{}, Config{ProcFS: "testdata/proc"}.withDefaults())
	if err == nil || err.Error() != "nobody is there" || !d.shutdown {
		t.Errorf("serving a broken pipe ends with %v, NVML shut down: %v", err, d.shutdown)
	}
}

func BenchmarkFastTick(b *testing.B) {
	var gpus []*fakeGPU
	for i := range 8 {
		gpus = append(gpus, newFakeGPU(i))
	}
	_, s := fakeSession(b, gpus...)
	s.at(b, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		// Not long enough for a slower tier.
		for _, w := range s.workers {
			w.last[metric.Fast] = time.Time{}
		}
		s.at(b, time.Duration(i)*time.Nanosecond)
	}
}
