//go:build linux && cgo

package nvml

import (
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// heldCalls ask for how long the clocks were held down. A driver that has no
// field for a reason is asked the older question.
func heldCalls(driver string) []call {
	// In the orders of metric.HeldReason and metric.HeldPolicy.
	reasons := []struct {
		id     uint32
		policy nvml.PerfPolicyType
	}{
		{nvml.FI_DEV_PERF_POLICY_POWER, nvml.PERF_POLICY_POWER},
		{nvml.FI_DEV_PERF_POLICY_THERMAL, nvml.PERF_POLICY_THERMAL},
		{nvml.FI_DEV_PERF_POLICY_SYNC_BOOST, nvml.PERF_POLICY_SYNC_BOOST},
	}
	policies := []struct {
		id     uint32
		policy nvml.PerfPolicyType
	}{
		{nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT, nvml.PERF_POLICY_BOARD_LIMIT},
		{nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION, nvml.PERF_POLICY_LOW_UTILIZATION},
		{nvml.FI_DEV_PERF_POLICY_RELIABILITY, nvml.PERF_POLICY_RELIABILITY},
		{nvml.FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS, nvml.PERF_POLICY_TOTAL_APP_CLOCKS},
		{nvml.FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS, nvml.PERF_POLICY_TOTAL_BASE_CLOCKS},
	}
	var calls []call
	for i, r := range reasons {
		calls = append(calls, held(metric.ClockHeld, i, r.id, r.policy))
	}
	for i, p := range policies {
		calls = append(calls, held(metric.ClockPolicyHeld, i, p.id, p.policy))
	}
	if first := firstSlowdown(driver); first != 0 {
		for i := range uint32(3) {
			calls = append(calls, fieldAs(metric.ClockHeld, len(reasons)+int(i), first+i, 0, asGrowingTime))
		}
	}
	return calls
}

func held(d *metric.Def, i int, id uint32, policy nvml.PerfPolicyType) call {
	c := field(d, i, id)
	c.second = &call{function: "nvmlDeviceGetViolationStatus", rows: []*metric.Def{d}, read: func(dev device, s *sample) nvml.Return {
		v, ret := dev.GetViolationStatus(policy)
		if ret == nvml.SUCCESS {
			put(s, d, i, v.ViolationTime)
		}
		return ret
	}}
	return c
}

// firstSlowdown returns the first of the three fields that count the time of
// software thermal, hardware thermal and power brake slowdowns. The same numbers
// mean power smoothing in other branches of the driver; 0 is none.
func firstSlowdown(driver string) uint32 {
	major, _, _ := strings.Cut(driver, ".")
	n, err := strconv.Atoi(major)
	switch {
	case err != nil || n < 575:
		return 0
	case n < 590:
		return 251
	default:
		return nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN
	}
}
