package e2e

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/sim/simfake"
)

var soak = flag.Duration("soak", 20*time.Second, "how long TestSoak watches the agent; `make soak` takes an hour")

const (
	churn     = 10_000 // short processes, at the least
	soakGPUs  = 8
	soakHung  = 5   // the GPU whose calls do not return
	perGPU    = 150 // processes at a time
	perRound  = 110 // of which so many of the whole node are replaced in each round
	soakRound = 200 * time.Millisecond
)

// round is a second in a soak of an hour, so that it leaves the machine to others:
// 400,000 processes come and go in it.
func round() time.Duration { return max(soakRound, *soak/3600) }

// TestSoak has thousands of short processes come and go on a node of which one GPU
// hangs. What the agent holds must not grow with what it has seen.
func TestSoak(t *testing.T) {
	t.Parallel()
	n := newChurning(t)
	a := n.start(options{
		config: "sampling: {fast: 500ms, slow: 1s, processes: 15s, inventory: 1s}\nnvml: {call_limit: 1s}\n",
		args:   []string{"--path.procfs=" + n.procfs},
	})
	a.ready(t)
	others := func(m metrics) error {
		var errs []error
		for gpu := range soakGPUs {
			if gpu != soakHung {
				errs = append(errs, m.expect(perGPU, "vigil_gpu_processes", "gpu", strconv.Itoa(gpu)))
			}
		}
		return errors.Join(errs...)
	}
	a.awaits(t, "the processes of all GPUs are counted", func(m metrics) error {
		return errors.Join(others(m), m.expect(perGPU, "vigil_gpu_processes", "gpu", strconv.Itoa(soakHung)))
	})
	n.Fault(fakenvml.GPU(soakHung), fakenvml.Every, fakenvml.Hang)
	n.show()
	a.awaits(t, "the hung GPU is marked", func(m metrics) error {
		return errors.Join(others(m), m.expect(1, "vigil_gpu_hung", "gpu", strconv.Itoa(soakHung)))
	})
	child := a.children(t)
	if len(child) != 1 {
		t.Fatalf("the agent has %d children, want the one that talks to NVML", len(child))
	}
	first := seen(t, a)

	var held []holding
	begin := time.Now()
	for ticker := time.Tick(round()); time.Since(begin) < *soak || n.ended < churn || common(first, seen(t, a)); <-ticker {
		if time.Since(begin) > *soak+patience {
			t.Fatalf("%d short processes have ended, want %d, and those of the beginning gone from the agent's snapshot", n.ended, churn)
		}
		n.replace(perRound)
		m := a.must(t)
		if err := errors.Join(others(m), m.expect(1, "vigil_gpu_hung", "gpu", strconv.Itoa(soakHung))); err != nil {
			t.Fatalf("after %d short processes: %v", n.ended, err)
		}
		held = append(held, hold(t, a, child[0], m))
	}
	warm, last := ends(held)
	t.Logf("%d processes have come and gone in %v; held when warm %+v, at the end %+v", n.ended, time.Since(begin).Round(time.Second), warm, last)
	if now := a.children(t); !slices.Equal(now, child) {
		t.Errorf("the child that talks to NVML was %v and is %v", child, now)
	}
	flat(t, warm, last)
}

// churning is a driver with a procfs, whose processes end soon.
type churning struct {
	*driver
	procfs string
	live   []int // pids, the oldest first
	ended  int
}

