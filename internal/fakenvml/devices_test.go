//go:build cgo

package fakenvml_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/fakenvml"
)

func TestMIG(t *testing.T) {
	inChild(t, func(n *node) {
		n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetMigMode", 1, 1)
		n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetMaxMigDeviceCount", 7)
		mig := fakenvml.MIG(0, 3)
		n.file.Set(mig, "nvmlDeviceGetUUID", "MIG-42")
		n.file.Set(mig, "nvmlDeviceGetGpuInstanceId", 9)
		n.file.Set(mig, "nvmlDeviceGetComputeInstanceId", 1)
		n.file.Set(mig, "nvmlDeviceGetAttributes_v2", 16, 1, 2, 3, 4, 5, 6, 7, 9856)
		n.file.Set(mig, "nvmlDeviceGetMemoryInfo", 100, 60, 40)
		n.file.Set(mig, "nvmlDeviceGetComputeRunningProcesses")
		n.file.Add(mig, "nvmlDeviceGetComputeRunningProcesses", 4711, 40, 9, 1)
		n.start(1)
		parent := n.gpu(0)

		var found []int
		for slot := range 7 {
			_, ret := parent.GetMigDeviceHandleByIndex(slot)
			if ret == nvml.SUCCESS {
				found = append(found, slot)
				continue
			}
			n.answers("an empty slot", ret, nvml.ERROR_NOT_FOUND)
		}
		if diff := cmp.Diff([]int{3}, found); diff != "" {
			n.Fatalf("MIG devices are in other slots than the file says (-file +found):\n%s", diff)
		}
		_, ret := parent.GetMigDeviceHandleByIndex(7)
		n.answers("a slot beyond the last", ret, nvml.ERROR_INVALID_ARGUMENT)

		device, ret := parent.GetMigDeviceHandleByIndex(3)
		n.ok("find the MIG device", ret)
		is, ret := device.IsMigDeviceHandle()
		if n.ok("ask whether it is one", ret); !is {
			n.Error("the MIG device says that it is none")
		}
		uuid, ret := device.GetUUID()
		n.ok("uuid", ret)
		gi, ret := device.GetGpuInstanceId()
		n.ok("GPU instance", ret)
		ci, ret := device.GetComputeInstanceId()
		n.ok("compute instance", ret)
		attributes, ret := device.GetAttributes()
		n.ok("attributes", ret)
		processes, ret := device.GetComputeRunningProcesses()
		n.ok("processes", ret)
		want := []any{"MIG-42", 9, 1, nvml.DeviceAttributes{
			MultiprocessorCount: 16, SharedCopyEngineCount: 1, SharedDecoderCount: 2, SharedEncoderCount: 3,
			SharedJpegCount: 4, SharedOfaCount: 5, GpuInstanceSliceCount: 6, ComputeInstanceSliceCount: 7, MemorySizeMB: 9856,
		}, []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: 40, GpuInstanceId: 9, ComputeInstanceId: 1}}}
		if diff := cmp.Diff(want, []any{uuid, gi, ci, attributes, processes}); diff != "" {
			n.Errorf("the MIG device is not the one in the file (-file +read):\n%s", diff)
		}
		byUUID, ret := n.nvml.DeviceGetHandleByUUID("MIG-42")
		n.ok("find the MIG device by uuid", ret)
		back, ret := byUUID.GetDeviceHandleFromMigDeviceHandle()
		if n.ok("find its GPU", ret); back != parent {
			n.Error("the MIG device leads to another GPU than its own")
		}

		n.file.Fault(fakenvml.GPU(0), fakenvml.Every, fakenvml.Error(nvml.ERROR_GPU_IS_LOST))
		n.write()
		_, ret = device.GetUUID()
		n.answers("a MIG device of a lost GPU", ret, nvml.ERROR_GPU_IS_LOST)
		n.file.Clear(fakenvml.GPU(0), fakenvml.Every)
		n.file.Remove(mig)
		n.write()
		_, ret = device.GetUUID()
		n.answers("a handle of a MIG device that was destroyed", ret, nvml.ERROR_INVALID_ARGUMENT)
	})
}

