package server

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"gpuvigil/internal/metric"
)

// labels are those of one series, as messages and as the text formats write them.
// The text is most of a page and never changes, so it is made once.
type labels struct {
	pairs []*dto.LabelPair
	text  string // with its braces; empty if there are none
}

func newLabels(pairs []*dto.LabelPair) labels {
	var b strings.Builder
	for i, p := range pairs {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(p.GetName())
		b.WriteString(`="`)
		b.WriteString(valueEscaper.Replace(p.GetValue()))
		b.WriteByte('"')
	}
	if len(pairs) > 0 {
		b.WriteByte('}')
	}
	return labels{pairs, b.String()}
}

var (
	valueEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// head is what stands before a row's samples: its help and its type.
func head(d *metric.Def, openMetrics bool) string {
	name, help := d.Name, helpEscaper.Replace(d.Help)
	if openMetrics {
		help = valueEscaper.Replace(d.Help)
		if d.Kind == metric.Counter {
			name = strings.TrimSuffix(name, "_total")
		}
	}
	return fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, d.Kind)
}

// write makes the page as text, byte by byte what expfmt makes of the same families.
// It is good until the page is reset.
func (e *exposition) write(openMetrics bool) ([]byte, error) {
	b := &e.text
	b.Reset()
	for _, f := range e.dcgm {
		if _, err := expfmt.MetricFamilyToText(b, f); err != nil {
			return nil, err
		}
	}
	for i, samples := range e.samples {
		if len(samples) == 0 {
			continue
		}
		r := &e.rows[i]
		if r.def.Kind == metric.Histogram {
			if err := e.writeHistograms(r, samples, openMetrics); err != nil {
				return nil, err
			}
			continue
		}
		if openMetrics {
			b.WriteString(r.openHead)
		} else {
			b.WriteString(r.textHead)
		}
		for _, s := range samples {
			b.WriteString(r.def.Name)
			b.WriteString(s.labels.text)
			b.WriteByte(' ')
			b.Write(appendValue(b.AvailableBuffer(), s.value, openMetrics))
			b.WriteByte('\n')
		}
	}
	if openMetrics {
		b.WriteString("# EOF\n")
	}
	return b.Bytes(), nil
}

// writeHistograms writes the row's histograms as expfmt does: of native ones the text
// formats have the count and the sum.
func (e *exposition) writeHistograms(r *row, samples []sample, openMetrics bool) (err error) {
	f := e.wire.family(r, samples)
	if openMetrics {
		_, err = expfmt.MetricFamilyToOpenMetrics(&e.text, f)
	} else {
		_, err = expfmt.MetricFamilyToText(&e.text, f)
	}
	return err
}

// appendValue appends a finite number as expfmt writes it.
func appendValue(b []byte, v float64, openMetrics bool) []byte {
	if v == 0 {
		v = 0 // no sign
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	if openMetrics && !bytes.ContainsAny(b[start:], "e.") {
		b = append(b, ".0"...)
	}
	return b
}