func newChurning(t *testing.T) *churning {
	n := &churning{driver: newDriver(t, soakGPUs), procfs: t.TempDir()}
	// The kernel's own files are as they are on this machine.
	for _, name := range []string{"stat", "loadavg", "meminfo", "diskstats", "net/dev", "sys/kernel/osrelease"} {
		text, err := os.ReadFile(filepath.Join("/proc", name))
		if err == nil {
			err = replace(filepath.Join(n.procfs, name), string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := simfake.WriteHost(n.procfs); err != nil {
		t.Fatal(err)
	}
	n.begin(firstPID, soakGPUs*perGPU)
	return n
}

// firstPID is far from the processes of this machine.
const firstPID = 10_000_000

// replace ends the oldest processes and begins as many.
func (n *churning) replace(count int) {
	n.t.Helper()
	for _, pid := range n.live[:count] {
		if err := os.RemoveAll(filepath.Join(n.procfs, strconv.Itoa(pid))); err != nil {
			n.t.Fatal(err)
		}
	}
	n.live, n.ended = n.live[count:], n.ended+count
	n.begin(n.live[len(n.live)-1]+1, count)
}

// begin adds processes and shows all that live to whoever looks. A pid stays on its GPU.
func (n *churning) begin(pid, count int) {
	n.t.Helper()
	for ; count > 0; pid, count = pid+1, count-1 {
		n.live = append(n.live, pid)
		p := collector.Process{PID: pid, Name: fmt.Sprintf("job-%d", pid), UID: 1000 + pid%50, Start: uint64(pid)}
		if err := simfake.WriteProcess(n.procfs, &p); err != nil {
			n.t.Fatal(err)
		}
	}
	for gpu := range soakGPUs {
		n.Set(fakenvml.GPU(gpu), listOfProcesses)
	}
	for _, pid := range n.live {
		n.Add(fakenvml.GPU(pid%soakGPUs), listOfProcesses, pid, (100+pid%100)<<20)
	}
	n.show()
}

const listOfProcesses = "nvmlDeviceGetComputeRunningProcesses"

// seen are the processes in the agent's last snapshot, those that it tells, on GPUs that answer.
func seen(t *testing.T, a *agent) map[int]bool {
	t.Helper()
	s, err := a.snapshot()
	if err != nil {
		t.Fatal(err)
	}
	pids := map[int]bool{}
	for _, p := range s.Processes {
		if p.GPU != soakHung {
			pids[p.PID] = true
		}
	}
	if len(pids) == 0 {
		t.Fatal("the agent tells of no process")
	}
	return pids
}

func common(a, b map[int]bool) bool {
	for pid := range a {
		if b[pid] {
			return true
		}
	}
	return false
}

// holding is what agent and child held at one time.
type holding struct {
	Resident, Goroutines, Files float64 // as the agent tells; memory with the child's
	Threads, ChildFiles         int
}

func hold(t *testing.T, a *agent, child int, m metrics) holding {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", child))
	if err != nil {
		t.Fatal(err)
	}
	return holding{
		Resident:   m.value("vigil_agent_resident_memory_bytes"),
		Goroutines: m.value("vigil_agent_goroutines"), Files: m.value("vigil_agent_open_files"),
		Threads: threadsOf(t, child), ChildFiles: len(files),
	}
}

// ends are the middle values of the second quarter, when all is warm, and of the last.
func ends(held []holding) (warm, last holding) {
	quarter := len(held) / 4
	middle := func(h []holding) holding {
		return holding{
			Resident:   median(h, func(h holding) float64 { return h.Resident }),
			Goroutines: median(h, func(h holding) float64 { return h.Goroutines }),
			Files:      median(h, func(h holding) float64 { return h.Files }),
			Threads:    median(h, func(h holding) int { return h.Threads }),
			ChildFiles: median(h, func(h holding) int { return h.ChildFiles }),
		}
	}
	return middle(held[quarter : 2*quarter]), middle(held[3*quarter:])
}

func median[T cmp.Ordered](held []holding, of func(holding) T) T {
	var all []T
	for _, h := range held {
		all = append(all, of(h))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// flat fails for what is more at the end than when all was warm.
func flat(t *testing.T, warm, last holding) {
	t.Helper()
	for _, g := range []struct {
		what            string
		was, is, beyond float64
	}{
		{"bytes of resident memory", warm.Resident, last.Resident, 8 << 20},
		{"goroutines in the agent", warm.Goroutines, last.Goroutines, 4},
		{"files open in the agent", warm.Files, last.Files, 4},
		{"files open in the child", float64(warm.ChildFiles), float64(last.ChildFiles), 2},
		{"threads of the child", float64(warm.Threads), float64(last.Threads), 4},
	} {
		if !(g.was > 0 && g.is <= g.was+g.beyond) {
			t.Errorf("%v %s when warm, %v at the end: want at most %v more", g.was, g.what, g.is, g.beyond)
		}
	}
}
