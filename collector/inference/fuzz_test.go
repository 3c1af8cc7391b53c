package inference

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/internal/metric"
)

func addPages(f *testing.F) {
	for _, pattern := range []string{"*.prom", "*.json", "exposition/*"} {
		files, err := filepath.Glob(filepath.Join("testdata", pattern))
		if err != nil || len(files) == 0 {
			f.Fatalf("no pages %s: %v", pattern, err)
		}
		for _, file := range files {
			page, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(page)
		}
	}
}

// Whatever a page holds, what is made of it is plausible, and a second page is no
// less.
func FuzzPage(f *testing.F) {
	addPages(f)
	f.Add([]byte("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running NaN\n"))
	all := indexes()
	f.Fuzz(func(t *testing.T, page []byte) {
		for _, want := range []string{"auto", "nim"} {
			b := newBook(all[want], want, "")
			at := time.Unix(1790000000, 0)
			for range 3 {
				at = at.Add(5 * time.Second)
				if _, err := b.read(bytes.NewReader(page)); err != nil {
					if !strings.Contains(err.Error(), "it") {
						t.Errorf("the error says nothing: %v", err)
					}
					continue
				}
				for _, e := range b.settle("http://x", nil, at) {
					for _, d := range metric.Of(metric.Endpoint) {
						for i := range d.Width() {
							if v := e.ValueAt(d, i); !math.IsNaN(v) && !d.Plausible(v) {
								t.Errorf("model %q: %s = %v", e.Model, d, v)
							}
						}
					}
					for _, h := range e.Histograms {
						if len(h.Counts) != len(h.Bounds)+1 || h.Count() != h.Counts[len(h.Bounds)] || math.IsNaN(h.Sum) {
							t.Errorf("model %q: histogram %s with bounds %v, counts %v, sum %v", e.Model, h.Row, h.Bounds, h.Counts, h.Sum)
						}
					}
					if len(e.Model) > maxName {
						t.Errorf("a model's name has %d bytes", len(e.Model))
					}
				}
			}
		}
	})
}

func FuzzSockets(f *testing.F) {
	f.Add([]byte("  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 123456 1 0 100 0 0 10 0\n"))
	f.Add([]byte("123 (a b) c) S 1 2 3 4 5\n"))
	f.Add([]byte("Local:\n  +-- 10.0.0.0/8 2 0 2\n     |-- 10.0.0.5\n        /32 host LOCAL\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, l := range parseListening(content) {
			if !l.at.IsValid() || l.inode == 0 {
				t.Errorf("a socket without address or number: %v", l)
			}
		}
		for _, a := range parseLocal(content) {
			if !a.IsValid() || a.IsLoopback() {
				t.Errorf("%v is no address that others reach", a)
			}
		}
		parseStat(content)
	})
}
