//go:build cgo

package fakenvml_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/fakenvml"
)

// one reads a call's single result as a list, so that results of any number compare alike.
func one[T any](v T, ret nvml.Return) ([]any, nvml.Return) { return []any{v}, ret }

func two[T, U any](v T, w U, ret nvml.Return) ([]any, nvml.Return) { return []any{v, w}, ret }

// answers has a distinct value per call, so that a library that mixes up two of them is found out.
var answers = []struct {
	key    string
	values []any
	read   func(d nvml.Device) ([]any, nvml.Return)
	want   []any
}{
	{"nvmlDeviceGetName", []any{"NVIDIA H100 80GB HBM3"}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetName()) }, []any{"NVIDIA H100 80GB HBM3"}},
	{"nvmlDeviceGetSerial", []any{"1654922001234"}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetSerial()) }, []any{"1654922001234"}},
	{"nvmlDeviceGetVbiosVersion", []any{"96.00.74.00.1C"}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetVbiosVersion()) }, []any{"96.00.74.00.1C"}},
	{"nvmlDeviceGetGspFirmwareVersion", []any{"580.65.07"}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetGspFirmwareVersion()) }, []any{"580.65.07"}},
	{"nvmlDeviceGetMinorNumber", []any{101}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetMinorNumber()) }, []any{101}},
	{"nvmlDeviceGetBrand", []any{nvml.BRAND_NVIDIA}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetBrand()) }, []any{nvml.BrandType(nvml.BRAND_NVIDIA)}},
	{"nvmlDeviceGetPciInfo_v3", []any{"0000000A:1B:02.0", "0x233010DE", "0x16C110DE"}, readPCI, []any{uint32(10), uint32(27), uint32(2), uint32(0x233010DE), "0000000A:1B:02.0"}},
	{"nvmlDeviceGetMemoryInfo", []any{uint64(85899345920), 7, 8}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetMemoryInfo()) }, []any{nvml.Memory{Total: 85899345920, Free: 7, Used: 8}}},
	{"nvmlDeviceGetMemoryInfo_v2", []any{9, 10, 11, 12}, readMemoryV2, []any{uint64(9), uint64(10), uint64(11), uint64(12)}},
	{"nvmlDeviceGetBAR1MemoryInfo", []any{13, 14, 15}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetBAR1MemoryInfo()) }, []any{nvml.BAR1Memory{Bar1Total: 13, Bar1Free: 14, Bar1Used: 15}}},
	{"nvmlDeviceGetUtilizationRates", []any{97, 41}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetUtilizationRates()) }, []any{nvml.Utilization{Gpu: 97, Memory: 41}}},
	{"nvmlDeviceGetDecoderUtilization", []any{16, 17}, func(d nvml.Device) ([]any, nvml.Return) { return two(d.GetDecoderUtilization()) }, []any{uint32(16), uint32(17)}},
	{"nvmlDeviceGetPowerUsage", []any{350001}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetPowerUsage()) }, []any{uint32(350001)}},
	{"nvmlDeviceGetTotalEnergyConsumption", []any{uint64(18446744073709551615)}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetTotalEnergyConsumption()) }, []any{uint64(18446744073709551615)}},
	{"nvmlDeviceGetEnforcedPowerLimit", []any{700000}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetEnforcedPowerLimit()) }, []any{uint32(700000)}},
	{fakenvml.Key("nvmlDeviceGetClockInfo", nvml.CLOCK_SM), []any{1980}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetClockInfo(nvml.CLOCK_SM)) }, []any{uint32(1980)}},
	{fakenvml.Key("nvmlDeviceGetClockInfo", nvml.CLOCK_MEM), []any{2619}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetClockInfo(nvml.CLOCK_MEM)) }, []any{uint32(2619)}},
	{fakenvml.Key("nvmlDeviceGetTemperature", nvml.TEMPERATURE_GPU), []any{61}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetTemperature(nvml.TEMPERATURE_GPU)) }, []any{uint32(61)}},
	{fakenvml.Key("nvmlDeviceGetTemperatureV", nvml.TEMPERATURE_GPU), []any{-3}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetTemperatureV().V1()) }, []any{nvml.Temperature{Version: 0x100000c, Temperature: -3}}},
	{"nvmlDeviceGetCurrentClocksEventReasons", []any{"0x84"}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetCurrentClocksEventReasons()) }, []any{uint64(0x84)}},
	{fakenvml.Key("nvmlDeviceGetViolationStatus", nvml.PERF_POLICY_POWER), []any{18, 19}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetViolationStatus(nvml.PERF_POLICY_POWER)) }, []any{nvml.ViolationTime{ReferenceTime: 18, ViolationTime: 19}}},
	{"nvmlDeviceGetPcieReplayCounter", []any{20}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetPcieReplayCounter()) }, []any{20}},
	{fakenvml.Key("nvmlDeviceGetPcieThroughput", nvml.PCIE_UTIL_RX_BYTES), []any{21}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)) }, []any{uint32(21)}},
	{"nvmlDeviceGetEccMode", []any{true, false}, func(d nvml.Device) ([]any, nvml.Return) { return two(d.GetEccMode()) }, []any{nvml.FEATURE_ENABLED, nvml.FEATURE_DISABLED}},
	{fakenvml.Key("nvmlDeviceGetTotalEccErrors", nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC), []any{22}, func(d nvml.Device) ([]any, nvml.Return) {
		return one(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC))
	}, []any{uint64(22)}},
	{fakenvml.Key("nvmlDeviceGetMemoryErrorCounter", 0, 1, 7), []any{23}, func(d nvml.Device) ([]any, nvml.Return) {
		return one(d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC, nvml.MEMORY_LOCATION_SRAM))
	}, []any{uint64(23)}},
	{"nvmlDeviceGetRemappedRows", []any{24, 25, 1, 0}, readRemapped, []any{24, 25, true, false}},
	{fakenvml.Key("nvmlDeviceGetNvLinkErrorCounter", 3, 1), []any{26}, func(d nvml.Device) ([]any, nvml.Return) { return one(d.GetNvLinkErrorCounter(3, 1)) }, []any{uint64(26)}},
	{"nvmlDeviceGetGpuFabricInfoV", []any{0, 27, 3, 4, 1}, readFabric, []any{uint32(27), uint8(3), uint32(4), uint8(1)}},
}

