package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/sim/simfake"
)

// A state file from a crashed write costs what it held, and not the start.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	first := startAgent(t, options{config: quick})
	first.ready(t)
	if code := first.end(); code != 0 {
		t.Fatalf("the agent exits %d when it is asked to stop", code)
	}
	whole, err := os.ReadFile(filepath.Join(first.state, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	// Two pages say what is in the others.
	const page = 4096
	torn := append(slices.Clone(whole[:2*page]), make([]byte, len(whole)-2*page)...)
	for name, content := range map[string][]byte{
		"cut off": whole[:2*page+page/2], "zeros": torn, "garbage": []byte(strings.Repeat("garbage ", 8192)), "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := dirWith(t, "state.db", content)
			a := startAgent(t, options{config: quick, state: dir})
			a.ready(t)
			if name == "empty" {
				a.said(t, "state file is empty")
				return
			}
			a.said(t, "damaged", "corrupt-")
			kept, err := filepath.Glob(filepath.Join(dir, "state.db.corrupt-*"))
			if err != nil || len(kept) != 1 {
				t.Errorf("the damaged file is not kept for a look at it: %v, %v", kept, err)
			}
		})
	}
}

// TestDiskFull lets every write of the state fail, as on a full disk: the kernel
// is told not to let the agent's files grow.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	a := d.start(options{})
	a.ready(t)
	limit := func(bytes uint64) {
		var was unix.Rlimit
		if err := unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &was); err != nil {
			t.Fatal(err)
		}
		if err := unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: was.Max}, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit(0)
	d.Event(fakenvml.GPU(1), xidEvents, 48)
	d.show()
	a.awaits(t, "a finding fires with a full disk, and the failed write is counted", func(m metrics) error {
		err := m.expect(1, "vigil_finding", "cause", "xid_48")
		if n := m.value("vigil_state_write_errors_total"); !(n > 0) {
			err = errors.Join(err, fmt.Errorf("%v failed writes are counted", n))
		}
		return err
	})
	a.said(t, "The state cannot be written")
	limit(unix.RLIM_INFINITY)
	d.Event(fakenvml.GPU(1), xidEvents, 94)
	d.show()
	a.said(t, "The state is written again")
	a.kill()
	b := d.start(options{state: a.state})
	b.ready(t)
	b.awaits(t, "what was found while the disk was full is known after a crash", func(m metrics) error {
		return errors.Join(m.expect(1, "vigil_finding", "cause", "xid_48"), m.expect(1, "vigil_finding", "cause", "xid_94"))
	})
}

func TestSecondAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, options{config: quick})
	code, said := runs(t, nil, binary, "run", "--state.dir="+a.state, "--web.listen-address=127.0.0.1:0")
	if code == 0 || !containsAll(said, []string{"another gpuvigil", "--state.dir"}) {
		t.Errorf("a second agent with the same state directory exits %d, want a failure that says so; it says:\n%s", code, said)
	}
	a.ready(t)
	if code, said := a.ask(t, "status"); strings.Contains(said, "is it running") {
		t.Errorf("after a second agent has tried to start, the first does not answer any more: exit %d\n%s", code, said)
	}
}

// TestProcessNames has names of GPUs and of processes on them that no terminal, page or scrape should
// get as they are.
func TestProcessNames(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 2)
	names := map[int]string{4711: "bad\xff\xfename", 4712: "\x1b[31mred\x1b[0m", 4713: "<script>alert(1)"}
	d.Set(fakenvml.GPU(0), computeList)
	d.Set(fakenvml.GPU(0), "nvmlDeviceGetName", "NVIDIA\xff H100")
	proc := t.TempDir()
	if err := simfake.WriteHost(proc); err != nil {
		t.Fatal(err)
	}
	for pid, name := range names {
		dir := fmt.Sprintf("%s/%d/", proc, pid)
		for file, text := range map[string]string{
			"comm": name + "\n", "stat": fmt.Sprintf("%d (%s) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0\n", pid, name),
			"status": "Name:\t" + name + "\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n",
		} {
			if err := replace(dir+file, text); err != nil {
				t.Fatal(err)
			}
		}
		d.Add(fakenvml.GPU(0), computeList, pid, 1<<30)
	}
	d.show()
	a := d.start(options{args: []string{"--path.procfs=" + proc}})
	eventually(t, "the API tells of processes with strange names", func() error {
		s, err := a.snapshot()
		if err != nil {
			return err
		}
		for _, p := range s.Processes {
			if p.PID == 4711 && p.Name == "bad\uFFFDname" {
				return nil
			}
		}
		return fmt.Errorf("it tells %+v", s.Processes)
	})
	for _, path := range []string{"/", "/metrics", "/api/v1/snapshot"} {
		page, err := a.get(path)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(page) || strings.ContainsAny(page, "\x1b\x00") || strings.Contains(page, "<script>alert") {
			t.Errorf("%s passes on a name as it is", path)
		}
	}
	_, said := a.ask(t, "why", "0")
	if !utf8.ValidString(said) || strings.Contains(said, "\x1b") || !strings.Contains(said, "4712") {
		t.Errorf("gpuvigil why passes on a process's name as it is: %q", said)
	}
}

