package metric_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

// before are the fields of dcgm-exporter's default and DCP files up to 4.8, on or
// off, that are measured. Not among them are labels (versions, serial numbers) and
// what its own engine derives: DCGM_EXP_….
const before = `DEV_SM_CLOCK DEV_MEM_CLOCK DEV_MEMORY_TEMP DEV_GPU_TEMP DEV_POWER_USAGE DEV_TOTAL_ENERGY_CONSUMPTION
	PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES DEV_PCIE_REPLAY_COUNTER DEV_GPU_UTIL DEV_MEM_COPY_UTIL DEV_ENC_UTIL DEV_DEC_UTIL
	DEV_XID_ERRORS DEV_POWER_VIOLATION DEV_THERMAL_VIOLATION DEV_SYNC_BOOST_VIOLATION DEV_BOARD_LIMIT_VIOLATION
	DEV_LOW_UTIL_VIOLATION DEV_RELIABILITY_VIOLATION DEV_FB_FREE DEV_FB_USED DEV_FB_RESERVED
	DEV_ECC_SBE_VOL_TOTAL DEV_ECC_DBE_VOL_TOTAL DEV_ECC_SBE_AGG_TOTAL DEV_ECC_DBE_AGG_TOTAL
	DEV_RETIRED_SBE DEV_RETIRED_DBE DEV_RETIRED_PENDING DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
	DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
	DEV_NVLINK_BANDWIDTH_TOTAL DEV_NVLINK_BANDWIDTH_L0 DEV_VGPU_LICENSE_STATUS DEV_UNCORRECTABLE_REMAPPED_ROWS
	DEV_CORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_FAILURE PROF_GR_ENGINE_ACTIVE PROF_SM_ACTIVE PROF_SM_OCCUPANCY
	PROF_PIPE_TENSOR_ACTIVE PROF_DRAM_ACTIVE PROF_PIPE_FP64_ACTIVE PROF_PIPE_FP32_ACTIVE PROF_PIPE_FP16_ACTIVE`

// since are the 23 new names of 4.9, the one that came with them, and those of
// fields that are off.
const since = `DEV_SM_CLOCK_HERTZ DEV_MEMORY_CLOCK_HERTZ DEV_GPU_ENERGY_JOULES_TOTAL DEV_GPU_UTIL_RATIO DEV_MEMORY_UTIL_RATIO
	DEV_ENC_UTIL_RATIO DEV_DEC_UTIL_RATIO DEV_FB_FREE_BYTES DEV_FB_USED_BYTES DEV_FB_RESERVED_BYTES
	DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND DEV_MEMORY_TEMP_CELSIUS DEV_GPU_TEMP_CELSIUS DEV_BOARD_POWER_WATTS
	DEV_PCIE_REPLAY_TOTAL DEV_XID_ERROR DEV_ROW_REMAP_UNCORRECTABLE_TOTAL DEV_ROW_REMAP_CORRECTABLE_TOTAL DEV_ROW_REMAP_FAILED
	PROF_GR_ENGINE_UTIL_RATIO PROF_TENSOR_UTIL_RATIO PROF_DRAM_UTIL_RATIO
	DEV_FB_CAPACITY_BYTES PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES DEV_VGPU_LICENSE_STATUS
	DEV_ECC_SBE_VOL_TOTAL DEV_ECC_DBE_VOL_TOTAL DEV_ECC_SBE_AGG_TOTAL DEV_ECC_DBE_AGG_TOTAL
	DEV_PAGE_RETIRED_SBE_TOTAL DEV_PAGE_RETIRED_DBE_TOTAL DEV_PAGE_RETIRED_PENDING DEV_NVLINK_CRC_FLIT_ERROR_TOTAL
	DEV_NVLINK_CRC_DATA_ERROR_TOTAL DEV_NVLINK_REPLAY_ERROR_TOTAL DEV_NVLINK_RECOVERY_ERROR_TOTAL
	PROF_SM_UTIL_RATIO PROF_SM_OCCUPANCY_RATIO PROF_FP64_UTIL_RATIO PROF_FP32_UTIL_RATIO PROF_FP16_UTIL_RATIO`

func TestEveryDCGMNameIsPublishedOnce(t *testing.T) {
	for _, c := range []struct {
		of    metric.Generation
		names string
	}{{metric.Until48, before}, {metric.Since49, since}} {
		count := map[string]int{}
		for _, d := range metric.All() {
			if d.Entity == metric.Instance {
				continue // the same names, with another label
			}
			for _, n := range d.DCGM {
				if n.Generation&c.of != 0 {
					count[n.Name]++
				}
			}
		}
		for _, name := range strings.Fields(c.names) {
			if n := count["DCGM_FI_"+name]; n != 1 {
				t.Errorf("generation %d: DCGM_FI_%s comes from %d rows, want 1", c.of, name, n)
			}
		}
		for name, n := range count {
			if n > 1 {
				t.Errorf("generation %d: %s comes from %d rows: two values for one series", c.of, name, n)
			}
		}
	}
}

func TestDCGMValuesAreInItsUnits(t *testing.T) {
	convert := func(name string, v float64) float64 {
		for _, d := range metric.All() {
			if i := slices.IndexFunc(d.DCGM, func(n metric.DCGM) bool { return n.Name == "DCGM_FI_"+name }); i >= 0 && d.Entity != metric.Instance {
				return d.DCGM[i].Value(v)
			}
		}
		t.Fatalf("no row is DCGM_FI_%s", name)
		return 0
	}
	got := map[string]float64{}
	for name, v := range map[string]float64{
		"DEV_SM_CLOCK": 1980e6, "DEV_SM_CLOCK_HERTZ": 1980e6, "DEV_TOTAL_ENERGY_CONSUMPTION": 2.5, "DEV_GPU_ENERGY_JOULES_TOTAL": 2.5,
		"DEV_GPU_UTIL": 0.98, "DEV_GPU_UTIL_RATIO": 0.98, "DEV_FB_USED": 1 << 30, "DEV_FB_USED_BYTES": 1 << 30, "DEV_POWER_VIOLATION": 1.5,
		"DEV_NVLINK_BANDWIDTH_TOTAL": 1024e3, "DEV_GPU_TEMP": 61, "PROF_SM_ACTIVE": 0.5,
	} {
		got[name] = convert(name, v)
	}
	want := map[string]float64{
		"DEV_SM_CLOCK": 1980, "DEV_SM_CLOCK_HERTZ": 1980e6, "DEV_TOTAL_ENERGY_CONSUMPTION": 2500, "DEV_GPU_ENERGY_JOULES_TOTAL": 2.5,
		"DEV_GPU_UTIL": 98, "DEV_GPU_UTIL_RATIO": 0.98, "DEV_FB_USED": 1024, "DEV_FB_USED_BYTES": 1 << 30, "DEV_POWER_VIOLATION": 1.5e9,
		"DEV_NVLINK_BANDWIDTH_TOTAL": 1, "DEV_GPU_TEMP": 61, "PROF_SM_ACTIVE": 0.5,
	}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("values as DCGM publishes them (-want +got):\n%s", diff)
	}
}

func TestPositionsOfDCGMNamesExist(t *testing.T) {
	for _, d := range metric.All() {
		for _, n := range d.DCGM {
			if n.At < 0 || n.At >= d.Width() || n.Generation&metric.AnyDCGM == 0 || n.Name == "" {
				t.Errorf("%s: %+v", d, n)
			}
		}
	}
}
