package promql

import (
	"context"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/collector/scrape"
	"gpuvigil/collector/series"
)

// node_exporter has eight series for each CPU, which is more than all else of a node
// together. So the engine adds them up; what it adds up has no time of its own, which is
// asked for, too.
const (
	cpuSeconds = scrape.CPUSeconds
	cpuCount   = scrape.CPUCount
)

// askCPUs asks for how long the CPUs of each node were in each mode, how many there are,
// and when that was scraped.
func (o *round) askCPUs(ctx context.Context) {
	r := o.reader
	if !slices.Contains(r.names, cpuSeconds) || o.over(ctx) {
		return
	}
	idle := strings.TrimSuffix(r.cfg.selector(cpuSeconds), "}") + `,mode="idle"}`
	times := map[string]time.Time{}
	o.each(ctx, "max without (cpu, mode) (timestamp("+idle+"))", func(labels []series.Label, v float64) {
		if ms := v * 1000; ms > 0 && ms < 1e15 {
			times[key(labels)] = time.UnixMilli(int64(ms))
		}
	})
	add := func(name string) func([]series.Label, float64) {
		return func(labels []series.Label, v float64) {
			if at, ok := times[key(labels)]; ok && !at.After(o.now.Add(tooNew)) {
				r.cfg.Assembler.Add(r.cfg.Assembler.Series(append(labels, series.Label{Name: "__name__", Value: name})), at, v)
			}
		}
	}
	o.each(ctx, "count without (cpu, mode) ("+idle+")", add(cpuCount))
	o.each(ctx, "sum without (cpu) ("+r.cfg.selector(cpuSeconds)+")", add(cpuSeconds))
}

// each gives what an expression comes to with the labels.
func (o *round) each(ctx context.Context, expr string, use func(labels []series.Label, v float64)) {
	r := o.reader
	if o.over(ctx) {
		return
	}
	var labels []series.Label
	var bad error
	a, err := r.client.ask(ctx, expr, o.now, func(raw []byte, newest point, _ int64) {
		var err error
		if labels, err = labelsOf(raw, labels); err != nil {
			bad = page.Failing("syntax", "the labels of a series cannot be read: %w", err)
			return
		}
		use(labels, newest.value)
	})
	if err == nil {
		err = bad
	}
	o.note(a, err)
}

// key is the labels but for the mode, in order: nothing says that an engine writes them
// in the same one for two expressions.
func key(labels []series.Label) string {
	texts := make([]string, 0, len(labels))
	for _, l := range labels {
		if l.Name != "mode" && l.Value != "" {
			texts = append(texts, l.Name+"\xff"+l.Value)
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, "\xfe")
}
