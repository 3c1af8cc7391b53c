package movement

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

const limitsHead = "Limit                     Soft Limit           Hard Limit           Units     \nMax cpu time              unlimited            unlimited            seconds   \n"

// opens says how many files a process has open, as the kernel does in the size of its
// directory, and how many it may.
func (n *node) opens(pid, files int, soft string) {
	dir := "proc/" + strconv.Itoa(pid) + "/"
	n.file(dir+"fd", strings.Repeat("x", files))
	n.file(dir+"limits", limitsHead+"Max open files            "+soft+"                 1048576              files     \nMax locked memory         8388608              8388608              bytes     \n")
}

func TestOpenFiles(t *testing.T) {
	n := newNode(t)
	for pid := 100; pid < 103; pid++ {
		n.process(pid, 7, "0::"+podPath+container+"\n", hostDev)
		n.uses(pid, 7, pod, "GPU-a")
	}
	n.group(podPath)
	n.opens(100, 5000, "1048576")
	n.opens(101, 900, "1024")
	n.opens(102, 70, "unlimited")
	w := n.sample()[pod.String()]
	n.is(w, metric.WorkloadOpenFiles, 0, 900) // the one that will fail first, not the one with the most
	n.is(w, metric.WorkloadOpenFilesLimit, 0, 1024)

	n.opens(100, 50, "unlimited")
	n.opens(101, 900, "unlimited")
	w = n.sample()[pod.String()]
	n.is(w, metric.WorkloadOpenFiles, 0, 900)
	n.is(w, metric.WorkloadOpenFilesLimit, 0, absent)
	if len(w.Caveats) > 0 {
		t.Errorf("open files that can all be told have caveats: %v", w.Caveats)
	}
}

// A kernel before 6.2 tells the number to nobody: its directory has no size.
func TestOpenFilesThatAreNotTold(t *testing.T) {
	n := newNode(t)
	n.process(100, 7, "0::"+podPath+container+"\n", hostDev)
	n.uses(100, 7, pod, "GPU-a")
	n.group(podPath)
	n.opens(100, 0, "1024")
	w := n.sample()[pod.String()]
	n.is(w, metric.WorkloadOpenFiles, 0, absent)
	n.says(w, "open_files", "not_enabled")

	n.opens(100, 12, "many")
	w = n.sample()[pod.String()]
	n.is(w, metric.WorkloadOpenFiles, 0, absent)
	n.says(w, "open_files", "malformed")

	n.file("proc/100/limits", limitsHead)
	n.says(n.sample()[pod.String()], "open_files", "malformed")
}

// Both ways of counting come to the same, for a process whose files are known.
func TestOpenFilesOfThisProcess(t *testing.T) {
	dir, err := proc.Open("/proc", os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	before, err := listOpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	const more = 1500 // more than are listed at once
	for range more {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Skipf("this user may not open so many files: %v", err)
		}
		defer f.Close()
	}
	listed, err := listOpenFiles(dir)
	if got := listed - before; err != nil || got < more-50 || got > more+50 { // the runtime opens and closes some
		t.Errorf("%d files opened are %d more by the list (%v)", more, got, err)
	}
	told, err := dir.OpenFiles()
	if err != nil {
		t.Fatal(err)
	}
	if told != 0 && told < more { // 0: a kernel before 6.2
		t.Errorf("the kernel tells of %d open files, want %d at least", told, more)
	}

	n := newNode(t)
	n.cfg.ProcFS, n.cfg.Privileged = "/proc", true
	me := collector.Owner{Kind: "user", ID: "1000"}
	n.uses(os.Getpid(), 0, me, "GPU-a")
	w := n.sample()[me.String()]
	if got := w.Value(metric.WorkloadOpenFiles); !(got >= more) {
		t.Errorf("this process has %v files open, want %d at least (caveats %v)", got, more, w.Caveats)
	}
	if slices.ContainsFunc(w.Caveats, func(c collector.Caveat) bool { return c.Fact == "open_files" }) {
		t.Errorf("its own open files cannot be read: %v", w.Caveats)
	}
}

func FuzzSoftLimit(f *testing.F) {
	for _, columns := range []string{"           1024                 1048576              files", "unlimited unlimited files", "", "0", "-1", "18446744073709551615", "1e3"} {
		f.Add(columns)
	}
	f.Fuzz(func(t *testing.T, columns string) {
		if limit, err := parseSoftLimit(columns); err == nil && !(limit > 0) || err != nil && limit != 0 || math.IsNaN(limit) {
			t.Errorf("%q is a limit of %v, %v", columns, limit, err)
		}
	})
}
