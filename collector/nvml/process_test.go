//go:build linux && cgo

package nvml

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// In a pid namespace of its own the driver's pids are those of other processes.
func TestProcessesOfAnotherNamespaceHaveNoName(t *testing.T) {
	n := newNode(t, 1)
	known := n.procfs
	n.procfs = t.TempDir()
	for _, pid := range []string{"4711", "4712"} {
		if err := os.CopyFS(filepath.Join(n.procfs, pid), os.DirFS(filepath.Join(known, pid))); err != nil {
			t.Fatal(err)
		}
	}
	n.Add(fakenvml.GPU(0), computeList, 4711, 5<<30)
	n.start()
	p := n.complete()
	if len(p.Processes) != 1 {
		t.Fatalf("the GPU has %d processes, want the one that the driver lists", len(p.Processes))
	}
	if q := p.Processes[0]; q.PID != 4711 || q.Name != "" || q.UID != -1 || q.Start != 0 || q.Value(metric.ProcessMemoryUsed) != 5<<30 {
		t.Errorf("the process is %+v, want its pid and memory without name, user and start", q)
	}
	n.value("node", p.Node.Readings, metric.NVMLHostPIDs, 0, 0)
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, said := n.exit(); strings.Count(said, "neither name nor user") != 1 {
		t.Errorf("that processes have no name is not said once:\n%s", said)
	}
}
