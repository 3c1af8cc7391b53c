package textfile

import (
	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
)

// counted is the counter of one of metric.TextfileReason. It has a series from its first
// file on.
func counted(reason string) *vm.Counter {
	return vm.GetOrCreateCounter(metric.TextfileErrors.Series(reason))
}
