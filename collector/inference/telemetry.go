package inference

import (
	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
)

var modelsCapped = vm.GetOrCreateCounter(metric.SeriesCapped.Series("inference_model"))
