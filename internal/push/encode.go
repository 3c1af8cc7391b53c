package push

import (
	"bytes"
	"compress/gzip"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/snappy"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxSamples is what one request holds. Receivers bound requests, not pages.
const maxSamples = 10_000

// encoder makes requests of pages.
type encoder struct {
	format Format
	flat   flattener
	gzip   *gzip.Writer

	// known is the series of the last page, for the markers of those that have ended. Its
	// keys are the bytes of their labels, its values the page they were last on.
	known map[string]*uint64
	page  uint64

	body   []byte
	series []byte // scratch
	label  []byte // scratch
	count  int
	out    []*record
}

func newEncoder(format Format, extra []Label) *encoder {
	return &encoder{format: format, flat: flattener{extra: extra}, known: map[string]*uint64{}}
}

// staleMarker is the NaN by which Prometheus says that a series has ended.
var staleMarker = math.Float64frombits(0x7ff0000000000002)

// encode makes requests of the families, as they were at the time.
func (e *encoder) encode(families []*dto.MetricFamily, at time.Time) ([]*record, error) {
	e.page++
	e.body, e.count, e.out = e.body[:0], 0, nil
	var failed error
	full := func() {
		if e.count >= maxSamples && failed == nil {
			failed = e.cut(at)
		}
	}
	e.flat.each(families, func(s *flat) {
		if e.format == Import {
			e.line(s, at)
		} else {
			e.message(s, at)
		}
		full()
	})
	// The text that is imported has no marker: what reads it waits for a while.
	for labels, page := range e.known {
		if *page != e.page {
			e.finish([]byte(labels), staleMarker, at)
			delete(e.known, labels)
			full()
		}
	}
	if e.count > 0 && failed == nil {
		failed = e.cut(at)
	}
	return e.out, failed
}

// cut makes a request of what there is.
func (e *encoder) cut(at time.Time) error {
	r := &record{at: at, samples: e.count, format: e.format}
	if e.format == RemoteWrite {
		r.payload = snappy.Encode(nil, e.body)
	} else {
		var b bytes.Buffer
		if e.gzip == nil {
			e.gzip = gzip.NewWriter(&b)
		} else {
			e.gzip.Reset(&b)
		}
		if _, err := e.gzip.Write(e.body); err != nil {
			return err
		}
		if err := e.gzip.Close(); err != nil {
			return err
		}
		r.payload = b.Bytes()
	}
	e.out = append(e.out, r)
	e.body, e.count = e.body[:0], 0
	return nil
}

// message appends a prometheus.TimeSeries of one sample.
func (e *encoder) message(s *flat, at time.Time) {
	e.series = e.series[:0]
	for _, l := range s.labels {
		e.label = protowire.AppendTag(e.label[:0], 1, protowire.BytesType)
		e.label = protowire.AppendString(e.label, l.Name)
		e.label = protowire.AppendTag(e.label, 2, protowire.BytesType)
		e.label = protowire.AppendString(e.label, l.Value)
		e.series = protowire.AppendTag(e.series, 1, protowire.BytesType)
		e.series = protowire.AppendBytes(e.series, e.label)
	}
	if page := e.known[string(e.series)]; page != nil {
		*page = e.page
	} else {
		now := e.page
		e.known[string(e.series)] = &now
	}
	e.finish(e.series, s.value, at)
}

// finish appends a series of which the labels are encoded.
func (e *encoder) finish(labels []byte, v float64, at time.Time) {
	e.label = protowire.AppendTag(e.label[:0], 1, protowire.Fixed64Type)
	e.label = protowire.AppendFixed64(e.label, math.Float64bits(v))
	e.label = protowire.AppendTag(e.label, 2, protowire.VarintType)
	e.label = protowire.AppendVarint(e.label, uint64(at.UnixMilli()))

	sample := protowire.SizeTag(2) + protowire.SizeBytes(len(e.label))
	e.body = protowire.AppendTag(e.body, 1, protowire.BytesType)
	e.body = protowire.AppendVarint(e.body, uint64(len(labels)+sample))
	e.body = append(e.body, labels...)
	e.body = protowire.AppendTag(e.body, 2, protowire.BytesType)
	e.body = protowire.AppendBytes(e.body, e.label)
	e.count++
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// line appends the sample as a line of Prometheus' text format.
func (e *encoder) line(s *flat, at time.Time) {
	b := bytes.NewBuffer(e.body)
	for _, l := range s.labels {
		if l.Name == nameLabel {
			b.WriteString(l.Value)
		}
	}
	separator := byte('{')
	for _, l := range s.labels {
		if l.Name != nameLabel {
			b.WriteByte(separator)
			b.WriteString(l.Name + `="` + labelEscaper.Replace(l.Value) + `"`)
			separator = ','
		}
	}
	if separator == ',' {
		b.WriteByte('}')
	}
	b.WriteString(" " + number(s.value) + " " + strconv.FormatInt(at.UnixMilli(), 10) + "\n")
	e.body = b.Bytes()
	e.count++
}
