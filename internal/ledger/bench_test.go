package ledger

import (
	"testing"
	"time"

	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
)

// BenchmarkObserve books a second of eight GPUs, one of which is shared.
func BenchmarkObserve(b *testing.B) {
	bench := newBench(b, price.Config{})
	n := at(start, 8)
	for gpu := range 8 {
		n.process(gpu, "", train, 0.9, 1e10)
		n.GPUs[gpu].Set(metric.SMActivity, 0.9)
	}
	n.process(4, "", chat, 0.1, 1e10)
	b.ReportAllocs()
	for b.Loop() {
		n.Time = n.Time.Add(time.Second)
		bench.Observe(n.Snapshot)
		if n.Time.Sub(start)%(24*time.Hour) == 0 {
			bench.write()
		}
	}
}
