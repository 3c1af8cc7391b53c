package exposition

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func addPages(f *testing.F) {
	for _, pattern := range []string{"*.prom", "exposition/*"} {
		files, err := filepath.Glob(filepath.Join("..", "inference", "testdata", pattern))
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

// Where Prometheus's own parser reads a page, ours reads the same numbers and
// labels from it.
func FuzzSampleAgainstExpfmt(f *testing.F) {
	addPages(f)
	f.Add([]byte("a{b=\"c\\\\\\\"\\nd\",e=\"}\",} 1.5e3 17\nu 3\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
		if err != nil {
			return
		}
		theirs := map[string]float64{}
		for name, family := range families {
			for _, m := range family.Metric {
				var v float64
				switch {
				case m.Gauge != nil:
					v = m.Gauge.GetValue()
				case m.Counter != nil:
					v = m.Counter.GetValue()
				case m.Untyped != nil:
					v = m.Untyped.GetValue()
				default:
					continue
				}
				theirs[name+"|"+labelsOf(m)] = v
			}
		}
		ours := map[string]float64{}
		for line := range bytes.Lines(page) {
			name, rest := Name(bytes.TrimSuffix(line, []byte("\n")))
			if name == nil {
				continue
			}
			if labels, v, err := Sample(rest, nil); err == nil {
				ours[string(name)+"|"+ownLabels(labels)] = v
			}
		}
		for key, v := range theirs {
			if got, ok := ours[key]; !ok || got != v && !(math.IsNaN(got) && math.IsNaN(v)) {
				t.Errorf("%q is %v for Prometheus and %v (%v) for us", key, v, got, ok)
			}
		}
	})
}

func labelsOf(m *dto.Metric) string {
	all := map[string]string{}
	for _, l := range m.Label {
		all[l.GetName()] = l.GetValue()
	}
	return canonical(all)
}

func ownLabels(labels []Label) string {
	all := map[string]string{}
	for _, l := range labels {
		all[string(l.Name)] = string(l.Value)
	}
	return canonical(all)
}

func canonical(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%q,", name, labels[name])
	}
	return b.String()
}
