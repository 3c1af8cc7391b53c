package remotewrite

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector/series"
)

// gpuSeries are 60 series of one GPU as dcgm-exporter and Kubernetes label them.
func gpuSeries(gpu int, rng *rand.Rand) (out []sent) {
	for i := range 60 {
		out = append(out, sent{
			named(fmt.Sprintf("DCGM_FI_DEV_METRIC_%02d", i), "DCGM_FI_DRIVER_VERSION", "570.124.06", "Hostname", fmt.Sprintf("node-%05d", gpu/8),
				"UUID", fmt.Sprintf("GPU-%08x-1111-2222-3333-%012x", gpu, gpu), "container", "dcgm-exporter", "device", fmt.Sprintf("nvidia%d", gpu%8),
				"endpoint", "metrics", "gpu", fmt.Sprint(gpu%8), "instance", fmt.Sprintf("10.1.%d.%d:9400", gpu/8/250, gpu/8%250), "job", "dcgm-exporter",
				"modelName", "NVIDIA H100 80GB HBM3", "namespace", "gpu-operator", "pci_bus_id", "00000000:1B:00.0", "pod", fmt.Sprintf("dcgm-exporter-%05x", gpu/8), "service", "dcgm-exporter"),
			[]sample{{0, rng.NormFloat64()}},
		})
	}
	return out
}

// BenchmarkRequest takes requests of 2,000 series, as Prometheus sends them, whose labels
// are known. The goal is 40,000 samples a second on a small part of one core.
func BenchmarkRequest(b *testing.B) {
	run := func(name, kind string, encode func(...sent) []byte) {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			var names []string
			var series []sent
			for g := range 34 {
				series = append(series, gpuSeries(g, rng)...)
			}
			series = series[:2000]
			for _, s := range series[:60] {
				names = append(names, s.labels[0].Value)
			}
			at := time.Now().UnixMilli()
			for i := range series {
				series[i].samples[0].at = at
			}
			body := packed(encode(series...))
			r := receiver(newBook(names...), Limits{Pending: 1 << 40})
			handler := r.Handler()
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(http.MethodPost, "/api/v1/write", bytes.NewReader(body))
				req.Header.Set("Content-Type", kind)
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, req); w.Code != 204 {
					b.Fatalf("answer %d: %s", w.Code, w.Body)
				}
				r.mu.Lock()
				r.pending = r.pending[:0]
				r.mu.Unlock()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/sample")
			b.ReportMetric(float64(len(body))/2000, "bytes/sample")
		})
	}
	run("v1", firstType, first)
	run("v2", secondType, func(s ...sent) []byte { return second(b, s...) })
}

// silent is an assembler that does nothing.
type silent struct{ *book }

func (silent) Add(*series.Series, time.Time, float64) {}

// BenchmarkCut cuts 600,000 samples, those of 10,000 GPUs, that came in no order.
func BenchmarkCut(b *testing.B) {
	r := receiver(newBook("up"), Limits{})
	r.cfg.Assembler = silent{newBook("up")}
	rng := rand.New(rand.NewPCG(1, 2))
	var all []waiting
	for i := range 600_000 {
		all = append(all, waiting{&entry{labels: named("up", "i", fmt.Sprint(i))}, sample{int64(i/2000)*50 + rng.Int64N(5000), 1}})
	}
	r.pending = append(r.pending, all...)
	r.Cut(time.UnixMilli(1 << 40)) // the series are new once
	b.ReportAllocs()
	for b.Loop() {
		r.pending = append(r.pending[:0], all...)
		r.Cut(time.UnixMilli(1 << 40))
	}
}

// BenchmarkInterval is all there is to do for 1,000 GPUs each 15 s: 60,000 samples are
// received, and snapshots made of them by the assembler that is used in earnest.
func BenchmarkInterval(b *testing.B) {
	const gpus = 1000
	assembler := series.New(series.Config{})
	var names []string
	for _, name := range assembler.Metrics() {
		if strings.HasPrefix(name, "DCGM_FI_") && len(names) < 60 {
			names = append(names, name)
		}
	}
	r := New(Config{Interval: 15 * time.Second, Grace: time.Second, Keep: 5 * time.Minute, Assembler: assembler, Log: slog.New(slog.DiscardHandler)})
	rng := rand.New(rand.NewPCG(1, 2))
	var all []sent
	for g := range gpus {
		for i, s := range gpuSeries(g, rng) {
			s.labels[0].Value = names[i%len(names)]
			all = append(all, s)
		}
	}
	handler, at := r.Handler(), time.Now().Add(-4*time.Minute)
	interval := func() {
		at = at.Add(time.Millisecond) // so that a long run does not leave the present
		for i := range all {
			all[i].samples[0].at = at.UnixMilli()
		}
		b.StopTimer()
		var bodies [][]byte
		for part := range slices.Chunk(all, 2000) {
			bodies = append(bodies, packed(first(part...)))
		}
		b.StartTimer()
		for _, body := range bodies {
			req := httptest.NewRequest(http.MethodPost, "/api/v1/write", bytes.NewReader(body))
			req.Header.Set("Content-Type", firstType)
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, req); w.Code != 204 {
				b.Fatalf("answer %d: %s", w.Code, w.Body)
			}
		}
		if got := r.Cut(at); len(got) != gpus/8 {
			b.Fatalf("%d snapshots, want one of each of %d nodes", len(got), gpus/8)
		}
	}
	interval() // the series are new once
	b.ReportAllocs()
	for b.Loop() {
		interval()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/sample")
}
