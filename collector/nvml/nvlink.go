//go:build linux && cgo

package nvml

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

// nvlinkCalls ask about all NVLinks of a GPU together.
func nvlinkCalls() []call {
	calls := []call{
		field(metric.NVLinks, 0, nvml.FI_DEV_NVLINK_LINK_COUNT),
		{function: fieldValues, rows: []*metric.Def{metric.NVLinksUp}, read: readLinkStates},
	}
	// In the order of metric.Direction. NVLink 5 may count bytes only.
	older := []uint32{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX}
	newer := []uint32{nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES}
	for i := range older {
		c := fieldAs(metric.NVLinkBytes, i, older[i], allLinks, asTyped)
		bytes := fieldAs(metric.NVLinkBytes, i, newer[i], allLinks, asKibi)
		c.second = &bytes
		calls = append(calls, c)
	}
	calls = append(calls, fields(metric.NVLinkErrors, 0, asTyped,
		nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
		nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
		nvml.FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL)...)
	return append(calls, nvlink5Calls()...)
}

// asKibi makes bytes the unit of the older fields.
func asKibi(v *nvml.FieldValue, old *fieldMemory) (float64, nvml.Return) {
	raw, ret := asTyped(v, old)
	return raw / 1024, ret
}

func nvlink5Calls() []call {
	calls := fields(metric.NVLink5Errors, allLinks, asTyped,
		nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
		nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS)
	calls = append(calls, fields(metric.NVLink5Drops, allLinks, asTyped,
		nvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, nvml.FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS,
		nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS, nvml.FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS, nvml.FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS,
		nvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, nvml.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS)...)
	calls = append(calls, fields(metric.NVLinkBER, allLinks, asBitErrorRate,
		nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, nvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER)...)
	for i := range metric.NVLinkFEC.Width() {
		calls = append(calls, fieldAs(metric.NVLinkFEC, i, uint32(nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0+i), allLinks, asTyped))
	}
	return calls
}

// readLinkStates asks for the state of every link in one call and counts those
// that are up.
func readLinkStates(d device, s *sample) nvml.Return {
	var links [nvml.NVLINK_MAX_LINKS]nvml.FieldValue
	for i := range links {
		links[i].FieldId, links[i].ScopeId = nvml.FI_DEV_NVLINK_GET_STATE, uint32(i)
	}
	if ret := d.GetFieldValues(links[:]); ret != nvml.SUCCESS {
		return ret
	}
	up, told := uint32(0), false
	for i := range links {
		if links[i].NvmlReturn == uint32(nvml.SUCCESS) {
			told = true
			up += min(1, binary.NativeEndian.Uint32(links[i].Value[:]))
		}
	}
	if !told {
		return nvml.ERROR_NOT_SUPPORTED
	}
	put(s, metric.NVLinksUp, 0, up)
	return nvml.SUCCESS
}

func fabricCalls() []call {
	calls := fields(metric.C2CErrors, 0, asTyped,
		nvml.FI_DEV_C2C_LINK_ERROR_INTR, nvml.FI_DEV_C2C_LINK_ERROR_REPLAY, nvml.FI_DEV_C2C_LINK_ERROR_REPLAY_B2B)
	return append(calls, field(metric.C2CLinks, 0, nvml.FI_DEV_C2C_LINK_COUNT), call{
		function: "nvmlDeviceGetGpuFabricInfoV",
		rows:     []*metric.Def{metric.FabricState, metric.FabricHealth, metric.FabricHealthMask, metric.FabricClique},
		read: func(d device, s *sample) nvml.Return {
			f, ret := d.GetGpuFabricInfoV().V3()
			if ret == nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
				return readOlderFabric(d, s)
			}
			if ret == nvml.SUCCESS {
				put(s, metric.FabricState, 0, f.State)
				put(s, metric.FabricHealth, 0, f.HealthSummary)
				s.put(metric.FabricHealthMask, 0, float64(f.HealthMask))
				put(s, metric.FabricClique, 0, f.CliqueId)
			}
			return ret
		},
	})
}

// readOlderFabric asks drivers before R580, which sum up no health.
func readOlderFabric(d device, s *sample) nvml.Return {
	f, ret := d.GetGpuFabricInfoV().V2()
	if ret == nvml.SUCCESS {
		put(s, metric.FabricState, 0, f.State)
		s.put(metric.FabricHealthMask, 0, float64(f.HealthMask))
		put(s, metric.FabricClique, 0, f.CliqueId)
	}
	return ret
}
