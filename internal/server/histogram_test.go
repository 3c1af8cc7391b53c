package server

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"gpuvigil/collector"
	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// observed is a GPU whose power draw was so.
func observed(watts []float64) []collector.Distribution {
	var g bands.GPU
	for i, w := range watts {
		g.Add(bands.Power, time.Unix(int64(i), 0), w, 700)
	}
	return g.Distributions()
}

// buckets returns a native histogram's counts by the number of the bucket.
func buckets(h *dto.Histogram) map[int]int64 {
	counts := map[int]int64{}
	var at, count int64
	deltas := h.GetPositiveDelta()
	for _, span := range h.GetPositiveSpan() {
		at += int64(span.GetOffset())
		for range span.GetLength() {
			if count += deltas[0]; count != 0 {
				counts[int(at)] = count
			}
			deltas = deltas[1:]
			at++
		}
	}
	return counts
}

// A native histogram of client_golang that is fed with the same samples is the same.
func TestNativeHistogramIsThatOfClientGolang(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Help: "x", NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: metric.HistogramZero})
	samples := []float64{0, metric.HistogramZero, 0.5, 1, 2, 64, 1024, 16384}
	for range 5000 {
		samples = append(samples, 700*rng.Float64(), rng.Float64(), math.Exp(rng.Float64()*9))
	}
	for _, v := range samples {
		theirs.Observe(v)
	}
	var m dto.Metric
	if err := theirs.Write(&m); err != nil {
		t.Fatal(err)
	}
	want, got := m.Histogram, native(&observed(samples)[0])
	if diff := cmp.Diff(buckets(want), buckets(got)); diff != "" {
		t.Errorf("the buckets are others than client_golang's (-client_golang +ours):\n%s", diff)
	}
	if got.GetSchema() != want.GetSchema() || got.GetZeroThreshold() != want.GetZeroThreshold() || got.GetZeroCount() != want.GetZeroCount() ||
		got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6 {
		t.Errorf("the histogram is %v, client_golang's %v", got, want)
	}
}

func TestHistogramsOnThePage(t *testing.T) {
	w := node(soon())
	w.snap.GPUs[0].Distributions = observed([]float64{0, 300, 310, 600})
	s := w.server(t)
	e, done := s.fresh()
	defer done()
	sameText(t, e)
	series := metric.PowerSampled.Name + "_%s{gpu=\"0\",uuid=\"" + w.snap.GPUs[0].UUID + "\"} %s\n"
	text := scraped(s, "", "").Body.String()
	for part, value := range map[string]string{"count": "4", "sum": "1210"} {
		if line := strings.NewReplacer("_%s", "_"+part, "%s", value).Replace(series); !strings.Contains(text, line) {
			t.Errorf("the page as text lacks %s", line)
		}
	}
	d := expfmt.NewDecoder(scraped(s, "", prometheus3Proto).Body, expfmt.FmtProtoDelim)
	for f := new(dto.MetricFamily); ; f.Reset() {
		if err := d.Decode(f); err != nil {
			t.Fatalf("the page as protobuf has no %s: %v", metric.PowerSampled, err)
		}
		if f.GetName() != metric.PowerSampled.Name {
			continue
		}
		h := f.Metric[0].Histogram
		if f.GetType() != dto.MetricType_HISTOGRAM || h.GetZeroCount() != 1 || len(buckets(h)) != 3 || len(h.Bucket) != 0 {
			t.Errorf("the histogram is %v", f)
		}
		return
	}
}

func TestNoHistogramsUnlessAskedFor(t *testing.T) {
	if text := plainText(t, node(soon()).server(t)); strings.Contains(text, "_sampled_") {
		t.Error("there are histograms by default")
	}
}
