package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/sim/simfake"
)

// sampled are the native histograms.
var sampled = []string{
	"vigil_gpu_utilization_sampled_ratio", "vigil_gpu_power_draw_sampled_watts", "vigil_gpu_sm_active_sampled_ratio", "vigil_gpu_memory_bandwidth_sampled_ratio",
}

// TestNativeHistograms has a real Prometheus negotiate protobuf and asks it what the
// documentation says can be asked.
func TestNativeHistograms(t *testing.T) {
	t.Parallel()
	const gpus = 2
	d := newDriver(t, gpus)
	for gpu := range gpus {
		d.Set(fakenvml.GPU(gpu), "nvmlDeviceGetPowerUsage", 350_000)
	}
	d.show()
	a := d.start(options{config: quick + "metrics: {native_histograms: true}\n"})
	a.ready(t)
	p := startPrometheusWith(t, a.address, "", ", scrape_native_histograms: true")
	for _, name := range sampled {
		eventually(t, "Prometheus has the native histogram "+name, func() error {
			return p.holds(t.Context(), fmt.Sprintf("count(histogram_count(rate(%s[10s])) > 0)", name), gpus, gpus)
		})
	}
	for expr, bounds := range map[string][2]float64{
		// One bucket of 9 % is all that is lost of a value.
		"histogram_quantile(0.5, sum(rate(vigil_gpu_power_draw_sampled_watts[10s])))":      {350 / 1.1, 350 * 1.1},
		"histogram_avg(sum(rate(vigil_gpu_power_draw_sampled_watts[10s])))":                {349.99, 350.01},
		"histogram_fraction(300, 400, sum(rate(vigil_gpu_power_draw_sampled_watts[10s])))": {1, 1},
		"count({__name__=~\"vigil_.*_sampled_.*_(bucket|count|sum)\"}) or vector(0)":       {0, 0}, // no classic ones
	} {
		eventually(t, expr+" is as the driver says", func() error { return p.holds(t.Context(), expr, bounds[0], bounds[1]) })
	}
	if m := a.must(t); m.find(sampled[1])[0].GetHistogram().GetSampleCount() == 0 {
		t.Error("who scrapes text is not told how many samples there were")
	}
}

// holds is an error unless the expression gives one number between the bounds.
func (p *prometheus) holds(ctx context.Context, expr string, low, high float64) error {
	v, err := p.ask(ctx, expr)
	if err == nil && (len(v) != 1 || !(float64(v[0].Value) >= low && float64(v[0].Value) <= high)) {
		err = fmt.Errorf("%v comes of %s, want one number from %v to %v", v, expr, low, high)
	}
	return err
}

// TestProcessSeries has a driver tell of processes with names as nobody should give
// them, and adds them up.
func TestProcessSeries(t *testing.T) {
	t.Parallel()
	n := newChurning(t)
	gpu := fakenvml.GPU(0)
	n.Set(gpu, listOfProcesses)
	for i, name := range []string{"python", "python", "a\"b\\c}", "\x1b[31mred", "small"} {
		pid := firstPID - 1 - i
		if err := simfake.WriteProcess(n.procfs, &collector.Process{PID: pid, Name: name, UID: 1000, Start: 1}); err != nil {
			t.Fatal(err)
		}
		n.Add(gpu, listOfProcesses, pid, (10-i)<<30)
		n.Add(gpu, processUsage, pid, 30, 20, 0, 0, "now")
	}
	n.Set(gpu, "nvmlDeviceGetMemoryInfo_v2", 80<<30, 1<<30, 35<<30, 44<<30)
	n.show()
	a := n.start(options{
		config: quick + "metrics: {processes: {enabled: true, top: 3}}\n", args: []string{"--path.procfs=" + n.procfs},
	})
	a.ready(t)
	m := a.awaits(t, "processes with series of their own, and the rest as one", func(m metrics) error {
		var errs []error
		for name, memory := range map[string]float64{"python": 19 << 30, "a\"b\\c}": 8 << 30, "[31mred": 7 << 30, "other": 6 << 30} {
			errs = append(errs, m.expect(memory, "vigil_process_memory_used_bytes", "gpu", "0", "process", name))
		}
		return errors.Join(append(errs, m.expect(1, "vigil_gpu_processes_folded", "gpu", "0"))...)
	})
	if sum, own := m.sum("vigil_process_memory_used_bytes", "gpu", "0"), m.value("vigil_gpu_process_memory_bytes", "gpu", "0"); sum != own {
		t.Errorf("the processes' series sum to %v bytes, the GPU's processes hold %v", sum, own)
	}
	if sum, used := m.sum("vigil_process_memory_used_bytes", "gpu", "0")+m.value("vigil_gpu_unattributed_memory_bytes", "gpu", "0"), 44<<30; sum != float64(used) {
		t.Errorf("processes and the unattributed hold %v bytes, of %v in use", sum, used)
	}
	// Five times 30 % is more than a GPU.
	if sum := m.sum("vigil_process_utilization_ratio", "gpu", "0"); math.Abs(sum-1) > 1e-9 {
		t.Errorf("the shares of processes that use more than the GPU sum to %v, want 1", sum)
	}
	if found := m.find("vigil_process_memory_used_bytes", "gpu", "1"); len(found) != 4 {
		t.Errorf("GPU 1 has %d series of its %d processes, want 3 and the rest", len(found), perGPU)
	}
	for _, s := range m["vigil_process_memory_used_bytes"].GetMetric() {
		if len(s.Label) != 3 {
			t.Errorf("a process has further labels: %v", s.Label)
		}
	}
}

// maxMemory is what agent and child may take together on a large node.
const maxMemory = 60 << 20

// TestMemory holds agent and child to their limit on a node of 8 GPUs with 56 MIG
// instances and 500 processes that is scraped all the time.
func TestMemory(t *testing.T) {
	t.Parallel()
	const gpus, slots, processes, scrapes = 8, 7, 500, 100
	d := newDriver(t, gpus)
	for gpu := range gpus {
		d.Set(fakenvml.GPU(gpu), "nvmlDeviceGetMaxMigDeviceCount", slots)
		for slot := range slots {
			d.slice(gpu, slot)
		}
	}
	for p := range processes {
		slot := p / gpus % slots
		d.Add(fakenvml.MIG(p%gpus, slot), computeList, firstPID+p, 1<<28, 7+slot, 0)
	}
	d.show()
	a := d.start(options{args: []string{"--collector.profile=full"}})
	a.ready(t)
	a.awaits(t, "all processes are counted", func(m metrics) error {
		if n := m.sum("vigil_mig_processes"); n != processes {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	p := startPrometheus(t, a.address, "")
	eventually(t, strconv.Itoa(scrapes)+" scrapes", func() error {
		if m := a.must(t); m.value("vigil_scrapes_total") < scrapes {
			return fmt.Errorf("%v", m.value("vigil_scrapes_total"))
		}
		return nil
	})
	if err := p.has(t.Context(), "vigil_agent_proportional_memory_bytes"); err != nil {
		t.Skipf("this kernel does not tell it: %v", err)
	}
	v, err := p.ask(t.Context(), "max_over_time(vigil_agent_proportional_memory_bytes[5m])")
	if err != nil || len(v) != 1 {
		t.Fatalf("%v, %v", v, err)
	}
	t.Logf("agent and child take %.1f MiB at most", float64(v[0].Value)/(1<<20))
	if v[0].Value > maxMemory {
		t.Errorf("agent and child take %v bytes, want at most %v", v[0].Value, maxMemory)
	}
}
