//go:build linux && cgo

package nvml

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// relearn is how long it is remembered that a call is not supported. What a GPU
// supports changes with MIG mode, permissions and what runs on it.
const relearn = 10 * time.Minute

// subject is a device with what was learned about it.
type subject struct {
	dev     device
	calls   []*call
	refused map[*call]time.Time // when the driver last said that it cannot answer
	failing map[*call]nvml.Return
	learned bool // something new, since the last look at unsupported

	memory map[*call]*fieldMemory
	gpm    gpmSamples
	buffer []*call // of due
}

func newSubject(calls []*call) subject {
	return subject{calls: calls, refused: map[*call]time.Time{}, failing: map[*call]nvml.Return{}, memory: map[*call]*fieldMemory{}, learned: true}
}

// recall returns what is remembered of a field.
func (b *subject) recall(c *call) *fieldMemory {
	m := b.memory[c]
	if m == nil {
		m = &fieldMemory{}
		b.memory[c] = m
	}
	return m
}

// due returns the calls of a tier that are worth making. The list is good until
// the next time.
func (b *subject) due(t metric.Tier, now time.Time) []*call {
	due := b.buffer[:0]
	for _, c := range b.calls {
		if c.tier() == t && b.worth(c, now) {
			due = append(due, c)
		}
	}
	b.buffer = due
	return due
}

func (b *subject) worth(c *call, now time.Time) bool {
	if first := c.unless; first != nil && !first.missing && b.refused[first].IsZero() {
		return false
	}
	return !c.missing && now.Sub(b.refused[c]) >= relearn
}

// note remembers how a call ended, and says what is new about it.
func (b *subject) note(c *call, ret nvml.Return, now time.Time, log *slog.Logger) {
	_, refused := b.refused[c]
	before, failing := b.failing[c]
	switch judge(ret) {
	case answered, nothing:
		if refused {
			delete(b.refused, c)
			b.learned = true
		}
		if failing {
			delete(b.failing, c)
			log.Info("an NVML call works again", "call", c.function, "metric", c.rows[0].Name)
		}
	case unsupported:
		b.refused[c] = now
		b.learned = b.learned || !refused
		if !refused && ret == nvml.ERROR_NO_PERMISSION {
			log.Warn("no permission for an NVML call; its values are absent", "call", c.function, "metric", c.rows[0].Name)
		}
	default:
		b.failing[c] = ret
		if !failing || before != ret {
			log.Warn("an NVML call fails; its values are absent", "call", c.function, "metric", c.rows[0].Name, "err", text(ret))
		}
	}
}

// unsupported returns the rows that no call can fill, in the catalogue's order.
func (b *subject) unsupported() []*metric.Def {
	can := map[*metric.Def]bool{}
	for _, c := range b.calls {
		_, refused := b.refused[c]
		for _, d := range c.rows {
			can[d] = can[d] || !refused && !c.missing
		}
	}
	var rows []*metric.Def
	for _, d := range metric.All() {
		if ok, asked := can[d]; asked && !ok {
			rows = append(rows, d)
		}
	}
	return rows
}

func names(rows []*metric.Def) string {
	return strings.Join(slices.Collect(func(yield func(string) bool) {
		for _, d := range rows {
			if !yield(d.Name) {
				return
			}
		}
	}), " ")
}
