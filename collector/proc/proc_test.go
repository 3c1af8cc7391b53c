package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gpuvigil/collector"
)

// node is a procfs in files.
type node struct {
	t   *testing.T
	dir string
}

func (n node) write(pid int, file, content string) {
	n.t.Helper()
	path := filepath.Join(n.dir, strconv.Itoa(pid), file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func stat(start uint64) string {
	return fmt.Sprintf("7 (odd) name) 1 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", start)
}

func newNode(t *testing.T) node {
	n := node{t, t.TempDir()}
	n.write(7, "stat", stat(70))
	n.write(7, "cgroup", "0::/mine\n")
	return n
}

func (n node) link(to string, at ...string) {
	n.t.Helper()
	if err := os.Symlink(to, filepath.Join(append([]string{n.dir}, at...)...)); err != nil {
		n.t.Fatal(err)
	}
}

func TestOnlyTheProcessThatIsMeantIsOpened(t *testing.T) {
	n := newNode(t)
	n.write(8, "stat", "8 (no end")
	n.write(9, "stat", stat(90)+strings.Repeat("0 ", maxStat))
	if err := os.Mkdir(filepath.Join(n.dir, "10"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.link("7", "11")
	n.write(12, "cgroup", "")
	n.link(filepath.Join(n.dir, "7", "stat"), "12", "stat")
	for name, c := range map[string]struct {
		pid   int
		start uint64
		want  error // nil: opened
		is    bool  // a failure, of whichever kind
	}{
		"the one that is meant":             {7, 70, nil, false},
		"whoever has the pid":               {7, 0, nil, false},
		"a pid that is another's":           {7, 71, ErrReused, true},
		"a pid that nobody has":             {6, 60, ErrGone, true},
		"one that went while it was opened": {10, 100, ErrGone, true},
		"a stat that is cut short":          {8, 80, ErrMalformed, true},
		"a stat that does not end":          {9, 90, ErrTooLarge, true},
		"a link in the place of a process":  {11, 70, nil, true},
		"a link in the place of a file":     {12, 70, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Open(n.dir, c.pid, c.start)
			if (err != nil) != c.is || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("process %d that began at %d: %v, want %v, a failure: %t", c.pid, c.start, err, c.want, c.is)
			}
			if c.want == nil && c.is && errors.Is(err, ErrGone) {
				t.Errorf("it counts as ended, and is there: %v", err)
			}
			if d != nil {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if !errors.Is(ErrReused, ErrGone) {
		t.Error("who only asks whether the process is there takes another one for it")
	}
}

// The pid is given to another process after the first was opened: nothing of the
// second may be told as the first one's.
func TestPIDThatIsGivenAwayLater(t *testing.T) {
	n := newNode(t)
	d, err := Open(n.dir, 7, 70)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.RemoveAll(filepath.Join(n.dir, "7")); err != nil {
		t.Fatal(err)
	}
	n.write(7, "stat", stat(71))
	n.write(7, "cgroup", "0::/theirs\n")
	if text, err := d.Read("cgroup", 100); !errors.Is(err, ErrGone) {
		t.Errorf("of the process that ended %q was read, %v", text, err)
	}
}

func TestWhatIsReadIsBounded(t *testing.T) {
	n := newNode(t)
	n.write(7, "large", strings.Repeat("x", 101))
	n.link("/etc/passwd", "7", "passwd")
	n.link("socket:[42]", "7", "exe")
	d, err := Open(n.dir, 7, 70)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if text, err := d.Read("large", 101); err != nil || len(text) != 101 {
		t.Errorf("a file of just the limit: %d bytes, %v", len(text), err)
	}
	if _, err := d.Read("large", 100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file above the limit: %v, want that it is too large", err)
	}
	if text, err := d.Read("passwd", 1<<20); err == nil {
		t.Errorf("a link led out of the process: %d bytes of another file were read", len(text))
	}
	if to, err := d.Link("exe"); to != "socket:[42]" || err != nil {
		t.Errorf("the link points to %q, %v", to, err)
	}
	if _, err := d.Read("none", 100); !errors.Is(err, ErrGone) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What the kernel says of a process of its own that ends is what the fakes say.
func TestRealProcessThatEnds(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	any, err := Open("/proc", pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer any.Close()
	text, err := any.Read("stat", maxStat)
	if err != nil {
		t.Fatal(err)
	}
	start, err := collector.ProcessStart(string(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open("/proc", pid, start)
	if err != nil {
		t.Fatalf("the process that was asked for: %v", err)
	}
	defer d.Close()
	open, err := d.File("maps")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if root, err := d.Root(); err != nil {
		t.Errorf("its root directory: %v", err)
	} else if err := os.NewFile(uintptr(root), "root").Close(); err != nil {
		t.Error(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("/proc", pid, start); !errors.Is(err, ErrGone) {
		t.Errorf("it is opened again: %v", err)
	}
	for what, read := range map[string]func() error{
		"a file":                 func() error { _, err := d.Read("status", 1<<16); return err },
		"a link":                 func() error { _, err := d.Link("exe"); return err },
		"its root directory":     func() error { _, err := d.Root(); return err },
		"a file that was opened": func() error { _, err := io.ReadAll(open); return Gone(err) },
	} {
		// An opened file of its memory, which nobody has any more, is empty.
		if err := read(); !errors.Is(err, ErrGone) && !(what == "a file that was opened" && err == nil) {
			t.Errorf("%s of a process that has ended: %v, want that it is gone", what, err)
		}
	}
}

func TestForbiddenIsNotGone(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	n := newNode(t)
	n.write(7, "io", "")
	if err := os.Chmod(filepath.Join(n.dir, "7", "io"), 0); err != nil {
		t.Fatal(err)
	}
	d, err := Open(n.dir, 7, 70)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Read("io", 100); !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrGone) {
		t.Errorf("a file that may not be read: %v, want that it is forbidden", err)
	}
}
