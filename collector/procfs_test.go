package collector

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// writeFile puts a file below a directory.
func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T, proc, ns string) {
	t.Helper()
	dir := filepath.Join(proc, "self", "ns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ns, filepath.Join(dir, "pid")); err != nil {
		t.Fatal(err)
	}
}

func TestHostPIDs(t *testing.T) {
	const (
		kthreadd = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0\n"
		faked    = "2 (kthreadd) S 0 2 2 0 -1 4194560 0 0 0 0\n" // a process that calls itself so
		odd      = "2 (k) 1 2129984) S 0 2 2 0 -1 4194560 0 0\n"
	)
	for name, c := range map[string]struct {
		ns, second string
		want, bad  bool
	}{
		"on the host":                             {"pid:[4026531836]", kthreadd, true, false},
		"on the host, which hides processes":      {"pid:[4026531836]", "", true, false},
		"a container":                             {"pid:[4026532501]", faked, false, false},
		"a container with the host's /proc":       {"pid:[4026532501]", kthreadd, true, false},
		"a container with one process":            {"pid:[4026532501]", "", false, false},
		"a name with a bracket":                   {"pid:[4026532501]", odd, false, false},
		"the host's /proc, which this is not in":  {"", kthreadd, true, false},
		"nothing at all":                          {"", "", false, false},
		"a file that is cut short":                {"", "2 (kthreadd) S 0", false, true},
		"a file that is none of the kernel's own": {"", "2 (kthreadd) S 0 0 0 0 -1 what 0", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			if c.ns != "" {
				namespace(t, proc, c.ns)
			}
			if c.second != "" {
				writeFile(t, proc, "2/stat", c.second)
			}
			got, err := HostPIDs(proc)
			if got != c.want || (err != nil) != c.bad {
				t.Errorf("HostPIDs = %v, %v, want %v and an error: %v", got, err, c.want, c.bad)
			}
		})
	}
}

func TestBootID(t *testing.T) {
	proc := t.TempDir()
	if _, err := BootID(proc); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a procfs without an id of the boot gives %v, want that it is not there", err)
	}
	const id = "54422fd4-3524-4403-a5dd-0a4c959237bd"
	writeFile(t, proc, "sys/kernel/random/boot_id", id+"\n")
	if got, err := BootID(proc); got != id || err != nil {
		t.Errorf("the id of the boot is %q, %v, want %q", got, err, id)
	}
}
