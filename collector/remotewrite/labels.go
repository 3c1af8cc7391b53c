package remotewrite

import (
	"slices"
	"unicode/utf8"

	"gpuvigil/collector/series"

	"google.golang.org/protobuf/encoding/protowire"
)

// nameLabel is the label that holds the metric's name.
const nameLabel = "__name__"

// The bounds of what a series may be labelled with. Node labels that kube-state-metrics
// copies are the most there is in practice.
const (
	maxLabels     = 128
	maxLabelName  = 1 << 10
	maxLabelValue = 8 << 10
)

// Why a series of a request that is well formed is not taken.
const (
	badLabels  = "labels"       // not well formed, doubled, or not UTF-8
	noName     = "no_name"      // there is no metric's name
	manyLabels = "label_limits" // too many, or too long
)

// labels returns the labels of a series, and why they will not do.
func (b *batch) labels(s *one) (labels []series.Label, reason string) {
	ok := true
	if b.second {
		labels, ok = b.secondLabels(s)
	} else {
		labels, ok = b.firstLabels(s)
	}
	if !ok {
		return nil, badLabels
	}
	return labels, checkLabels(labels)
}

// firstLabels keeps all strings of the series in one.
func (b *batch) firstLabels(s *one) (labels []series.Label, ok bool) {
	var f, part field
	var err error
	text := string(b.data[s.at.from:s.at.to])
	of := func(p span) string { return text[p.from-s.at.from : p.to-s.at.from] }
	for at := s.at.from; at < s.at.to; {
		if at, err = next(b.data, at, s.at.to, &f); err != nil {
			return nil, false
		}
		if f.number != 1 {
			continue
		}
		var l series.Label
		for in := f.at.from; in < f.at.to; {
			if in, err = next(b.data, in, f.at.to, &part); err != nil {
				return nil, false
			}
			switch {
			case part.number == 1 && part.kind == protowire.BytesType:
				l.Name = of(part.at)
			case part.number == 2 && part.kind == protowire.BytesType:
				l.Value = of(part.at)
			case part.number <= 2:
				return nil, false
			}
		}
		labels = append(labels, l)
	}
	return labels, true
}

func (b *batch) secondLabels(s *one) (labels []series.Label, ok bool) {
	var f field
	var err error
	var refs []uint64
	for at := s.at.from; at < s.at.to; {
		if at, err = next(b.data, at, s.at.to, &f); err != nil {
			return nil, false
		}
		if f.number != 1 {
			continue
		}
		if err := b.eachRef(&f, func(ref uint64) { refs = append(refs, ref) }); err != nil {
			return nil, false
		}
	}
	if len(refs)%2 != 0 {
		return nil, false
	}
	of := func(ref uint64) string { return string(b.data[b.symbols[ref].from:b.symbols[ref].to]) }
	for i := 0; i < len(refs); i += 2 {
		labels = append(labels, series.Label{Name: of(refs[i]), Value: of(refs[i+1])})
	}
	return labels, true
}

// checkLabels returns why the labels will not do; empty if they will.
func checkLabels(labels []series.Label) string {
	if len(labels) > maxLabels {
		return manyLabels
	}
	named, sorted := false, true
	for i, l := range labels {
		sorted = sorted && (i == 0 || labels[i-1].Name < l.Name) // as it should be, and then none is doubled
		switch {
		case len(l.Name) > maxLabelName || len(l.Value) > maxLabelValue:
			return manyLabels
		case l.Name == "" || !utf8.ValidString(l.Name) || !utf8.ValidString(l.Value):
			return badLabels
		case !sorted && slices.ContainsFunc(labels[:i], func(o series.Label) bool { return o.Name == l.Name }):
			return badLabels
		}
		named = named || l.Name == nameLabel && l.Value != ""
	}
	if !named {
		return noName
	}
	return ""
}