func readPCI(d nvml.Device) ([]any, nvml.Return) {
	p, ret := d.GetPciInfo()
	id := make([]byte, 0, len(p.BusId))
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		id = append(id, byte(c))
	}
	return []any{p.Domain, p.Bus, p.Device, p.PciDeviceId, string(id)}, ret
}

func readMemoryV2(d nvml.Device) ([]any, nvml.Return) {
	m, ret := d.GetMemoryInfo_v2()
	return []any{m.Total, m.Reserved, m.Free, m.Used}, ret
}

func readRemapped(d nvml.Device) ([]any, nvml.Return) {
	correctable, uncorrectable, pending, failed, ret := d.GetRemappedRows()
	return []any{correctable, uncorrectable, pending, failed}, ret
}

func readFabric(d nvml.Device) ([]any, nvml.Return) {
	f, ret := d.GetGpuFabricInfoV().V3()
	return []any{f.CliqueId, f.State, f.HealthMask, f.HealthSummary}, ret
}

func TestAnswers(t *testing.T) {
	inChild(t, func(n *node) {
		n.start(2)
		for _, a := range answers {
			_, ret := a.read(n.gpu(0))
			n.answers(a.key+" before it is set", ret, nvml.ERROR_NOT_SUPPORTED)
			n.file.Set(fakenvml.GPU(0), a.key, a.values...)
		}
		n.write()
		for _, a := range answers {
			got, ret := a.read(n.gpu(0))
			n.ok(a.key, ret)
			if diff := cmp.Diff(a.want, got); diff != "" {
				n.Errorf("%s reads other values than the file says (-file +read):\n%s", a.key, diff)
			}
			_, ret = a.read(n.gpu(1))
			n.answers(a.key+" of the other GPU", ret, nvml.ERROR_NOT_SUPPORTED)
		}
	})
}

