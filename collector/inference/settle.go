package inference

import (
	"cmp"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// settle makes the page count, and returns what it says of each model.
func (b *book) settle(url string, gpus []string, now time.Time) []collector.Endpoint {
	restarted := b.started != 0 && b.begun != 0 && b.begun != b.started
	if b.begun != 0 {
		b.started = b.begun
	}
	var out []collector.Endpoint
	for key, s := range b.models {
		if s.read != b.pages {
			if now.Sub(s.at) > forgetAfter {
				b.tokens += zeroIfUnknown(s.generated())
				delete(b.models, key)
			}
			continue
		}
		e := collector.Endpoint{URL: url, Engine: s.engine.name, Model: s.model, GPUs: gpus}
		e.Readings, e.Histograms = s.settle(b.pages, now, restarted)
		e.Approximate = s.approximate(e.Readings, e.Histograms)
		out = append(out, e)
	}
	for _, e := range b.seen { // it serves, and has served nobody yet
		if !slices.ContainsFunc(out, func(o collector.Endpoint) bool { return o.Engine == e.name }) {
			out = append(out, b.silent(e.name, url, gpus, now))
		}
	}
	if len(out) == 0 {
		out = append(out, b.silent(b.want, url, gpus, now))
	}
	slices.SortFunc(out, func(a, b collector.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Model, b.Model))
	})
	return out
}

func (b *book) silent(engine, url string, gpus []string, now time.Time) collector.Endpoint {
	r := collector.NewReadings(metric.Endpoint)
	r.Set(metric.EndpointUp, 1)
	r.Stamp(metric.Fast, now)
	return collector.Endpoint{URL: url, Engine: engine, Model: b.model, GPUs: gpus, Readings: r}
}

// generated returns the tokens that the model has generated; NaN if it does not
// tell.
func (s *served) generated() float64 {
	for i := range s.counters {
		if s.engine.counters[i].row == metric.GeneratedTokens {
			return s.counters[i].told(0)
		}
	}
	return nan
}

// approximate returns those of the signals told that are only about what they should be.
func (s *served) approximate(r collector.Readings, histograms []collector.Histogram) []*metric.Def {
	var out []*metric.Def
	for _, d := range s.engine.approximate {
		told := d.Entity == metric.Endpoint && r.Has(d) || slices.ContainsFunc(histograms, func(h collector.Histogram) bool { return h.Row == d })
		if told {
			out = append(out, d)
		}
	}
	return out
}
