package detect

import (
	"fmt"

	"gpuvigil/detect/stream"
)

// togetherNats is the surprise at which what several GPUs do at once is one event of
// the node. By chance a rule reaches it once in 3 million spans of ten minutes: on
// 250 nodes with ten rules that is less than one in a week.
const togetherNats = 15

// company finds statistical conditions that began on more GPUs of the node within ten
// minutes than chance would have it. They are one incident, and are told also where each
// alone would be too weak.
func (e *Engine) company(w *watcher) {
	if !w.statistical || len(w.order) < 2 || e.gpus < 2 {
		return
	}
	k := 0
	for i, t := range w.order {
		if w.joins(t, e) && !w.seen(i, t.Subject, e) {
			k++
		}
	}
	if k < 2 || stream.BinomialSurprise(k, e.gpus, w.record.base()) < togetherNats {
		return
	}
	for _, t := range w.order {
		if w.joins(t, e) && t.Together < k {
			t.Together = k
			e.changed = true
		}
	}
}

// joins reports whether a finding may be part of what several GPUs do at once.
func (w *watcher) joins(t *tracked, e *Engine) bool {
	return t.holds && t.Subject.Kind == "gpu" && t.State != Resolved && e.now.Sub(t.Since) <= groupWindow
}

// seen reports whether the subject was counted before place i, for another cause.
func (w *watcher) seen(i int, s Subject, e *Engine) bool {
	for _, t := range w.order[:i] {
		if t.Subject == s && w.joins(t, e) {
			return true
		}
	}
	return false
}

// company says in words that others do the same.
func (t *tracked) company(gpus int) {
	if t.Together > 0 {
		t.Evidence.because(fmt.Sprintf("%d of %d GPUs of the node within 10 min", t.Together, gpus))
	}
}
