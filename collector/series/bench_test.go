package series

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"gpuvigil/collector/scrape"
)

// fleet is a made-up fleet as dcgm-exporter tells of it: nodes of eight GPUs with 60
// series each.
func fleet(nodes int) [][]Label {
	names := scrape.NewNames().OfGPUs()
	names = slices.DeleteFunc(names, func(n string) bool { return n[:8] != "DCGM_FI_" })
	var plain []string
	for _, n := range names {
		if len(plain) < 60 && n != "DCGM_FI_DEV_XID_ERRORS" {
			plain = append(plain, n)
		}
	}
	var all [][]Label
	for n := range nodes {
		host := fmt.Sprintf("gpu-node-%05d", n)
		for g := range 8 {
			for _, name := range plain {
				all = append(all, []Label{{"__name__", name}, {"DCGM_FI_DRIVER_VERSION", "570.124.06"}, {"Hostname", host},
					{"UUID", fmt.Sprintf("GPU-%08x-0000-4000-8000-%012d", n, g)}, {"container", "trainer"}, {"device", fmt.Sprintf("nvidia%d", g)}, {"gpu", fmt.Sprint(g)},
					{"instance", host + ":9400"}, {"job", "dcgm-exporter"}, {"modelName", "NVIDIA H100 80GB HBM3"}, {"namespace", "vision"}, {"pci_bus_id", fmt.Sprintf("00000000:%02X:00.0", g)}, {"pod", "train-0"}})
			}
		}
	}
	return all
}

// BenchmarkFleet is the cost of a sample in the steady state, with its share of the
// snapshots, and the memory of a series beside them.
func BenchmarkFleet(b *testing.B) {
	for _, nodes := range []int{13, 125, 1250} {
		for _, how := range []string{"handles", "labels"} {
			b.Run(fmt.Sprintf("gpus=%d/%s", nodes*8, how), func(b *testing.B) {
				labels := fleet(nodes)
				before := heap()
				a := New(Config{})
				handles := make([]*Series, len(labels))
				for i, l := range labels {
					handles[i] = a.Series(l)
				}
				perSeries := float64(heap()-before) / float64(len(labels))
				at := noon
				round := func() {
					at = at.Add(15 * time.Second)
					for i, h := range handles {
						if how == "labels" {
							h = a.Series(labels[i])
						}
						a.Add(h, at, float64(40+i%7))
					}
					a.Snapshots(at)
				}
				round()
				b.ResetTimer()
				begun := processor(b)
				for range b.N {
					round()
				}
				b.StopTimer()
				b.ReportMetric(float64(processor(b)-begun)/float64(b.N)/float64(len(labels)), "cpu-ns/sample")
				b.ReportMetric(perSeries, "B/series")
				runtime.KeepAlive(a)
			})
		}
	}
}

// processor is the processor time so far, in nanoseconds, the garbage collector's with
// it: on a busy machine the clock tells little.
func processor(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
