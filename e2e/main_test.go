// Package e2e tests the real binary as its users meet it: with a driver (a fake
// one, loaded by the real go-nvml), under a real Prometheus, in front of a
// stand-in for Slack, and with everything that can be wrong around it.
//
// It is a module of its own, so that what only tests need stays out of the
// product's.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gpuvigil/internal/fakenvml"
)

var update = flag.Bool("update", false, "rewrite docs/page.png with the page as it is now")

// What is built once for all tests.
var (
	binary  string // gpuvigil
	library string // the fake libnvidia-ml.so.1
)

// toolsDir is where `make tools` puts the pinned Prometheus.
const toolsDir = "tools/bin"

// atOnce is how many tests run side by side. They wait for most of the time, so
// the number of CPUs, which is the default, would be too few.
const atOnce = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gpuvigil-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err == nil && !given("test.parallel") {
		err = flag.Set("test.parallel", atOnce)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer demoNode.stop()
	return m.Run()
}

func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func build(dir string) error {
	binary = filepath.Join(dir, "gpuvigil")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/gpuvigil")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-Wno-deprecated-declarations")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build gpuvigil: %w\n%s", err, out)
	}
	var err error
	library, err = fakenvml.Build(context.Background(), dir, fakenvml.Options{})
	return err
}

// tool returns the path of one of the pinned tools.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(toolsDir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%s is not built: %v; run `make tools`", name, err)
	}
	return path
}
