package series

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/internal/metric"
)

// noon is when the first samples are of.
var noon = time.Unix(1796040000, 0).UTC()

// sample is one sample of a page, with its labels.
type sample struct {
	labels []Label
	value  float64
}

// samples reads a page in the text format; each sample also has the labels that a
// Prometheus would add.
func samples(t testing.TB, page []byte, added ...Label) []sample {
	t.Helper()
	var out []sample
	lines := exposition.NewLines(bufio.NewReader(bytes.NewReader(page)))
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		name, rest := exposition.Name(line)
		if name == nil {
			continue
		}
		labels, v, err := exposition.Sample(rest, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := sample{labels: append([]Label{{"__name__", string(name)}}, added...), value: v}
		for _, l := range labels {
			s.labels = append(s.labels, Label{string(l.Name), string(l.Value)})
		}
		out = append(out, s)
	}
}

// scraper gives an assembler one target's samples as a Prometheus does: what is not on
// the page any more ends.
type scraper struct{ before map[*Series]bool }

func (p *scraper) add(a *Assembler, at time.Time, all []sample) {
	now := map[*Series]bool{}
	for _, s := range all {
		one := a.Series(s.labels)
		a.Add(one, at, s.value)
		now[one] = true
	}
	for one := range p.before {
		if !now[one] {
			a.Add(one, at, math.Float64frombits(staleMarker))
		}
	}
	p.before = now
}

func recorded(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func add(a *Assembler, at time.Time, all []sample) {
	for _, s := range all {
		a.Add(a.Series(s.labels), at, s.value)
	}
}

// one returns the only snapshot.
func one(t testing.TB, all []*collector.Snapshot) *collector.Snapshot {
	t.Helper()
	if len(all) != 1 {
		var names []string
		for _, s := range all {
			names = append(names, s.Node.Name)
		}
		t.Fatalf("snapshots of %d nodes %v, there is one", len(all), names)
	}
	return all[0]
}

// target are the labels that Prometheus gives the samples of a target.
func scraped(job, instance string) []Label { return []Label{{"job", job}, {"instance", instance}} }

// sameNumbers compares readings by their numbers alone: NaN is NaN.
var sameNumbers = cmp.Options{
	cmp.Comparer(func(a, b collector.Readings) bool {
		return slices.EqualFunc(a.Vector(), b.Vector(), func(x, y float64) bool { return x == y || x != x && y != y })
	}),
	cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b }),
	cmp.Comparer(func(a, b *metric.Def) bool { return a == b }),
}
