package remotewrite

import (
	"math"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
)

// sent is a series as a test sends it.
type sent struct {
	labels  []series.Label
	samples []sample
}

func named(name string, more ...string) []series.Label {
	labels := []series.Label{{Name: nameLabel, Value: name}}
	for i := 0; i < len(more); i += 2 {
		labels = append(labels, series.Label{Name: more[i], Value: more[i+1]})
	}
	return labels
}

func message(b []byte, number protowire.Number, of []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), of)
}

// first writes a prometheus.WriteRequest, as its protobuf definition says.
func first(series ...sent) (out []byte) {
	for _, s := range series {
		var one []byte
		for _, l := range s.labels {
			one = message(one, 1, message(message(nil, 1, []byte(l.Name)), 2, []byte(l.Value)))
		}
		for _, v := range s.samples {
			m := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(v.value))
			one = message(one, 2, protowire.AppendVarint(protowire.AppendTag(m, 2, protowire.VarintType), uint64(v.at)))
		}
		out = message(out, 1, one)
	}
	return message(out, 3, message(nil, 2, []byte("vigil_family"))) // metadata, of no use here
}

// second writes an io.prometheus.write.v2.Request by the library of Prometheus.
func second(t testing.TB, series ...sent) []byte {
	t.Helper()
	symbols := writev2.NewSymbolTable()
	req := &writev2.Request{}
	for _, s := range series {
		one := &writev2.TimeSeries{
			Metadata:         &writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: symbols.Symbolize("help")},
			CreatedTimestamp: 1,
			Exemplars:        []*writev2.Exemplar{{Value: 1}},
		}
		for _, l := range s.labels {
			one.LabelsRefs = append(one.LabelsRefs, symbols.Symbolize(l.Name), symbols.Symbolize(l.Value))
		}
		for _, v := range s.samples {
			one.Samples = append(one.Samples, &writev2.Sample{Value: v.value, Timestamp: v.at})
		}
		req.Timeseries = append(req.Timeseries, one)
	}
	req.Symbols = symbols.Symbols()
	out := make([]byte, req.SizeVT())
	if _, err := req.MarshalToSizedBufferVT(out); err != nil {
		t.Fatal(err)
	}
	return out
}

func packed(m []byte) []byte { return snappy.Encode(nil, m) }

// book is an assembler that writes down what it is given.
type book struct {
	names []string
	lines []string
	of    map[*series.Series]string
	by    map[string]*series.Series
	full  bool // it takes no new series
}

func newBook(names ...string) *book {
	return &book{names: names, of: map[*series.Series]string{}, by: map[string]*series.Series{}}
}

func (b *book) Metrics() []string { return b.names }

func (b *book) Series(labels []series.Label) *series.Series {
	text := ""
	for _, l := range labels {
		text += l.Name + "=" + l.Value + " "
	}
	if s := b.by[text]; s != nil || b.full {
		return s
	}
	s := &series.Series{}
	b.of[s], b.by[text] = text, s
	return s
}

func (b *book) Add(s *series.Series, t time.Time, v float64) {
	b.lines = append(b.lines, b.of[s]+t.UTC().Format("15:04:05.000")+" "+number(v))
}

func (b *book) Snapshots(now time.Time) []*collector.Snapshot {
	b.lines = append(b.lines, "cut "+now.UTC().Format("15:04:05"))
	return []*collector.Snapshot{{Time: now}}
}
