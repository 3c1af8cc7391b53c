package push

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protowire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// families reads a page as a server would write it.
func families(t testing.TB, page string) []*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	byName, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var out []*dto.MetricFamily
	for _, line := range strings.Split(page, "\n") { // in the page's order
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			out = append(out, byName[strings.Fields(name)[0]])
		}
	}
	return out
}

const page = `# TYPE vigil_gpu_power_watts gauge
vigil_gpu_power_watts{uuid="GPU-1",gpu="0"} 301.5
# TYPE vigil_requests_total counter
vigil_requests_total{job="theirs",text="a \"b\" \\ c"} 12
# TYPE vigil_plain gauge
vigil_plain 1e+21
# TYPE vigil_untyped untyped
vigil_untyped{Empty="",Hostname="x"} NaN
# TYPE vigil_seconds histogram
vigil_seconds_bucket{le="0.1"} 1
vigil_seconds_bucket{le="+Inf"} 3
vigil_seconds_sum 2.5
vigil_seconds_count 3
# TYPE vigil_summary summary
vigil_summary{quantile="0.99"} 7
vigil_summary_sum 8
vigil_summary_count 9
`

func encoded(t *testing.T, e *encoder, text string, at time.Time) []*record {
	t.Helper()
	out, err := e.encode(families(t, text), at)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var asScraped = []Label{{"job", "gpuvigil"}, {"instance", "node-1"}}

// Both formats say the same, and the golden file what it is.
func TestFormatsSayTheSame(t *testing.T) {
	at := noon.Add(123 * time.Millisecond)
	text := unzip(t, encoded(t, newEncoder(Import, asScraped), page, at)[0])
	written := readWriteRequest(t, encoded(t, newEncoder(RemoteWrite, asScraped), page, at)[0])
	if diff := cmp.Diff(text, written); diff != "" {
		t.Errorf("the text (-) and remote write (+) differ:\n%s", diff)
	}
	golden := filepath.Join("testdata", "page.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("run with -update if that is meant (-want +got):\n%s", diff)
	}
}

// A series that is on the page no more ends at once, and only once.
func TestEndedSeriesAreMarked(t *testing.T) {
	e := newEncoder(RemoteWrite, nil)
	f := func(text, want string) {
		t.Helper()
		got := ""
		for _, r := range encoded(t, e, text, noon) {
			got += readWriteRequest(t, r)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	const two = "# TYPE a gauge\na{x=\"1\"} 1\na{x=\"2\"} 2\n"
	f(two, "a{x=\"1\"} 1 1767355200000\na{x=\"2\"} 2 1767355200000\n")
	f("# TYPE a gauge\na{x=\"2\"} 3\n", "a{x=\"2\"} 3 1767355200000\na{x=\"1\"} stale 1767355200000\n")
	f("# TYPE a gauge\na{x=\"2\"} 4\n", "a{x=\"2\"} 4 1767355200000\n")
	f("", "a{x=\"2\"} stale 1767355200000\n")
	f("", "")
}

func TestLargePagesAreSeveralRequests(t *testing.T) {
	var b strings.Builder
	b.WriteString("# TYPE a gauge\n")
	for i := range 25_000 {
		b.WriteString("a{x=\"" + number(float64(i)) + "\"} 1\n")
	}
	for _, format := range []Format{RemoteWrite, Import} {
		var samples []int
		for _, r := range encoded(t, newEncoder(format, nil), b.String(), noon) {
			samples = append(samples, r.samples)
		}
		if diff := cmp.Diff([]int{10_000, 10_000, 5_000}, samples); diff != "" {
			t.Errorf("samples of the requests (-want +got):\n%s", diff)
		}
	}
}

func unzip(t *testing.T, r *record) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(r.payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readWriteRequest reads a prometheus.WriteRequest into lines of text.
func readWriteRequest(t *testing.T, r *record) string {
	t.Helper()
	body, err := snappy.Decode(nil, r.payload)
	if err != nil {
		t.Fatal(err)
	}
	e := &encoder{}
	eachField(t, body, func(_ protowire.Number, series []byte) {
		var s flat
		eachField(t, series, func(number protowire.Number, m []byte) {
			if number == 1 {
				var parts []string
				eachField(t, m, func(_ protowire.Number, text []byte) { parts = append(parts, string(text)) })
				s.labels = append(s.labels, Label{parts[0], parts[1]})
				return
			}
			_, _, n := protowire.ConsumeTag(m)
			bits, v := protowire.ConsumeFixed64(m[n:])
			_, _, tag := protowire.ConsumeTag(m[n+v:])
			at, _ := protowire.ConsumeVarint(m[n+v+tag:])
			s.value = math.Float64frombits(bits)
			e.line(&s, time.UnixMilli(int64(at)))
			if bits == 0x7ff0000000000002 {
				e.body = bytes.Replace(e.body, []byte(" NaN "), []byte(" stale "), 1)
			}
		})
	})
	return string(e.body)
}

func eachField(t *testing.T, b []byte, do func(protowire.Number, []byte)) {
	t.Helper()
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			t.Fatalf("a field of kind %d", kind)
		}
		value, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			t.Fatal("a field breaks off")
		}
		do(number, value)
		b = b[n+m:]
	}
}

func BenchmarkEncode(b *testing.B) {
	var text strings.Builder
	text.WriteString("# TYPE vigil_gpu_some_reading_watts gauge\n")
	for i := range 1500 {
		text.WriteString("vigil_gpu_some_reading_watts{gpu=\"0\",uuid=\"GPU-11111111-2222-3333-4444-555555555555\",x=\"" + number(float64(i)) + "\"} 1.5\n")
	}
	all := families(b, text.String())
	for name, format := range map[string]Format{"remote_write": RemoteWrite, "import": Import} {
		b.Run(name, func(b *testing.B) {
			e := newEncoder(format, asScraped)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.encode(all, noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
