//go:build linux && cgo

package nvml

import (
	"math"
	"strings"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// take puts a metric into the place of its call's row.
func take(m *nvml.GpmMetric, c *call, s *sample) nvml.Return {
	ret := nvml.Return(m.NvmlReturn)
	switch {
	case ret == nvml.ERROR_INVALID_ARGUMENT:
		return nvml.ERROR_NOT_SUPPORTED // a number that this driver does not know
	case ret != nvml.SUCCESS:
		return ret
	case math.IsNaN(m.Value):
		return nvml.ERROR_NO_DATA
	}
	v := m.Value
	if v > 100 && v < gpmRounded {
		v = 100
	}
	s.put(c.rows[0], c.gpm.at, c.rows[0].FromRaw(v))
	return ret
}

func trafficOf(both []nvml.GpmMetric) traffic {
	t := traffic{ok: true}
	for i := range both {
		t.rate[i] = both[i].Value * bytesOf(unitOf(&both[i]))
		if nvml.Return(both[i].NvmlReturn) != nvml.SUCCESS || !metric.PCIeThroughput.Plausible(t.rate[i]) {
			return traffic{}
		}
	}
	return t
}

// unitOf returns the unit that the driver says a metric has, or an empty string.
func unitOf(m *nvml.GpmMetric) string {
	if m.MetricInfo.Unit == nil {
		return ""
	}
	return cString(unsafe.Slice(m.MetricInfo.Unit, 16))
}

// bytesOf returns how many bytes a unit of traffic has. The header says MiB/s;
// a unit that is none of traffic makes the value no number.
func bytesOf(unit string) float64 {
	name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(unit)), "/")
	switch name {
	case "", "mib", "mibps":
		return 1 << 20
	case "b", "byte", "bytes":
		return 1
	case "kb":
		return 1e3
	case "kib":
		return 1 << 10
	case "mb":
		return 1e6
	case "gb":
		return 1e9
	case "gib":
		return 1 << 30
	default:
		return math.NaN()
	}
}
