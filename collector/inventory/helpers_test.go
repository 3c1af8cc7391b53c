package inventory

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// helper is the environment variable that makes the test binary be another process
// for a test: what it does is its value.
const helper = "INVENTORY_TEST_HELPER"

func TestMain(m *testing.M) {
	what, dir, _ := strings.Cut(os.Getenv(helper), ":")
	var err error
	switch what {
	case "":
		os.Exit(m.Run())
	case "map": // maps what is in the directory, as a process with libraries does
		err = mapAll(dir)
	case "namespace": // the same in a mount namespace of its own, from a file system that only it sees
		if err = unix.Mount("none", dir, "tmpfs", 0, ""); err == nil {
			if err = writeFiles(dir, wheels); err == nil {
				err = mapAll(dir)
			}
		}
	case "other": // looks at its parent without privileges
		err = lookAsNobody(os.Getppid())
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if what != "other" {
		fmt.Println("ready")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test is over
	}
}

// wheels is a directory of Python's packages, as pip leaves it.
var wheels = map[string]string{
	"usr/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so":                               "",
	"usr/lib/python3.12/site-packages/torch/version.py":                                        "__version__ = '2.9.1+cu128'\n",
	"usr/lib/python3.12/site-packages/torch-2.9.1+cu128.dist-info/METADATA":                    "Name: torch\nVersion: 2.9.1+cu128\n",
	"usr/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn_ops.so.9":                      "",
	"usr/lib/python3.12/site-packages/nvidia_cudnn_cu12-9.10.2.21.dist-info/METADATA":          "",
	"usr/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12":                 "",
	"usr/lib/python3.12/site-packages/nvidia_cuda_runtime_cu12-12.8.90.dist-info/METADATA":     "",
	"usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06":                                           "",
	"usr/lib/x86_64-linux-gnu/libnccl.so.2.27.5":                                               "",
	"usr/lib/x86_64-linux-gnu/libc.so.6":                                                       "",
	"usr/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn_graph.so.9":                    "",
	"usr/lib/python3.12/site-packages/numpy/_core/_multiarray_umath.cpython-312-x86_64.so":     "",
	"usr/lib/python3.12/site-packages/numpy-2.3.1.dist-info/METADATA":                          "",
	"usr/lib/python3.12/site-packages/vllm/_C.abi3.so":                                         "",
	"usr/lib/python3.12/site-packages/vllm-0.11.0.dist-info/METADATA":                          "",
	"usr/lib/python3.12/site-packages/vllm/_version.py":                                        "__version__ = version = '0.0.0'\n",
	"usr/lib/python3.12/site-packages/__pycache__/ignored-9.dist-info.pyc":                     "",
	"usr/lib/python3.12/site-packages/nvidia/cuda_runtime/include/cuda_runtime.h":              "",
	"usr/lib/python3.12/site-packages/nvidia_cuda_runtime_cu12-12.8.90.dist-info/entry_points": "",
}

// inWheels is what is loaded of them.
var inWheels = []string{"cuda_runtime 12.8.90", "cudnn 9.10.2.21", "libcuda 570.124.06", "nccl 2.27.5", "torch 2.9.1+cu128", "vllm 0.11.0"}

func writeFiles(dir string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := writeFiles(dir, files); err != nil {
		t.Fatal(err)
	}
}

// mapAll maps every shared library below the directory.
func mapAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.Contains(path, ".so") {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := f.Truncate(4096); err != nil {
			return err
		}
		_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
		return err
	})
}

// lookAsNobody says what a thread without privileges may read of the process. The
// thread dies with its goroutine, so that no other one has lost its rights.
func lookAsNobody(pid int) error {
	runtime.LockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, 65534, 65534, 65534); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
		return errno
	}
	p, err := openProcess("/proc", pid, 0)
	if err != nil {
		return err
	}
	nothing := newNodeMounts()
	reasons := map[string]string{}
	note := func(what string, err error) {
		reasons[what] = "read"
		if err != nil {
			reasons[what] = reasonOf(err)
		}
	}
	_, err = p.data(&nothing)
	note("mounts", err)
	_, err = p.listeners()
	note("listeners", err)
	_, err = p.status()
	note("status", err)
	_, err = p.Read("maps", 1<<20)
	note("maps", err)
	_, err = p.root()
	note("root", err)
	_, err = p.holds([]listener{{port: 1}})
	note("fd", err)
	return json.NewEncoder(os.Stdout).Encode(reasons)
}

// start runs the helper until the test is over and returns its pid once it is ready.
func start(t *testing.T, what string, attr *syscall.SysProcAttr) (*exec.Cmd, error) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"="+what)
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // it may have been ended by the test
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		return nil, fmt.Errorf("the helper says %q, %v", line, err)
	}
	return cmd, nil
}

func mustStart(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	cmd, err := start(t, what, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// words are the parts as the tests write them.
func words(parts []part) []string {
	var out []string
	for _, p := range parts {
		out = append(out, p.component+" "+p.version)
	}
	return out
}

// fakeProcess is a process in a procfs that a test makes up.
type fakeProcess struct {
	pid, start int
	mapped     string // VmLib
	maps       []string
	mounts     string
	cgroup     string
	tcp        string
	network    string // of its namespace; its own if empty
	root       string
}

func (f fakeProcess) put(t *testing.T, procfs string) {
	t.Helper()
	dir := filepath.Join(procfs, strconv.Itoa(f.pid))
	var maps strings.Builder
	for i, path := range f.maps {
		fmt.Fprintf(&maps, "%x000-%x000 r-xp 00000000 08:01 %d   %s\n", 0x7f000+i, 0x7f001+i, 100+i, path)
	}
	put(t, dir, map[string]string{
		"stat":      fmt.Sprintf("%d (py) thon) S 1 %s%d 0\n", f.pid, strings.Repeat("0 ", 17), f.start),
		"status":    "Name:\tpython\nPPid:\t1\nVmLib:\t" + f.mapped + " kB\n",
		"maps":      maps.String(),
		"mountinfo": f.mounts,
		"cgroup":    f.cgroup,
		"net/tcp":   "  sl  local_address rem_address   st\n" + f.tcp,
		"fd/.keep":  "",
	})
	for name, to := range map[string]string{"root": f.root, "exe": "/usr/bin/python3", "ns": "", "fd/3": "socket:[777]"} {
		if name == "ns" {
			if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o755); err != nil {
				t.Fatal(err)
			}
			name, to = "ns/net", cmp.Or(f.network, "net:["+strconv.Itoa(f.pid)+"]")
		}
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "fd/.keep")); err != nil {
		t.Fatal(err)
	}
}
