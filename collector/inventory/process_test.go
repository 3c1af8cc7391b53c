package inventory

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/collector/proc"

	"github.com/google/go-cmp/cmp"
)

// inspect reads a real process as the source does.
func inspect(t *testing.T, pid int) reading {
	t.Helper()
	n := newNodeMounts()
	r := (&task{procfs: "/proc", pid: pid, runtimes: true, node: &n, sockets: newTables("/proc")}).run()
	return r
}

func sorted(parts []part) []string {
	out := words(parts)
	slices.Sort(out)
	return out
}

func TestLibrariesOfARealProcess(t *testing.T) {
	within(t, nil) // skips without openat2
	dir := t.TempDir()
	put(t, dir, wheels)
	r := inspect(t, mustStart(t, "map:"+dir).Process.Pid)
	if diff := cmp.Diff(inWheels, sorted(r.parts)); diff != "" || r.unread != "" {
		t.Errorf("a process has these mapped (-want +found, %s):\n%s", r.unread, diff)
	}
}

// TestLibrariesBelowALineBreak holds that nobody hides what he has loaded by the name of
// a directory, which the kernel writes in another way.
func TestLibrariesBelowALineBreak(t *testing.T) {
	within(t, nil)
	dir := filepath.Join(t.TempDir(), "two\nlines")
	put(t, dir, wheels)
	r := inspect(t, mustStart(t, "map:"+dir).Process.Pid)
	if diff := cmp.Diff(inWheels, sorted(r.parts)); diff != "" || r.unread != "" {
		t.Errorf("a process has these mapped from below a line break (-want +found, %s):\n%s", r.unread, diff)
	}
}

// TestLibrariesThatWereReplaced is a process that runs on while its packages are
// upgraded: what is on the disk now is not what it has loaded.
func TestLibrariesThatWereReplaced(t *testing.T) {
	within(t, nil)
	dir := t.TempDir()
	put(t, dir, wheels)
	pid := mustStart(t, "map:"+dir).Process.Pid
	for name := range wheels {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	site := "usr/lib/python3.12/site-packages/"
	put(t, dir, map[string]string{
		site + "torch/lib/libtorch_cpu.so":        "",
		site + "torch-2.10.0.dist-info/METADATA":  "Version: 2.10.0\n",
		site + "vllm-0.12.0.dist-info/METADATA":   "Version: 0.12.0\n",
		"usr/lib/x86_64-linux-gnu/libnccl.so.2.9": "",
	})
	want := []string{"cuda_runtime 12", "cudnn 9", "libcuda 570.124.06", "nccl 2.27.5", "torch unknown", "vllm unknown"}
	if diff := cmp.Diff(want, sorted(inspect(t, pid).parts)); diff != "" {
		t.Errorf("a process whose libraries were deleted (-want +found):\n%s", diff)
	}
}

func TestProcessInAForeignMountNamespace(t *testing.T) {
	within(t, nil)
	dir := t.TempDir()
	cmd, err := start(t, "namespace:"+dir, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	})
	if err != nil {
		t.Skipf("user and mount namespaces cannot be made here, so that only roots in the same namespace are tested: %v", err)
	}
	if here, err := os.ReadDir(dir); err != nil || len(here) > 0 {
		t.Fatalf("the test sees the files of the other namespace: %v %v", here, err)
	}
	r := inspect(t, cmd.Process.Pid)
	if diff := cmp.Diff(inWheels, sorted(r.parts)); diff != "" || r.unread != "" {
		t.Errorf("a process in a mount namespace of its own (-want +found, %s):\n%s", r.unread, diff)
	}
}

func TestAProcessThatHasEndedIsGone(t *testing.T) {
	dir := t.TempDir()
	cmd := mustStart(t, "map:"+dir)
	p, err := openProcess("/proc", cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	n := newNodeMounts()
	for what, read := range map[string]func() error{
		"maps":    func() error { _, err := p.Read("maps", 1<<20); return err },
		"root":    func() error { _, err := p.root(); return err },
		"mounts":  func() error { _, err := p.data(&n); return err },
		"sockets": func() error { _, err := p.listeners(); return err },
	} {
		if err := read(); !errors.Is(err, proc.ErrGone) {
			t.Errorf("%s of a process that has ended: %v, want that it is gone", what, err)
		}
	}
	if _, err := openProcess("/proc", cmd.Process.Pid, 0); !errors.Is(err, proc.ErrGone) {
		t.Errorf("the process itself: %v", err)
	}
	if r := inspect(t, cmd.Process.Pid); r.unread != "gone" {
		t.Errorf("a look at it says %q", r.unread)
	}
}

func TestAnotherProcessOfTheSameNumberIsNotRead(t *testing.T) {
	if _, err := openProcess("/proc", os.Getpid(), 1); !errors.Is(err, proc.ErrGone) {
		t.Errorf("a process that began at another time: %v, want that the one asked for is gone", err)
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	start, err := collector.ProcessStart(string(stat))
	if err != nil {
		t.Fatal(err)
	}
	p, err := openProcess("/proc", os.Getpid(), start)
	if err != nil {
		t.Fatalf("the process that was asked for: %v", err)
	}
	p.Close()
}

// TestWhatEachTierMayRead holds the documentation of the tiers to the kernel: mounts
// and the tables of sockets are everybody's, the rest takes the right to trace.
func TestWhatEachTierMayRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can try what another user may read")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"=other")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got map[string]string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[string]string{"mounts": "read", "listeners": "read", "status": "read", "maps": "forbidden", "root": "forbidden", "fd": "forbidden"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what a user without privileges reads of root's process (-documented +kernel):\n%s", diff)
	}
}