func TestProcesses(t *testing.T) {
	inChild(t, func(n *node) {
		n.start(1)
		device := n.gpu(0)
		_, ret := device.GetComputeRunningProcesses()
		n.answers("processes of a GPU that lists none", ret, nvml.ERROR_NOT_SUPPORTED)

		n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetComputeRunningProcesses")
		n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetProcessUtilization")
		n.write()
		idle, ret := device.GetComputeRunningProcesses()
		if n.ok("processes of an idle GPU", ret); len(idle) != 0 {
			n.Errorf("an idle GPU lists %d processes", len(idle))
		}
		_, ret = device.GetProcessUtilization(0)
		n.answers("process utilization of an idle GPU", ret, nvml.ERROR_NOT_FOUND)

		const none = 0xFFFFFFFF
		want := []nvml.ProcessInfo{
			{Pid: 1, UsedGpuMemory: 10, GpuInstanceId: none, ComputeInstanceId: none},
			{Pid: 2, UsedGpuMemory: 1<<64 - 1, GpuInstanceId: none, ComputeInstanceId: none},
			{Pid: 3, UsedGpuMemory: 30, GpuInstanceId: none, ComputeInstanceId: none},
		}
		n.file.Add(fakenvml.GPU(0), "nvmlDeviceGetComputeRunningProcesses", 1, 10)
		n.file.Add(fakenvml.GPU(0), "nvmlDeviceGetComputeRunningProcesses", 2, -1)
		n.file.Add(fakenvml.GPU(0), "nvmlDeviceGetComputeRunningProcesses", 3, 30)
		n.file.Add(fakenvml.GPU(0), "nvmlDeviceGetProcessUtilization", 1, 11, 12, 13, 14, 1000)
		n.file.Add(fakenvml.GPU(0), "nvmlDeviceGetProcessUtilization", 3, 31, 32, 33, 34, 2000)
		n.write()
		got, ret := device.GetComputeRunningProcesses()
		n.ok("processes", ret)
		if diff := cmp.Diff(want, got); diff != "" {
			n.Errorf("processes differ from the file's (-file +read):\n%s", diff)
		}
		use, ret := device.GetProcessUtilization(1000)
		n.ok("process utilization since 1000", ret)
		wantUse := []nvml.ProcessUtilizationSample{{Pid: 3, TimeStamp: 2000, SmUtil: 31, MemUtil: 32, EncUtil: 33, DecUtil: 34}}
		if diff := cmp.Diff(wantUse, use); diff != "" {
			n.Errorf("process utilization differs from the file's newer rows (-file +read):\n%s", diff)
		}
	})
}

func TestSamples(t *testing.T) {
	inChild(t, func(n *node) {
		key := fakenvml.Key("nvmlDeviceGetSamples", nvml.GPU_UTILIZATION_SAMPLES)
		n.file.Add(fakenvml.GPU(0), key, "uint", 40, 100)
		n.file.Add(fakenvml.GPU(0), key, "uint", 50, 200)
		n.start(1)
		kind, samples, ret := n.gpu(0).GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 100)
		n.ok("samples since 100", ret)
		want := []nvml.Sample{{TimeStamp: 200, SampleValue: [8]byte{50}}}
		if diff := cmp.Diff(want, samples); diff != "" || kind != nvml.VALUE_TYPE_UNSIGNED_INT {
			n.Errorf("samples of type %v differ from the file's newer ones (-file +read):\n%s", kind, diff)
		}
		_, _, ret = n.gpu(0).GetSamples(nvml.GPU_UTILIZATION_SAMPLES, 200)
		n.answers("samples newer than the newest", ret, nvml.ERROR_NOT_FOUND)
	})
}

