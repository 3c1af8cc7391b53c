package inference

import (
	"bytes"
	"math"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/internal/metric"
)

// engine is one inference server's way to say the canonical signals. A further
// server is a further entry in engines and a recorded page in testdata.
type engine struct {
	name       string
	prefix     string // that the families it is recognised by begin with
	modelLabel string
	signals    []signal
	queueTime  []string // histogram families of the time in the queue, in seconds
}

// signal maps families to one reading. The first family that is on the page
// counts: releases rename, and for a while serve the old and the new name.
type signal struct {
	reading  *metric.Def
	families []string
	combine  func(a, b float64) float64 // over the parts of one server
}

func sum(a, b float64) float64 { return a + b }

// engines lists the servers that are known. Sources of the names are the
// servers' own metrics pages; vLLM's of release 0 and 1 differ in the KV cache.
var engines = []*engine{
	{
		name: "vllm", prefix: "vllm:", modelLabel: "model_name",
		signals: []signal{
			// Each engine of a data-parallel server has a queue of its own. The _by_reason
			// families split the same requests once more and are not read.
			{metric.RequestsRunning, []string{"vllm:num_requests_running"}, sum},
			{metric.RequestsWaiting, []string{"vllm:num_requests_waiting"}, sum},
			// A mean would hide the full one; with several API processes all but one say 0.
			{metric.KVCacheUsage, []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}, math.Max},
			{metric.GeneratedTokens, []string{"vllm:generation_tokens_total", "vllm:generation_tokens"}, sum},
		},
		queueTime: []string{"vllm:request_queue_time_seconds"},
	},
}

// recognise returns the engine that the page is of, or nil. It looks at the TYPE
// lines: a server that has served nobody yet prints them without samples.
func recognise(body []byte) *engine {
	for line := range bytes.Lines(body) {
		name, ok := bytes.CutPrefix(line, []byte("# TYPE "))
		if !ok {
			continue
		}
		for _, e := range engines {
			if bytes.HasPrefix(name, []byte(e.prefix)) {
				return e
			}
		}
	}
	return nil
}

// page is what one reading of a target says of one model.
type page struct {
	values map[*metric.Def]float64
	queue  buckets
}

// read takes the signals of each model out of a page. What is not on the page is
// absent: a server that has served nobody yet prints names without samples.
func (e *engine) read(families map[string]*dto.MetricFamily) map[string]*page {
	models := map[string]*page{}
	at := func(m *dto.Metric) *page {
		model := label(m, e.modelLabel)
		if models[model] == nil {
			models[model] = &page{values: map[*metric.Def]float64{}}
		}
		return models[model]
	}
	for _, s := range e.signals {
		for _, m := range first(families, s.families) {
			v := value(m)
			if !s.reading.Plausible(v) {
				continue
			}
			p := at(m)
			if old, ok := p.values[s.reading]; ok {
				v = s.combine(old, v)
			}
			p.values[s.reading] = v
		}
	}
	for _, m := range first(families, e.queueTime) {
		if h := m.GetHistogram(); h != nil {
			p := at(m)
			p.queue = p.queue.plus(h)
		}
	}
	return models
}

// first returns the samples of the first family that has any.
func first(families map[string]*dto.MetricFamily, names []string) []*dto.Metric {
	for _, n := range names {
		if ms := families[n].GetMetric(); len(ms) > 0 {
			return ms
		}
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// value reads a gauge, counter or untyped sample; NaN for anything else.
func value(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.GetGauge().GetValue()
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Untyped != nil:
		return m.GetUntyped().GetValue()
	}
	return math.NaN()
}
