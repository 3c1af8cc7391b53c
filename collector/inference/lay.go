package inference

import (
	"slices"

	"gpuvigil/collector/exposition"
	"gpuvigil/internal/text"
)

func (b *book) know(e *engine) {
	if !slices.Contains(b.seen, e) {
		b.seen = append(b.seen, e)
	}
}

// lay takes a sample in for each of its uses.
func (b *book) lay(uses []use, labels []exposition.Label, v float64) {
	for _, u := range uses {
		if u.kind == ofStart {
			b.begun = v
			continue
		}
		b.know(u.engine)
		if !u.origin.matches(labels) {
			continue
		}
		s := b.served(u.engine, labels)
		if s == nil {
			continue
		}
		s.read = b.pages
		key, bound := b.part(u, labels)
		switch u.kind {
		case ofGauge:
			s.gauges[u.signal].lay(b.pages, u.rank, 0, key, u.origin.scaled(v))
		case ofMore: // none is better than another: the key has which it is
			s.more[u.signal].lay(b.pages, 0, 0, key, u.origin.scaled(v))
		case ofLess:
			s.less[u.signal].lay(b.pages, u.rank, 0, key, u.origin.scaled(v))
		case ofOver:
			s.over[u.signal].lay(b.pages, u.rank, 0, key, u.origin.scaled(v))
		case ofCounter:
			s.counters[u.signal].lay(b.pages, u.rank, u.engine.counters[u.signal].column(labels), key, u.origin.scaled(v))
		case ofSeconds:
			s.sums[u.signal].seconds.lay(b.pages, u.rank, 0, key, u.origin.scaled(v))
		case ofCount:
			s.sums[u.signal].count.lay(b.pages, u.rank, 0, key, u.origin.scaled(v))
		default:
			s.histograms[u.signal].lay(b.pages, u, key, bound, v)
		}
	}
}

// served returns what is kept of the model that the labels name; nil if there are
// too many models.
func (b *book) served(e *engine, labels []exposition.Label) *served {
	b.name = append(b.name[:0], b.model...)
	for _, names := range e.models {
		if all := joined(b.key[:0], labels, names); all != nil {
			b.name = append(b.name[:0], all...)
			break
		}
	}
	if s := b.models[modelKey{e.name, string(b.name)}]; s != nil {
		return s
	}
	name := modelName(b.name)
	s := b.models[modelKey{e.name, name}]
	switch {
	case s != nil:
	case len(b.models) < maxModels:
		s = newServed(e, name)
		b.models[modelKey{e.name, name}] = s
	case !b.capped:
		b.capped = true
		modelsCapped.Inc()
	}
	return s
}

// joined joins the labels' values; nil if one of them is missing.
func joined(into []byte, labels []exposition.Label, names []string) []byte {
	for i, name := range names {
		v := valueOf(labels, name)
		if v == nil {
			return nil
		}
		if i > 0 {
			into = append(into, '/')
		}
		into = append(into, v...)
	}
	return into
}

// modelName makes a name that a server made up safe to show.
func modelName(b []byte) string { return text.Clean(string(b), maxName) }

// part returns what tells the sample's part of the server from others: its labels
// but those of the model, the bucket, and those that repeat a fact.
func (b *book) part(u use, labels []exposition.Label) (key []byte, bound float64) {
	key = append(b.key[:0], byte(u.rank))
	for _, l := range labels {
		if string(l.Name) == "le" && u.kind == ofBucket {
			var err error
			if bound, err = exposition.Float(l.Value); err != nil {
				bound = nan // then it is no histogram
			}
			continue
		}
		if slices.Contains(u.engine.repeated, string(l.Name)) || len(u.engine.models) > 0 && slices.Contains(u.engine.models[0], string(l.Name)) {
			continue
		}
		key = append(append(append(key, l.Name...), 0xff), l.Value...)
		key = append(key, 0xff)
	}
	b.key = key
	return key, bound
}
