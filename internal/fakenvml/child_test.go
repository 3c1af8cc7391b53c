//go:build cgo

package fakenvml_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/fakenvml"
)

// envLibrary tells a re-executed test binary that it is the child, and which library to bind.
const envLibrary = "FAKENVML_TEST_LIBRARY"

// complete is the library with every symbol, built once for all tests of the parent.
var complete string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(envLibrary) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "fakenvml")
	if err == nil {
		defer os.RemoveAll(dir)
		complete, err = fakenvml.Build(context.Background(), dir, fakenvml.Options{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// A node is what a test sees in the child: the library, bound but not initialised, and the values that it serves.
type node struct {
	*testing.T
	nvml  nvml.Interface
	file  *fakenvml.File
	path  string
	trace string
}

// inChild runs the test's body in a process of its own, which alone may bind the library, and fails if that fails.
func inChild(t *testing.T, body func(n *node)) {
	t.Helper()
	if lib := os.Getenv(envLibrary); lib != "" {
		n := &node{T: t, nvml: nvml.New(nvml.WithLibraryPath(lib)), file: &fakenvml.File{}}
		n.path, n.trace = os.Getenv(fakenvml.EnvFile), os.Getenv(fakenvml.EnvTrace)
		body(n)
		return
	}
	if out, err := spawn(t, complete); err != nil {
		t.Fatalf("in the process that loaded the fake library: %v\n%s", err, out)
	}
}

// spawn re-executes the running test as a child that binds lib, and returns what it printed.
func spawn(t *testing.T, lib string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), envLibrary+"="+lib,
		fakenvml.EnvFile+"="+filepath.Join(dir, "values"), fakenvml.EnvTrace+"="+filepath.Join(dir, "trace"))
	out, err := cmd.CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		err = errors.New("the child ran no test of this name")
	}
	return string(out), err
}

func (n *node) write() {
	n.Helper()
	if err := n.file.Write(n.path); err != nil {
		n.Fatal(err)
	}
}

// start writes the values with the given number of GPUs and initialises NVML.
func (n *node) start(gpus int) {
	n.Helper()
	n.file.Set(fakenvml.Sys, "nvmlDeviceGetCount_v2", gpus)
	for i := range gpus {
		n.file.Set(fakenvml.GPU(i), "nvmlDeviceGetUUID", fmt.Sprintf("GPU-%08d", i))
	}
	n.write()
	n.ok("initialise", n.nvml.Init())
}

func (n *node) gpu(index int) nvml.Device {
	n.Helper()
	device, ret := n.nvml.DeviceGetHandleByIndex(index)
	n.ok(fmt.Sprintf("find GPU %d", index), ret)
	return device
}

func (n *node) ok(what string, ret nvml.Return) {
	n.Helper()
	n.answers(what, ret, nvml.SUCCESS)
}

func (n *node) answers(what string, got, want nvml.Return) {
	n.Helper()
	if got != want {
		n.Fatalf("%s: NVML answers %d (%v), want %d", what, got, got, want)
	}
}

// called waits until the library has seen a call.
func (n *node) called(entity, key string) {
	n.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		calls, err := fakenvml.ReadTrace(n.trace)
		if err != nil {
			n.Fatal(err)
		}
		for _, c := range calls {
			if c.Entity == entity && c.Key == key && c.PID == os.Getpid() {
				return
			}
		}
	}
	n.Fatalf("the trace shows no call of %s on %s", key, entity)
}
