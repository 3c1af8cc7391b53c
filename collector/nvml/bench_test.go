//go:build linux && cgo

package nvml

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector/frame"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

const envBench = "NVML_BENCH"

// BenchmarkTiers samples through the real go-nvml and the fake library: what is
// measured is this side of the driver, and the fake, whose own look-ups take most
// of the time: own-ns/op is without the time inside calls of go-nvml. A process
// binds one library, so each benchmark runs in a process of its own.
func BenchmarkTiers(b *testing.B) {
	for _, c := range []struct {
		name      string
		gpus, mig int
		processes int
	}{
		{"8GPUs", 8, 0, 0},
		{"8GPUs-56MIG-500processes", 8, 7, 500},
	} {
		b.Run(c.name, func(b *testing.B) {
			if os.Getenv(envBench) == c.name {
				benchTiers(b, c.gpus)
				return
			}
			runAlone(b, c.name, c.gpus, c.mig, c.processes)
		})
	}
}

// runAlone runs the benchmark in a process that loads the library.
func runAlone(b *testing.B, name string, gpus, mig, processes int) {
	dir := b.TempDir()
	lib, err := fakenvml.Build(b.Context(), dir, fakenvml.Options{})
	if err != nil {
		b.Fatal(err)
	}
	n := &node{}
	n.Set(fakenvml.Sys, "nvmlDeviceGetCount_v2", gpus)
	n.Set(fakenvml.Sys, "nvmlSystemGetDriverVersion", "580.65.06")
	for i := range gpus {
		n.fill(i)
		for slot := range mig {
			n.slice(i, slot)
			for _, id := range []int{1, 2, 3, 5, 10} {
				n.Set(fakenvml.MIG(i, slot), fakenvml.Key("gpm", id), 50)
			}
			n.Set(fakenvml.MIG(i, slot), gpmSupport, 1)
		}
	}
	for p := range processes {
		n.Add(fakenvml.MIG(p%gpus, p/gpus%mig), computeList, 100_000+p, 1<<28, 7+p/gpus%mig, 0)
	}
	file := filepath.Join(dir, "values")
	if err := n.Write(file); err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkTiers$/^"+name+"$", "-test.benchtime=300ms")
	cmd.Env = append(os.Environ(), envBench+"="+name, envBenchLibrary+"="+lib, fakenvml.EnvFile+"="+file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	fmt.Printf("%s", out)
}

const envBenchLibrary = "NVML_BENCH_LIBRARY"

func benchTiers(b *testing.B, gpus int) {
	open := func() (library, error) { return nvml.New(nvml.WithLibraryPath(os.Getenv(envBenchLibrary))), nil }
	s, err := newSession(open, Config{ProcFS: "testdata/proc", Log: slog.New(slog.DiscardHandler)}.withDefaults())
	if err != nil {
		b.Fatal(err)
	}
	srv := &server{session: s, hanging: map[int]bool{}}
	for slot := range gpus {
		srv.workers = append(srv.workers, newWorker(s, slot))
	}
	now := time.Now()
	for range 3 { // learn what is not supported
		now = now.Add(time.Minute)
		for _, w := range srv.workers {
			w.round(b.Context(), now)
		}
	}
	for t := range metric.Tiers {
		b.Run(t.String(), func(b *testing.B) {
			calls, inside := s.account.calls.Load(), s.account.nanoseconds.Load()
			gpm := &s.account.functions[s.account.index[gpmMetrics]]
			gpmCalls, gpmInside := gpm.calls.Load(), gpm.nanoseconds.Load()
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Second)
				for _, w := range srv.workers {
					w.sample(b.Context(), t, now)
				}
			}
			b.ReportMetric(float64(s.account.calls.Load()-calls)/float64(b.N)/float64(gpus), "calls/GPU")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds()-s.account.nanoseconds.Load()+inside)/float64(b.N), "own-ns/op")
			if n := gpm.calls.Load() - gpmCalls; n > 0 {
				b.ReportMetric(float64(gpm.nanoseconds.Load()-gpmInside)/float64(n), "gpm-ns/call")
			}
		})
	}
	b.Run("compose and encode", func(b *testing.B) {
		for _, w := range srv.workers {
			w.publish()
		}
		w := frame.NewWriter(io.Discard)
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Write(srv.compose(now)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
