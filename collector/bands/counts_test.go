package bands

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestEachSampleIsInItsBucket(t *testing.T) {
	f := func(v float64, bucket int) {
		t.Helper()
		var c counts
		c.add(v)
		d := c.distribution(metric.PowerSampled)
		if d.First != bucket || len(d.Buckets) != 1 || d.Buckets[0] != 1 || d.Zero != 0 || d.Sum != v {
			t.Errorf("%v is counted as %+v, want it in bucket %d", v, d, bucket)
		}
	}
	f(1, 0)
	f(math.Nextafter(1, 2), 1)
	f(0.5, -8)
	f(0.51, -7)
	f(2, 8)
	f(700, 76) // at most 2^(76/8) = 724
	f(20e3, 115)
	f(math.Nextafter(metric.HistogramZero, 1), metric.HistogramFirst)
	f(1<<15, metric.HistogramLast)
	f(1e9, metric.HistogramLast) // no memory for more
}

func TestDistributionsOfAGPU(t *testing.T) {
	var g GPU
	if got := g.Distributions(); got != nil {
		t.Errorf("before the first sample there are distributions: %v", got)
	}
	for i, v := range []float64{0, 1, 0.5, 1, math.NaN()} {
		g.Add(Utilization, time.Unix(int64(i), 0), v, 0)
	}
	g.Add(Utilization, time.Unix(1, 0), 0.25, 0) // was before the last one
	g.Add(SMActivity, time.Unix(1, 0), 0, 0)
	before := g.Distributions()
	want := []collector.Distribution{
		{Row: metric.UtilizationSampled, Sum: 2.5, Zero: 1, First: -8, Buckets: []uint64{1, 0, 0, 0, 0, 0, 0, 0, 2}},
		{Row: metric.SMActivitySampled, Zero: 1},
	}
	rows := cmp.Comparer(func(a, b *metric.Def) bool { return a == b })
	if diff := cmp.Diff(want, before, rows); diff != "" {
		t.Errorf("distributions (-want +got):\n%s", diff)
	}
	g.Add(Utilization, time.Unix(9, 0), 0.5, 0)
	if diff := cmp.Diff(want, before, rows); diff != "" {
		t.Errorf("what was handed out has changed (-before +after):\n%s", diff)
	}
}
