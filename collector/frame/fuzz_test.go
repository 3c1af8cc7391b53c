package frame

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
)

// FuzzRead gives the reader any bytes. What it takes must survive another round.
func FuzzRead(f *testing.F) {
	f.Add(encodeParts(f, fullPart()))
	f.Add(encodeParts(f, &collector.Part{}, &collector.Part{Time: noon}))
	f.Add(otherRelease(schema{tiers: []string{"fast"}, columns: []column{{"gpu", "x", nil}}}, []float64{1}))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for range 100 {
			p, err := r.Read()
			if p == nil && err == nil {
				t.Fatal("neither a part nor an error")
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			if err == nil {
				roundTrip(t, p)
			}
		}
	})
}

// FuzzPayload is past the checksum, which a fuzzer does not get right by itself.
func FuzzPayload(f *testing.F) {
	for _, p := range []*collector.Part{{}, fullPart()} {
		stream := encodeParts(f, p)
		f.Add(stream[len(appendHeader(nil, catalogue()))+frameLen:])
	}
	m, err := newMapping(catalogue())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := decoder{mapping: m, known: make(map[string]string)}
		p, err := d.part(b)
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1000*len(b)); got > limit {
			t.Errorf("%d bytes of payload made the reader allocate %d KiB", len(b), got>>10)
		}
		if err == nil {
			roundTrip(t, p)
		}
	})
}

func roundTrip(t *testing.T, p *collector.Part) {
	t.Helper()
	got, err := readAll(encodeParts(t, p))
	if !errors.Is(err, io.EOF) || len(got) != 1 {
		t.Fatalf("a part that was read cannot be written and read again: %d parts, %v", len(got), err)
	}
	if diff := cmp.Diff(p, got[0], same); diff != "" {
		t.Fatalf("a part changes when it is written and read again:\n%s", diff)
	}
}
