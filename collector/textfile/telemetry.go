package textfile

import (
	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
)

// The reasons of metric.TextfileReason.
var (
	reasons        = counters()
	tooManyFiles   = reasons["too_many_files"]
	tooManyFigures = reasons["too_many_figures"]
)

func counters() map[string]*vm.Counter {
	out := map[string]*vm.Counter{}
	for _, r := range metric.TextfileReason {
		out[r] = vm.GetOrCreateCounter(metric.TextfileErrors.Series(r))
	}
	return out
}