func TestEvents(t *testing.T) {
	inChild(t, func(n *node) {
		n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetSupportedEventTypes", nvml.EventTypeXidCriticalError)
		n.file.Event(fakenvml.GPU(0), nvml.EventTypeXidCriticalError, 13)
		n.start(2)
		set, ret := n.nvml.EventSetCreate()
		n.ok("create an event set", ret)
		n.answers("register for events of a GPU without any",
			n.gpu(1).RegisterEvents(nvml.EventTypeXidCriticalError, set), nvml.ERROR_NOT_SUPPORTED)
		n.answers("register for an event that is not supported",
			n.gpu(0).RegisterEvents(nvml.EventTypePState, set), nvml.ERROR_NOT_SUPPORTED)
		n.ok("register", n.gpu(0).RegisterEvents(nvml.EventTypeXidCriticalError, set))
		_, ret = set.Wait(0)
		n.answers("wait for an event from before the registration", ret, nvml.ERROR_TIMEOUT)

		n.file.Event(fakenvml.GPU(0), nvml.EventTypePState, 0)
		n.file.Event(fakenvml.GPU(0), nvml.EventTypeXidCriticalError, 79)
		n.file.Event(fakenvml.GPU(0), nvml.EventTypeXidCriticalError, 31, 9, 1)
		n.write()
		const none = 0xFFFFFFFF
		for _, want := range []nvml.EventData{
			{Device: n.gpu(0), EventType: nvml.EventTypeXidCriticalError, EventData: 79, GpuInstanceId: none, ComputeInstanceId: none},
			{Device: n.gpu(0), EventType: nvml.EventTypeXidCriticalError, EventData: 31, GpuInstanceId: 9, ComputeInstanceId: 1},
		} {
			got, ret := set.Wait(30000)
			n.ok("wait for an event", ret)
			if got != want {
				n.Errorf("event %+v, want %+v", got, want)
			}
		}
		_, ret = set.Wait(10)
		n.answers("wait for an event that was delivered", ret, nvml.ERROR_TIMEOUT)
		n.ok("free the set", set.Free())
		n.answers("free the set again", set.Free(), nvml.ERROR_INVALID_ARGUMENT)
	})
}

func TestGPM(t *testing.T) {
	inChild(t, func(n *node) {
		n.file.Set(fakenvml.GPU(0), "nvmlGpmQueryDeviceSupport", 1)
		n.file.Set(fakenvml.GPU(0), fakenvml.Key("gpm", nvml.GPM_METRIC_SM_OCCUPANCY), 37.5)
		n.start(2)
		get := &nvml.GpmMetricsGetType{NumMetrics: 2}
		get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_OCCUPANCY)
		get.Metrics[1].MetricId = uint32(nvml.GPM_METRIC_DRAM_BW_UTIL)
		for _, sample := range []*nvml.GpmSample{&get.Sample1, &get.Sample2} {
			var ret nvml.Return
			*sample, ret = n.nvml.GpmSampleAlloc()
			n.ok("allocate a sample", ret)
			n.answers("sample a GPU without GPM", n.gpu(1).GpmSampleGet(*sample), nvml.ERROR_NOT_SUPPORTED)
			n.ok("sample", n.gpu(0).GpmSampleGet(*sample))
		}
		n.ok("read the metrics", n.nvml.GpmMetricsGet(get))
		if m := get.Metrics[0]; nvml.Return(m.NvmlReturn) != nvml.SUCCESS || m.Value != 37.5 {
			n.Errorf("SM occupancy: code %d, value %v, want 37.5", m.NvmlReturn, m.Value)
		}
		n.answers("a metric that the file does not mention", nvml.Return(get.Metrics[1].NvmlReturn), nvml.ERROR_NOT_SUPPORTED)
		n.ok("free a sample", get.Sample1.Free())
		n.ok("free the other", get.Sample2.Free())
	})
}