// TestTenThousandProcesses has more processes on the GPUs than anybody looks at.
func TestTenThousandProcesses(t *testing.T) {
	t.Parallel()
	const gpus, each = 4, 2500
	d := newDriver(t, gpus)
	for gpu := range gpus {
		d.Set(fakenvml.GPU(gpu), computeList)
		for i := range each {
			d.Add(fakenvml.GPU(gpu), computeList, 1_000_000+gpu*each+i, 1<<20)
			d.Add(fakenvml.GPU(gpu), processUsage, 1_000_000+gpu*each+i, 1, 1, 0, 0, "now")
		}
	}
	d.show()
	a := d.start(options{})
	a.ready(t)
	m := a.awaits(t, "all processes are counted", func(m metrics) error {
		return errors.Join(m.expect(each, "vigil_gpu_processes", "gpu", "0"), m.expect(each<<20, "vigil_gpu_process_memory_bytes", "gpu", "3"))
	})
	series := 0
	for _, f := range m {
		series += len(f.GetMetric())
	}
	// The limits that are promised: 150 for a GPU, 400 for a host.
	if most := gpus*150 + 400; series > most {
		t.Errorf("ten thousand processes make %d series, want %d at the most", series, most)
	}
	body, err := a.get("/api/v1/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Count     int               `json:"process_count"`
		Processes []json.RawMessage `json:"processes"`
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Count != gpus*each || len(s.Processes) > 500 {
		t.Errorf("the API tells of %d processes and lists %d (%v), want all counted and the biggest listed", s.Count, len(s.Processes), err)
	}
	if page, err := a.get("/"); err != nil || len(page) > 1<<20 {
		t.Errorf("with ten thousand processes the page has %d bytes: %v", len(page), err)
	}
	if code, said := a.ask(t, "why", "0"); strings.Count(said, "\n") > 60 {
		t.Errorf("gpuvigil why exits %d and lists every process:\n%s", code, said)
	}
}

// TestReload changes the configuration under a running agent.
func TestReload(t *testing.T) {
	t.Parallel()
	file := write(t, "gpuvigil.yml", "node: before\n"+quick)
	a := startAgent(t, options{file: file})
	a.ready(t)
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) func(metrics) error {
		return func(m metrics) error { return m.expect(1, "vigil_node_info", "node", name) }
	}
	a.awaits(t, "the node has its name", named("before"))

	change("node: after\nnmvl: {}\n")
	a.awaits(t, "a bad configuration is told by a metric and not used", func(m metrics) error {
		return errors.Join(m.expect(0, "vigil_config_last_reload_successful"), named("before")(m))
	})
	a.said(t, "The new configuration is not used", "gpuvigil.yml:2", "nmvl")
	change("node: after\n" + quick)
	a.awaits(t, "a good configuration is used", func(m metrics) error {
		return errors.Join(m.expect(1, "vigil_config_last_reload_successful"), named("after")(m))
	})
	a.ready(t)

	begin := time.Now()
	if code := a.end(); code != 0 {
		t.Errorf("the agent exits %d when it is asked to stop, want 0", code)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the agent needed %v to stop", took)
	}
	if _, err := os.Stat(filepath.Join(a.state, "agent.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the agent leaves its socket behind: %v", err)
	}
}
