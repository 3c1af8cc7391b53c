//go:build linux && cgo

package nvml

import (
	"context"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// ended says how one or more calls ended.
type ended struct {
	good bool // one had an answer
	stop bool // no more are to be made
}

func (e *ended) join(o ended) { e.good, e.stop = e.good || o.good, e.stop || o.stop }

// ask makes the calls of a tier that may have an answer and reports whether one
// had, or none was to be made. Field values and GPM metrics are one call each for
// all that is due. gi is a MIG instance's GPU instance, or nobody.
func (w *worker) ask(ctx context.Context, b *subject, t metric.Tier, gi int, s *sample, now time.Time) bool {
	due := b.due(t, now)
	all := ended{good: len(due) == 0}
	w.fields, w.gpms = w.fields[:0], w.gpms[:0]
	for _, c := range due {
		switch {
		case ctx.Err() != nil:
			return true
		case c.field != nil:
			w.fields = append(w.fields, c)
		case c.gpm != nil:
			w.gpms = append(w.gpms, c)
		default:
			ret := w.do(c.function, func() nvml.Return { return c.read(b.dev, s) })
			all.join(w.conclude(b, c, ret, now))
		}
		if all.stop {
			return false
		}
	}
	if len(w.fields) > 0 {
		all.join(w.askFields(b, w.fields, 0, s, now))
	}
	if len(w.gpms) > 0 && !all.stop {
		all.join(w.askGPM(ctx, b, w.gpms, gi, s, now))
	}
	return all.good && !all.stop
}

// askFields asks for all fields that are due with one call. number is the NVLink
// that the fields of each link are asked of.
func (w *worker) askFields(b *subject, calls []*call, number uint32, s *sample, now time.Time) (all ended) {
	w.entries = w.entries[:0]
	for _, c := range calls {
		scope := c.field.scope
		if scope == eachLink {
			scope = number
		}
		w.entries = append(w.entries, nvml.FieldValue{FieldId: c.field.id, ScopeId: scope})
	}
	ret := w.do(fieldValues, func() nvml.Return { return b.dev.GetFieldValues(w.entries) })
	for i, c := range calls {
		one := ret
		if ret == nvml.SUCCESS {
			one = c.field.answer(c.rows[0], &w.entries[i], b.recall(c), s)
		}
		all.join(w.conclude(b, c, one, now))
		if all.stop {
			break
		}
	}
	return all
}

// conclude draws the consequences of how a call ended.
func (w *worker) conclude(b *subject, c *call, ret nvml.Return, now time.Time) ended {
	var e ended
	switch judge(ret) {
	case fatal:
		w.fail(&callError{c.function, w.gpu.UUID, ret})
		return ended{stop: true}
	case lost:
		w.lose(ret, now)
		return ended{stop: true}
	case stale:
		w.suspect = true
	case answered, nothing:
		e.good = true
	}
	b.note(c, ret, now, w.log)
	return e
}
