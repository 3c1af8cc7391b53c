//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// What tells a re-executed test binary that it is the child process, because a
// process binds one libnvidia-ml for ever.
const (
	envLibrary   = "NVML_TEST_LIBRARY"
	envProcFS    = "NVML_TEST_PROCFS"
	envInitLimit = "NVML_TEST_INIT_LIMIT"
	envFull      = "NVML_TEST_FULL"
)

const inventoryEvery = 200 * time.Millisecond

// patience is for a machine that is busy with everything else.
const patience = 60 * time.Second

var libraries struct {
	sync.Mutex
	dir   string
	built map[string]string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if lib := os.Getenv(envLibrary); lib != "" {
		return serveChild(lib)
	}
	dir, err := os.MkdirTemp("", "nvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	libraries.dir, libraries.built = dir, map[string]string{}
	return m.Run()
}

// serveChild is the child process: Serve as the product runs it, only faster.
func serveChild(lib string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	limit, err := time.ParseDuration(os.Getenv(envInitLimit))
	if err == nil {
		err = Serve(ctx, os.Stdout, Config{
			LibraryPath: lib,
			ProcFS:      os.Getenv(envProcFS),
			Tiers: [metric.Tiers]time.Duration{
				metric.Fast: 20 * time.Millisecond, metric.Slow: 60 * time.Millisecond, metric.Inventory: inventoryEvery,
			},
			Full:        os.Getenv(envFull) == "true",
			CallLimit:   400 * time.Millisecond,
			InitLimit:   limit,
			Histograms:  true,
			Log:         slog.New(slog.NewTextHandler(os.Stderr, nil)),
			lostBackoff: 100 * time.Millisecond,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 3
	}
	return 0
}

// library builds the fake library that lacks the given functions.
func fakeLibrary(t *testing.T, without ...string) string {
	t.Helper()
	libraries.Lock()
	defer libraries.Unlock()
	slices.Sort(without)
	key := fmt.Sprint(without)
	if libraries.built[key] == "" {
		dir, err := os.MkdirTemp(libraries.dir, "lib")
		if err != nil {
			t.Fatal(err)
		}
		lib, err := fakenvml.Build(t.Context(), dir, fakenvml.Options{WithoutSymbols: without})
		if err != nil {
			t.Fatal(err)
		}
		libraries.built[key] = lib
	}
	return libraries.built[key]
}
