package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/sim"
	"gpuvigil/internal/sim/simfake"
)

// simulated is a simulated node as an agent meets it: a driver, kernel files and
// an inference server.
type simulated struct {
	*simfake.Node
	sys       string // its sysfs
	inference *httptest.Server
	first     *collector.Part // as it was at the beginning
}

// newSimulated has the node of a scenario stand still at the scenario's beginning.
func newSimulated(t *testing.T, name string) *simulated {
	t.Helper()
	scenario, err := sim.ScenarioByName(name)
	if err != nil {
		t.Fatal(err)
	}
	model, err := sim.New(sim.Config{Seed: 1, Start: epoch, Scenario: scenario})
	if err != nil {
		t.Fatal(err)
	}
	node, err := simfake.NewNode(model, t.TempDir(), epoch)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulated{Node: node, sys: t.TempDir(), inference: httptest.NewServer(node)}
	t.Cleanup(s.inference.Close)
	for _, device := range []string{"block/nvme0n1/device", "class/net/eth0/device"} {
		if err := os.MkdirAll(filepath.Join(s.sys, device), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s.first, err = s.move(0); err != nil {
		t.Fatal(err)
	}
	return s
}

// move shows the node as it is so long after the scenario's beginning.
func (s *simulated) move(offset time.Duration) (*collector.Part, error) {
	p, err := s.Update(epoch.Add(offset))
	if err != nil {
		return nil, err
	}
	return p, writeHost(s.ProcFS(), p)
}

// live lets the node's time pass, from now until the test ends. The scenario does
// not depend on how long the machine took for everything before.
func (s *simulated) live(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	begin := time.Now()
	done.Go(func() {
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if _, err := s.move(time.Since(begin)); err != nil {
					t.Errorf("the simulated node: %v", err)
					return
				}
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// environment is what the agent needs to meet the node.
func (s *simulated) environment() []string { return []string{fakenvml.EnvFile + "=" + s.ValuesFile()} }

// flags are what the agent needs to be told.
func (s *simulated) flags() []string {
	return []string{"--node.name=" + s.first.Node.Name, "--path.procfs=" + s.ProcFS(), "--nvml.library-path=" + library}
}

// writeHost writes the kernel's files of a part's node, as far as an agent reads them.
func writeHost(proc string, p *collector.Part) error {
	n := &p.Node
	whole := func(d *metric.Def, i int, unit float64) int64 {
		v := n.ValueAt(d, i)
		if math.IsNaN(v) {
			return 0
		}
		return int64(v / unit)
	}
	const tick, sector, kibi, micro = 0.01, 512, 1 << 10, 1e-6
	cores := max(1, whole(metric.CPUCount, 0, 1))
	var all, each strings.Builder
	for i := range metric.CPUSeconds.Width() {
		fmt.Fprintf(&all, " %d", whole(metric.CPUSeconds, i, tick))
		fmt.Fprintf(&each, " %d", whole(metric.CPUSeconds, i, tick*float64(cores)))
	}
	stat := fmt.Sprintf("cpu %s 0 0\n", all.String())
	for core := range cores {
		stat += fmt.Sprintf("cpu%d%s 0 0\n", core, each.String())
	}
	files := map[string]string{
		"stat": fmt.Sprintf("%sbtime %d\n", stat, p.Boot.Unix()),
		"loadavg": fmt.Sprintf("%.2f %.2f %.2f 1/100 4711\n",
			n.ValueAt(metric.Load, 0), n.ValueAt(metric.Load, 1), n.ValueAt(metric.Load, 2)),
		"meminfo": fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\nSwapTotal: 8388608 kB\nSwapFree: %d kB\n",
			whole(metric.HostMemoryCapacity, 0, kibi), whole(metric.HostMemoryAvailable, 0, kibi), 8388608-whole(metric.HostSwapUsed, 0, kibi)),
		"diskstats": fmt.Sprintf("259 0 nvme0n1 1 0 %d 0 1 0 %d 0 0 %d 0\n",
			whole(metric.DiskBytes, 0, sector), whole(metric.DiskBytes, 1, sector), whole(metric.DiskIOTime, 0, 1e-3)),
		"net/dev": fmt.Sprintf("Inter-| Receive | Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n"+
			"eth0: %d 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0\n", whole(metric.NetworkBytes, 0, 1), whole(metric.NetworkBytes, 1, 1)),
	}
	for _, v := range n.Versions {
		if v.Component == "kernel" {
			files["sys/kernel/osrelease"] = v.Value + "\n"
		}
	}
	for i, resource := range metric.PSIResource.Values {
		line := func(kind string, d *metric.Def) string {
			return fmt.Sprintf("%s avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", kind, whole(d, i, micro))
		}
		files["pressure/"+resource] = line("some", metric.PressureSome) + line("full", metric.PressureFull)
	}
	for name, text := range files {
		if err := replace(filepath.Join(proc, name), text); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file so that nobody sees half of it, as nobody does of the
// kernel's.
func replace(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
