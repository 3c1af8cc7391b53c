//go:build linux && cgo

package nvml

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/fakenvml/everyrow"
	"gpuvigil/internal/metric"
)

// node is a machine whose driver is the fake, with a child process that samples it.
type node struct {
	*testing.T
	fakenvml.File
	library   string
	path      string
	trace     string
	procfs    string
	initLimit time.Duration
	full      bool // the full profile

	cmd    *exec.Cmd
	stderr bytes.Buffer
	parts  chan *collector.Part // closed when the child's stream ends
	broken error                // why; set before the close
}

func newNode(t *testing.T, gpus int) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{
		T: t, path: filepath.Join(dir, "values"), trace: filepath.Join(dir, "trace"),
		procfs: filepath.Join("testdata", "proc"), initLimit: patience, parts: make(chan *collector.Part),
	}
	n.Set(fakenvml.Sys, "nvmlDeviceGetCount_v2", gpus)
	n.Set(fakenvml.Sys, "nvmlSystemGetDriverVersion", "580.65.06")
	n.Set(fakenvml.Sys, "nvmlSystemGetNVMLVersion", "13.580.65.06")
	n.Set(fakenvml.Sys, "nvmlSystemGetCudaDriverVersion_v2", 13000)
	for i := range gpus {
		n.fill(i)
	}
	return n
}

func uuid(gpu int) string { return fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", gpu) }

// fill makes a GPU with an answer to everything that is asked of whole GPUs.
func (n *node) fill(i int) {
	gpu := fakenvml.GPU(i)
	if _, _, err := everyrow.Fill(&n.File, map[metric.Entity]string{metric.GPU: gpu}); err != nil {
		n.Fatal(err)
	}
	n.Set(gpu, gpmSupport, 1)
	n.Set(gpu, fakenvml.Field(165, 0), "uint", 1)
	for key, values := range map[string][]any{
		"nvmlDeviceGetUUID":         {uuid(i)},
		"nvmlDeviceGetName":         {"NVIDIA H100 80GB HBM3"},
		"nvmlDeviceGetSerial":       {fmt.Sprintf("16500%d", i)},
		"nvmlDeviceGetVbiosVersion": {"96.00.89.00.01"},
		"nvmlDeviceGetPciInfo_v3":   {fmt.Sprintf("00000000:%02X:00.0", 0x1B+i), 0x233010DE, 0x16C110DE},
		"nvmlDeviceGetArchitecture": {9},

		"nvmlDeviceGetUtilizationRates":             {41, 42},
		"nvmlDeviceGetEncoderUtilization":           {3, 100},
		"nvmlDeviceGetDecoderUtilization":           {4, 100},
		"nvmlDeviceGetMemoryInfo_v2":                {80 << 30, 1 << 30, 49 << 30, 30 << 30},
		"nvmlDeviceGetMemoryInfo":                   {80 << 30, 49 << 30, 31 << 30},
		"nvmlDeviceGetPowerUsage":                   {350_000},
		"nvmlDeviceGetTotalEnergyConsumption":       {9_000_000},
		"nvmlDeviceGetEnforcedPowerLimit":           {700_000},
		"nvmlDeviceGetPowerManagementDefaultLimit":  {700_000},
		"nvmlDeviceGetTemperatureV/0":               {55},
		"field/82":                                  {"uint", 66},
		"nvmlDeviceGetFanSpeed":                     {30},
		"nvmlDeviceGetCurrentClocksEventReasons":    {4},
		"nvmlDeviceGetCurrentClocksThrottleReasons": {32},
		"nvmlDeviceGetPerformanceState":             {0},
		"nvmlDeviceGetPcieReplayCounter":            {2},
		"nvmlDeviceGetCurrPcieLinkGeneration":       {5},
		"nvmlDeviceGetCurrPcieLinkWidth":            {16},
		"nvmlDeviceGetMaxPcieLinkGeneration":        {5},
		"nvmlDeviceGetMaxPcieLinkWidth":             {16},
		"nvmlDeviceGetPcieThroughput/0":             {1000},
		"nvmlDeviceGetPcieThroughput/1":             {2000},
		"nvmlDeviceGetTotalEccErrors/0/0":           {0},
		"nvmlDeviceGetTotalEccErrors/0/1":           {1},
		"nvmlDeviceGetTotalEccErrors/1/0":           {0},
		"nvmlDeviceGetTotalEccErrors/1/1":           {0},
		"nvmlDeviceGetSupportedEventTypes":          {0x1F},
		"nvmlDeviceGetMigMode":                      {0, 0},
		computeList:                                 nil,
		graphicsList:                                nil,
		mpsList:                                     nil,
		processUsage:                                nil,
	} {
		n.Set(gpu, key, values...)
	}
	for clock := range 4 {
		n.Set(gpu, fakenvml.Key("nvmlDeviceGetClockInfo", clock), 1000+clock)
		n.Set(gpu, fakenvml.Key("nvmlDeviceGetMaxClockInfo", clock), 2000+clock)
	}
}

// slice makes a MIG device of profile 1g.10gb on a GPU that is set to MIG mode.
func (n *node) slice(gpu, slot int) {
	n.Set(fakenvml.GPU(gpu), "nvmlDeviceGetMigMode", 1, 1)
	n.Set(fakenvml.GPU(gpu), "nvmlDeviceGetMaxMigDeviceCount", 7)
	mig := fakenvml.MIG(gpu, slot)
	n.Set(mig, "nvmlDeviceGetUUID", migUUID(gpu, slot))
	n.Set(mig, "nvmlDeviceGetName", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
	n.Set(mig, "nvmlDeviceGetGpuInstanceId", 7+slot)
	n.Set(mig, "nvmlDeviceGetComputeInstanceId", 0)
	n.Set(mig, "nvmlDeviceGetMemoryInfo_v2", 10<<30, 1<<28, 7<<30, 2<<30)
	n.Set(mig, "nvmlDeviceGetMemoryInfo", 10<<30, 7<<30, 3<<30)
	n.Set(mig, computeList)
}

func migUUID(gpu, slot int) string { return fmt.Sprintf("MIG-%d-%d", gpu, slot) }

// write shows the driver's new state to the child.
func (n *node) write() {
	n.Helper()
	if err := n.Write(n.path); err != nil {
		n.Fatal(err)
	}
}

// start runs the child and reads its frames until the test ends.
func (n *node) start() {
	n.Helper()
	n.write()
	if n.library == "" {
		n.library = fakeLibrary(n.T)
	}
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), envLibrary+"="+n.library, envProcFS+"="+n.procfs, envInitLimit+"="+n.initLimit.String(), envFull+"="+strconv.FormatBool(n.full),
		fakenvml.EnvFile+"="+n.path, fakenvml.EnvTrace+"="+n.trace)
	n.cmd.Stderr = &n.stderr
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		n.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	stop := make(chan struct{})
	go n.read(out, stop)
	n.Cleanup(func() {
		close(stop)
		_ = n.cmd.Process.Kill() // it may have exited
		for range n.parts {
		}
		_ = n.cmd.Wait()
		if n.Failed() {
			n.Logf("the child's log:\n%s", n.stderr.String())
		}
	})
}

