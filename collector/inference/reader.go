package inference

import (
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/internal/metric"
)

// Names are the names of the metrics of all servers that are told by their names, for
// any number of readers at once.
type Names struct{ index *index }

// NewNames compiles the table of engines.
func NewNames() *Names { return &Names{index: indexes()["auto"]} }

// All returns the names, in order.
func (n *Names) All() []string {
	names := make([]string, 0, len(n.index.samples))
	for name := range n.index.samples {
		if name != startTime { // every program has it
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Reader makes endpoints of the samples of one server's page, of one page after the
// other: between Begin and End it is given one page's samples, in whatever way they
// came. It is used from one goroutine.
type Reader struct{ target *target }

// NewReader returns a reader that has read no page yet. The URL is the page's, as it is
// shown.
func NewReader(names *Names, url string) *Reader {
	return &Reader{&target{shown: url, book: newBook(names.index, "auto", "")}}
}

// Begin begins a page.
func (r *Reader) Begin() { r.target.book.begin() }

// Wants reports whether samples of the name are of interest.
func (r *Reader) Wants(name []byte) bool { return len(r.target.book.index.samples[string(name)]) > 0 }

// Sample takes a sample of the page in. The name and labels need be good until it
// returns only. The error is a *page.Failure, after which the page says nothing.
func (r *Reader) Sample(name []byte, labels []exposition.Label, v float64) error {
	uses := r.target.book.index.samples[string(name)]
	if len(uses) == 0 {
		return nil
	}
	return r.target.book.take(uses, labels, v)
}

// End returns what the page says. gpus are the uuids that the server runs on, if they
// are known, snap the node as it was seen before: from it is what the GPUs have drawn.
// How long the page took and how long it was are not told. The error is a
// *page.Failure.
func (r *Reader) End(now time.Time, gpus []string, snap *collector.Snapshot) ([]collector.Endpoint, collector.Target, error) {
	t := r.target
	if err := t.book.recognised(false); err != nil {
		return nil, collector.Target{}, err
	}
	t.GPUs, t.good = gpus, now
	t.known = t.book.settle(t.shown, gpus, now)
	t.output = collector.NewReadings(metric.Target)
	t.measure(snap, now)
	told := t.health(now)
	told.Set(metric.TargetDuration, math.NaN())
	told.Set(metric.TargetBytes, math.NaN())
	return slices.Clone(t.known), told, nil
}
