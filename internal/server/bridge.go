package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
)

// bridge brings the agent's own counters, which VictoriaMetrics/metrics keeps by
// the text of their series, onto the page that client_golang writes. Appending
// the one's text to the other's handler would corrupt compressed scrapes, and
// its go_ and process_ families are not ours to show.
type bridge struct {
	layout *layout
	log    *slog.Logger

	mu    sync.Mutex
	text  bytes.Buffer
	known map[string]bridged // by the text before the value
}

// bridged is a counter's place on the page.
type bridged struct {
	def    *metric.Def // nil: not in the catalogue, refused
	values []string    // of its labels
}

func newBridge(l *layout, log *slog.Logger) *bridge {
	return &bridge{layout: l, log: log, known: map[string]bridged{}}
}

// read adds every counter that the catalogue knows to the page.
func (b *bridge) read(e *exposition) {
	b.each(func(at bridged, v float64) {
		if b.layout.shows(at.def) {
			e.one(at.def, v, at.values...)
		}
	})
}

func (b *bridge) each(use func(at bridged, v float64)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
	vm.WritePrometheus(&b.text, false)
	for line := range bytes.Lines(b.text.Bytes()) {
		series, text, ok := cutLast(strings.TrimSuffix(string(line), "\n"), ' ')
		if !ok || series[0] == '#' {
			continue
		}
		at := b.place(series)
		v, err := strconv.ParseFloat(text, 64)
		if at.def == nil || err != nil {
			refusedUnknown.Inc()
			continue
		}
		use(at, v)
	}
}

// Counters returns what adds the process's own counters and gauges of the given rows to
// a page that is not this package's.
func Counters(log *slog.Logger, rows ...*metric.Def) func(add func(d *metric.Def, v float64, labels ...string)) {
	b := newBridge(newLayout(true), log)
	return func(add func(d *metric.Def, v float64, labels ...string)) {
		b.each(func(at bridged, v float64) {
			if slices.Contains(rows, at.def) {
				add(at.def, v, at.values...)
			}
		})
	}
}

// place returns where the series belongs, and says once if that is nowhere.
func (b *bridge) place(series string) bridged {
	at, ok := b.known[series]
	if ok {
		return at
	}
	def, values, err := b.layout.parse(series)
	if err != nil {
		b.log.Error("a counter of the agent is not on /metrics; this is a bug, please report it", "series", series, "err", err)
	}
	at = bridged{def, values}
	b.known[series] = at
	return at
}

// parse reads a series as metric.Def.Series writes it, into the row and the
// values of its labels.
func (l *layout) parse(series string) (*metric.Def, []string, error) {
	name, rest, labelled := strings.Cut(series, "{")
	r := l.byName(name)
	if r == nil {
		return nil, nil, errors.New("no such row in the catalogue")
	}
	var names, values []string
	if labelled {
		var err error
		if names, values, err = parseLabels(strings.TrimSuffix(rest, "}")); err != nil {
			return nil, nil, err
		}
	}
	if !slices.Equal(names, r.names) {
		return nil, nil, fmt.Errorf("labels %q, the catalogue says %q", names, r.names)
	}
	return r.def, values, nil
}

// parseLabels reads name="value" pairs that are separated by commas.
func parseLabels(s string) (names, values []string, err error) {
	for s != "" {
		name, rest, ok := strings.Cut(s, `="`)
		end := closingQuote(rest)
		if !ok || end < 0 {
			return nil, nil, fmt.Errorf("label without a quoted value at %q", s)
		}
		names = append(names, name)
		values = append(values, labelUnescaper.Replace(rest[:end]))
		s = strings.TrimPrefix(rest[end+1:], ",")
	}
	return names, values, nil
}

var labelUnescaper = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// closingQuote returns the index of the first quote that is not escaped, or -1.
func closingQuote(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, sep); i > 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
