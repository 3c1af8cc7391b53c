//go:build linux && cgo

package nvml

import "gpuvigil/collector"

// writer writes parts one at a time in a goroutine of its own. It never holds a
// second one: who finds it busy leaves the part out.
type writer struct {
	out    partWriter
	ready  chan struct{}        // holds a token while the writer is idle
	parts  chan *collector.Part // has room for one
	failed chan error           // has room for the error that ended it
}

func newWriter(out partWriter) *writer {
	w := &writer{out: out, ready: make(chan struct{}, 1), parts: make(chan *collector.Part, 1), failed: make(chan error, 1)}
	w.ready <- struct{}{}
	return w
}

func (w *writer) run() {
	for p := range w.parts {
		if err := w.out.Write(p); err != nil {
			w.failed <- err
			return
		}
		w.ready <- struct{}{}
	}
}

// free reports whether a part may be put now.
func (w *writer) free() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// put hands a part over, once, after free has reported true.
func (w *writer) put(p *collector.Part) { w.parts <- p }

// stop ends the writer after the part that it is writing.
func (w *writer) stop() { close(w.parts) }
