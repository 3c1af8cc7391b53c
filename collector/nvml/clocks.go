//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func clockCalls() []call {
	calls := []call{
		clockEvents("nvmlDeviceGetCurrentClocksEventReasons", metric.ClockEvent, device.GetCurrentClocksEventReasons),
		one("nvmlDeviceGetPerformanceState", metric.PerformanceState, device.GetPerformanceState),
	}
	older := clockEvents("nvmlDeviceGetCurrentClocksThrottleReasons", metric.ClockEvent, device.GetCurrentClocksThrottleReasons)
	calls[0].instead = &older
	calls = append(calls, clockEvents("nvmlDeviceGetSupportedClocksEventReasons", metric.ClockEventKnown, device.GetSupportedClocksEventReasons))

	// In the order of metric.Clocks.
	for i, clock := range []nvml.ClockType{nvml.CLOCK_GRAPHICS, nvml.CLOCK_SM, nvml.CLOCK_MEM, nvml.CLOCK_VIDEO} {
		calls = append(calls,
			nth("nvmlDeviceGetClockInfo", metric.Clock, i, func(d device) (uint32, nvml.Return) {
				return d.GetClockInfo(clock)
			}),
			nth("nvmlDeviceGetMaxClockInfo", metric.MaxClock, i, func(d device) (uint32, nvml.Return) {
				return d.GetMaxClockInfo(clock)
			}))
	}
	// In the order of metric.AppClock.
	for i, clock := range []nvml.ClockType{nvml.CLOCK_GRAPHICS, nvml.CLOCK_MEM} {
		calls = append(calls, nth("nvmlDeviceGetApplicationsClock", metric.ApplicationClock, i, func(d device) (uint32, nvml.Return) {
			return d.GetApplicationsClock(clock)
		}))
	}
	return calls
}

func clockEvents(function string, row *metric.Def, get func(device) (uint64, nvml.Return)) call {
	return call{function: function, rows: []*metric.Def{row}, read: func(d device, s *sample) nvml.Return {
		bits, ret := get(d)
		switch {
		case ret != nvml.SUCCESS:
		case sentinel(bits):
			s.dropped = append(s.dropped, row)
		default:
			for i := range row.Width() {
				put(s, row, i, bits>>i&1)
			}
		}
		return ret
	}}
}
