package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// within opens a root directory with the files; it skips where the kernel cannot.
func within(t *testing.T, files map[string]string) (*root, string) {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, files)
	r, err := openRoot(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.close() })
	if _, err := r.at("/", unix.O_PATH); errors.Is(err, errNoOpenat2) || errors.Is(err, unix.EPERM) {
		t.Skip("this kernel, or a filter of system calls, has no openat2")
	}
	return r, dir
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

func TestNoPathLeadsOutOfAProcessRoot(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, dir := within(t, map[string]string{"data/in": "inside", "real/file": "through a link"})
	link(t, secret, filepath.Join(dir, "absolute"))
	link(t, filepath.Dir(secret), filepath.Join(dir, "dir"))
	link(t, strings.Repeat("../", 40)+secret[1:], filepath.Join(dir, "up"))
	link(t, "loop2", filepath.Join(dir, "loop1"))
	link(t, "loop1", filepath.Join(dir, "loop2"))
	link(t, "/real", filepath.Join(dir, "moved"))
	link(t, "/proc/self/root", filepath.Join(dir, "magic"))

	for _, name := range []string{"absolute", "dir/secret", "up", "loop1", "loop1/x", "magic" + secret, "../" + strings.Repeat("../", 40) + secret[1:], "data", "nothing", ""} {
		if content, err := r.read(name, 100); err == nil {
			t.Errorf("%q was opened below a process's root and gave %q", name, content)
		}
	}
	for name, want := range map[string]string{"data/in": "inside", "/data/../data/in": "inside", "moved/file": "through a link", "../../data/in": "inside"} {
		if content, err := r.read(name, 100); err != nil || string(content) != want {
			t.Errorf("%q gave %q, %v; want %q", name, content, err, want)
		}
	}
}

func TestMagicLinksAreNotFollowed(t *testing.T) {
	r, err := openRoot(unix.AT_FDCWD, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.at("/", unix.O_PATH); errors.Is(err, errNoOpenat2) {
		t.Skip("this kernel has no openat2")
	}
	if _, err := r.begin("/proc/self/status", 10); err != nil {
		t.Fatalf("a plain file of procfs: %v", err)
	}
	for _, name := range []string{"/proc/self/root/proc/version", "/proc/self/cwd/root_test.go", "/proc/self/exe"} {
		if _, err := r.begin(name, 10); err == nil {
			t.Errorf("%s was followed: it leads out of any root", name)
		}
	}
}

// TestOnlyRegularFilesAreOpened has a time limit: opening a pipe that nobody writes
// to would last for ever.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	r, dir := within(t, map[string]string{"file": "x"})
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	names := []string{"fifo", "."}
	if err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err == nil {
		names = append(names, "device")
	} else {
		t.Logf("without a device: making one takes privileges: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, name := range names {
			if _, err := r.read(name, 10); !errors.Is(err, errNotRegular) {
				t.Errorf("%s: %v, want that it is not a regular file", name, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a file that is none keeps the reader waiting")
	}
}

func TestFilesAreReadUpToALimit(t *testing.T) {
	r, dir := within(t, map[string]string{"exact": "12345"})
	big, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(big.Truncate(1<<40), big.Close()); err != nil {
		t.Skipf("this file system has no file of a terabyte: %v", err)
	}
	if _, err := r.read("big", 1000); !errors.Is(err, errTooLarge) {
		t.Errorf("a file of a terabyte: %v, want that it is too large", err)
	}
	if b, err := r.begin("big", 1000); err != nil || len(b) != 1000 {
		t.Errorf("the beginning of a file of a terabyte: %d bytes, %v", len(b), err)
	}
	if b, err := r.read("exact", 5); err != nil || string(b) != "12345" {
		t.Errorf("a file as large as it may be: %q, %v", b, err)
	}
	if names, err := r.list("/", 1); err != nil || len(names) != 1 {
		t.Errorf("a directory of which one name is asked for: %q, %v", names, err)
	}
	if _, err := r.list("exact", 1); err == nil {
		t.Error("a file was listed as a directory")
	}
	if _, err := r.read("missing", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