func TestSystem(t *testing.T) {
	inChild(t, func(n *node) {
		n.file.Set(fakenvml.Sys, "nvmlSystemGetDriverVersion", "580.65.06")
		n.file.Set(fakenvml.Sys, "nvmlSystemGetNVMLVersion", "13.580.65.06")
		n.file.Set(fakenvml.Sys, "nvmlSystemGetCudaDriverVersion_v2", 13000)
		n.start(3)
		driver, ret := n.nvml.SystemGetDriverVersion()
		n.ok("read the driver's version", ret)
		library, ret := n.nvml.SystemGetNVMLVersion()
		n.ok("read the library's version", ret)
		cuda, ret := n.nvml.SystemGetCudaDriverVersion_v2()
		n.ok("read CUDA's version", ret)
		count, ret := n.nvml.DeviceGetCount()
		n.ok("count the GPUs", ret)
		want := []any{"580.65.06", "13.580.65.06", 13000, 3}
		if diff := cmp.Diff(want, []any{driver, library, cuda, count}); diff != "" {
			n.Errorf("the machine is not the one in the file (-file +read):\n%s", diff)
		}
		_, ret = n.nvml.DeviceGetHandleByIndex(3)
		n.answers("find a GPU beyond the last", ret, nvml.ERROR_INVALID_ARGUMENT)
		device, ret := n.nvml.DeviceGetHandleByUUID("GPU-00000002")
		n.ok("find a GPU by its uuid", ret)
		if index, _ := device.GetIndex(); index != 2 {
			n.Errorf("GPU-00000002 is found as GPU %d, want 2", index)
		}
		// NVML counts its users: the second of two has not left yet.
		n.ok("initialise a second time", n.nvml.Init())
		n.ok("shut down", n.nvml.Shutdown())
		_, ret = device.GetUUID()
		n.ok("read a uuid with one user left", ret)
	})
}

func TestFieldValues(t *testing.T) {
	inChild(t, func(n *node) {
		n.file.Set(fakenvml.GPU(0), fakenvml.Field(82, 0), "uint", 71, 250, 1700000000000000)
		n.file.Set(fakenvml.GPU(0), fakenvml.Field(138, fakenvml.AllScopes), "ull", uint64(1<<40))
		n.file.Set(fakenvml.GPU(0), fakenvml.Field(138, 4), "ull", 44)
		n.file.Set(fakenvml.GPU(0), fakenvml.Field(193, 0), "int", -5)
		n.file.Set(fakenvml.GPU(0), fakenvml.Field(1, 0), "double", 1.5)
		n.file.Set(fakenvml.GPU(0), fakenvml.Field(83, 0), "ull", 1)
		n.file.Fault(fakenvml.GPU(0), fakenvml.Field(83, 0), fakenvml.Error(nvml.ERROR_UNKNOWN))
		n.start(1)
		fields := []nvml.FieldValue{
			{FieldId: 82}, {FieldId: 138, ScopeId: fakenvml.AllScopes}, {FieldId: 138, ScopeId: 4}, {FieldId: 193},
			{FieldId: 1}, {FieldId: 83}, {FieldId: 138},
		}
		n.ok("read field values", n.gpu(0).GetFieldValues(fields))
		if fields[1].Timestamp == 0 {
			n.Error("a field value without a given timestamp carries none, want the time of the call")
		}
		for i := 1; i < len(fields); i++ {
			fields[i].Timestamp, fields[i].LatencyUsec = 0, 0
		}
		want := []nvml.FieldValue{
			{FieldId: 82, Timestamp: 1700000000000000, LatencyUsec: 250, ValueType: uint32(nvml.VALUE_TYPE_UNSIGNED_INT), Value: [8]byte{71}},
			{FieldId: 138, ScopeId: fakenvml.AllScopes, ValueType: uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG), Value: [8]byte{5: 1}},
			{FieldId: 138, ScopeId: 4, ValueType: uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG), Value: [8]byte{44}},
			{FieldId: 193, ValueType: uint32(nvml.VALUE_TYPE_SIGNED_INT), Value: [8]byte{0xfb, 0xff, 0xff, 0xff}},
			{FieldId: 1, ValueType: uint32(nvml.VALUE_TYPE_DOUBLE), Value: [8]byte{6: 0xf8, 7: 0x3f}},
			{FieldId: 83, NvmlReturn: uint32(nvml.ERROR_UNKNOWN)},
			{FieldId: 138, NvmlReturn: uint32(nvml.ERROR_NOT_SUPPORTED)},
		}
		if diff := cmp.Diff(want, fields); diff != "" {
			n.Errorf("field values differ from the file's (-file +read):\n%s", diff)
		}
	})
}
