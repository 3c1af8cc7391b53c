package owner

import (
	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
)

var (
	readVanished = vm.GetOrCreateCounter(metric.OwnerReadFailures.Series("vanished"))
	readReused   = vm.GetOrCreateCounter(metric.OwnerReadFailures.Series("reused"))
	readDenied   = vm.GetOrCreateCounter(metric.OwnerReadFailures.Series("denied"))
	readInvalid  = vm.GetOrCreateCounter(metric.OwnerReadFailures.Series("invalid"))

	grantsCapped = vm.GetOrCreateCounter(metric.SeriesCapped.Series("allocation"))
)