func (n *node) read(out io.Reader, stop <-chan struct{}) {
	defer close(n.parts)
	for r := frame.NewReader(out); ; {
		p, err := r.Read()
		if err != nil {
			n.broken = err
			return
		}
		select {
		case n.parts <- p:
		case <-stop:
			return
		}
	}
}

// next returns the next part.
func (n *node) next() *collector.Part {
	n.Helper()
	select {
	case p, ok := <-n.parts:
		if !ok {
			n.Fatalf("the child ended: %v", n.broken)
		}
		return p
	case <-time.After(patience):
		n.Fatal("the child writes no frame")
	}
	return nil
}

// await reads parts until one is as it is described.
func (n *node) await(what string, ok func(*collector.Part) bool) *collector.Part {
	n.Helper()
	deadline := time.Now().Add(patience)
	var last *collector.Part
	for time.Now().Before(deadline) {
		if last = n.next(); ok(last) {
			return last
		}
	}
	n.Fatalf("waited for %s; last part: %+v", what, last)
	return nil
}

// complete waits until every tier of every GPU was sampled.
func (n *node) complete() *collector.Part {
	n.Helper()
	return n.await("a reading of every tier", func(p *collector.Part) bool {
		return len(p.GPUs) > 0 && !slices.ContainsFunc(p.GPUs, func(g collector.GPU) bool {
			for t := range metric.Tiers {
				if g.SampledAt(t).IsZero() {
					return true
				}
			}
			return false
		})
	})
}

// exit waits for the child to end by itself and returns its exit status and what it said.
func (n *node) exit() (int, string) {
	n.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-n.parts:
			if ok {
				continue
			}
		case <-deadline:
			n.Fatal("the child does not end")
		}
		_ = n.cmd.Wait() // the status says more
		return n.cmd.ProcessState.ExitCode(), n.stderr.String()
	}
}

// calls returns the keys that the child asked an entity for, in order.
func (n *node) calls(entity string) []string {
	n.Helper()
	all, err := fakenvml.ReadTrace(n.trace)
	if err != nil {
		n.Fatal(err)
	}
	var keys []string
	for _, c := range all {
		if c.Entity == entity {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// value checks one reading, in base units.
func (n *node) value(what string, r collector.Readings, d *metric.Def, i int, want float64) {
	n.Helper()
	got := r.ValueAt(d, i)
	if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
		n.Errorf("%s: %s[%d] is %v, want %v", what, d.Name, i, got, want)
	}
}

var absent = math.NaN()
