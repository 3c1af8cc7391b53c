package movement

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// node is a made-up machine: files of /proc and /sys, and the snapshot that says what
// runs on its GPUs.
type node struct {
	t         testing.TB
	proc, sys string
	snap      *collector.Snapshot
	cfg       Config
	source    *Movement
}

const hostDev = "Inter-|   Receive\n face |bytes\n    lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n  eth0: 900 0 0 0 0 0 0 0 900 0 0 0 0 0 0 0\n"

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, proc: t.TempDir(), sys: t.TempDir(), snap: &collector.Snapshot{}}
	n.file("proc/self/stat", "")
	n.file("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
	n.process(1, 1, "0::/init.scope\n", hostDev)
	n.cfg = Config{ProcFS: n.proc, SysFS: n.sys, Snapshot: func() *collector.Snapshot { return n.snap }, Log: slog.New(slog.DiscardHandler)}
	return n
}

// file writes a file below proc/ or sys/.
func (n *node) file(name, content string) {
	n.t.Helper()
	path := n.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) path(name string) string {
	top, rest, _ := strings.Cut(name, "/")
	return filepath.Join(map[string]string{"proc": n.proc, "sys": n.sys}[top], rest)
}

// remove moves the file or directory away instead of deleting it, so that nothing
// new gets its inode: the kernel's own file systems do not use one twice.
func (n *node) remove(name string) {
	n.t.Helper()
	if err := os.Rename(n.path(name), filepath.Join(n.t.TempDir(), "gone")); err != nil {
		n.t.Fatal(err)
	}
}

// process makes a process with a network namespace of its own.
func (n *node) process(pid int, start uint64, cgroup, dev string) {
	n.t.Helper()
	dir := fmt.Sprintf("proc/%d/", pid)
	n.file(dir+"stat", fmt.Sprintf("%d (odd) name) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, start))
	n.file(dir+"cgroup", cgroup)
	n.file(dir+"net/dev", dev)
	n.file(dir+"mountinfo", fmt.Sprintf("%d 1 0:21 / / rw - overlay overlay rw\n", 1000+pid))
}

// joins makes a process be in the other's network namespace: its file is the same.
func (n *node) joins(pid, other int) {
	n.t.Helper()
	n.remove(fmt.Sprintf("proc/%d/net/dev", pid))
	if err := os.Link(n.path(fmt.Sprintf("proc/%d/net/dev", other)), n.path(fmt.Sprintf("proc/%d/net/dev", pid))); err != nil {
		n.t.Fatal(err)
	}
}

// uses puts the process on a GPU.
func (n *node) uses(pid int, start uint64, o collector.Owner, uuid string) {
	n.snap.Processes = append(n.snap.Processes, collector.Process{PID: pid, Start: start, UUID: uuid, Owner: o})
}

// sample looks once, by owner.
func (n *node) sample() map[string]collector.Workload {
	n.t.Helper()
	if n.source == nil {
		var err error
		if n.source, err = New(n.cfg); err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() {
			if err := n.source.Close(); err != nil {
				n.t.Error(err)
			}
		})
	}
	part, err := n.source.Sample(context.Background())
	if err != nil {
		n.t.Fatalf("a look at owners fails: %v", err)
	}
	out := map[string]collector.Workload{}
	for _, w := range part.Workloads {
		out[w.Owner.String()] = w
		for _, d := range metric.Of(metric.Workload) {
			for i := range d.Width() {
				if v := w.ValueAt(d, i); !math.IsNaN(v) && !d.Plausible(v) {
					n.t.Errorf("%s: %s[%d] = %v is outside of its range", w.Owner, d, i, v)
				}
			}
		}
		for _, c := range w.Caveats {
			if !slices.Contains(metric.WorkloadFact, c.Fact) || !slices.Contains(metric.CaveatReason, c.Reason) {
				n.t.Errorf("caveat %+v is not in the catalogue", c)
			}
		}
	}
	return out
}

// is checks one value; NaN stands for absent.
func (n *node) is(w collector.Workload, d *metric.Def, at int, want float64) {
	n.t.Helper()
	if got := w.ValueAt(d, at); math.Abs(got-want) > 1e-9 || math.IsNaN(got) != math.IsNaN(want) {
		n.t.Errorf("%s: %s[%d] = %v, want %v (caveats %v)", w.Owner, d, at, got, want, w.Caveats)
	}
}

func (n *node) says(w collector.Workload, fact, reason string) {
	n.t.Helper()
	if !slices.Contains(w.Caveats, collector.Caveat{Fact: fact, Reason: reason}) {
		n.t.Errorf("%s: nothing says that %s is %s, only %v", w.Owner, fact, reason, w.Caveats)
	}
}

var absent = math.NaN()

const (
	podPath   = "/kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_00000000000a.slice"
	container = "/cri-containerd-1111111111111111111111111111111111111111111111111111111111111111.scope"
)

var pod = collector.Owner{Kind: "pod", ID: "nlp/train-0", Team: "nlp"}

// group makes a control group with the facts of the recorded one.
func (n *node) group(dir string) {
	n.t.Helper()
	for _, name := range []string{"io.stat", "cpu.stat", "memory.events"} {
		n.file("sys/fs/cgroup"+dir+"/"+name, recorded(n.t, "cgroup2/"+name))
	}
	n.file("sys/fs/cgroup"+dir+"/memory.stat", "anon 1000\nfile 99999\nshmem 200\n")
}

func recorded(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
