//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// fakeGPU answers what a GPU is asked in every fast tier and what the test sets.
// Everything else, it does not support.
type fakeGPU struct {
	nvml.Device // what is not overridden panics
	uuid        string
	returns     map[string]nvml.Return // by method; success if absent
	power       uint32
	processes   []nvml.ProcessInfo
	usage       func(since uint64) []nvml.ProcessUtilizationSample
	counting    sync.Mutex
	asked       map[string]int
	links       int
	delay       map[string]time.Duration      // by method, before it answers
	hang        atomic.Pointer[chan struct{}] // no call returns until it is closed
	inside      atomic.Int32                  // calls that are under way
	overlaps    atomic.Int32                  // calls that began while another was
}

func newFakeGPU(i int) *fakeGPU {
	return &fakeGPU{uuid: uuid(i), power: 350_000, returns: map[string]nvml.Return{}, asked: map[string]int{}}
}

func (f *fakeGPU) enter() {
	if f.inside.Add(1) > 1 {
		f.overlaps.Add(1)
	}
}

func (f *fakeGPU) ask(method string) nvml.Return {
	f.enter()
	defer f.inside.Add(-1)
	f.counting.Lock()
	f.asked[method]++
	f.counting.Unlock()
	time.Sleep(f.delay[method])
	if hang := f.hang.Load(); hang != nil {
		<-*hang
	}
	return f.returns[method]
}

// GetTopologyCommonAncestor is a call on both GPUs.
func (f *fakeGPU) GetTopologyCommonAncestor(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
	peer := other.(*fakeGPU)
	peer.enter()
	defer peer.inside.Add(-1)
	return nvml.TOPOLOGY_SYSTEM, f.ask("GetTopologyCommonAncestor")
}
func (f *fakeGPU) GetUUID() (string, nvml.Return)         { return f.uuid, f.ask("GetUUID") }
func (f *fakeGPU) GetName() (string, nvml.Return)         { return "fake", f.ask("GetName") }
func (f *fakeGPU) GetSerial() (string, nvml.Return)       { return "1", f.ask("GetSerial") }
func (f *fakeGPU) GetVbiosVersion() (string, nvml.Return) { return "1", f.ask("GetVbiosVersion") }
func (f *fakeGPU) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	return nvml.PciInfo{BusId: [32]int8{'0', '1'}}, f.ask("GetPciInfo")
}
func (f *fakeGPU) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return nvml.DEVICE_ARCH_HOPPER, f.ask("GetArchitecture")
}
func (f *fakeGPU) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	return nvml.Utilization{Gpu: 41, Memory: 42}, f.ask("GetUtilizationRates")
}
func (f *fakeGPU) GetEncoderUtilization() (uint32, uint32, nvml.Return) {
	return 1, 2, f.ask("GetEncoderUtilization")
}
func (f *fakeGPU) GetDecoderUtilization() (uint32, uint32, nvml.Return) {
	return 1, 2, f.ask("GetDecoderUtilization")
}
func (f *fakeGPU) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	return nvml.Memory_v2{Total: 4 << 30, Reserved: 1 << 30, Free: 1 << 30, Used: 2 << 30}, f.ask("GetMemoryInfo_v2")
}
func (f *fakeGPU) GetPowerUsage() (uint32, nvml.Return) { return f.power, f.ask("GetPowerUsage") }
func (f *fakeGPU) GetTotalEnergyConsumption() (uint64, nvml.Return) {
	return 5000, f.ask("GetTotalEnergyConsumption")
}
func (f *fakeGPU) GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return) {
	return 50, f.ask("GetTemperature")
}
func (f *fakeGPU) GetFieldValues(v []nvml.FieldValue) nvml.Return {
	for i := range v {
		v[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		answer := func(n int) {
			v[i].NvmlReturn, v[i].ValueType, v[i].LatencyUsec = uint32(nvml.SUCCESS), uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG), 1
			binary.NativeEndian.PutUint64(v[i].Value[:], uint64(n))
		}
		switch {
		case v[i].FieldId == nvml.FI_DEV_MEMORY_TEMP:
			answer(60)
		case v[i].FieldId == nvml.FI_DEV_NVLINK_LINK_COUNT && f.links > 0:
			answer(f.links)
		case linkAnswer(v[i].FieldId, v[i].ScopeId) != 0 && v[i].ScopeId < uint32(f.links):
			answer(linkAnswer(v[i].FieldId, v[i].ScopeId))
		}
	}
	return f.ask("GetFieldValues")
}
func (f *fakeGPU) GetClockInfo(nvml.ClockType) (uint32, nvml.Return) { return 1, f.ask("GetClockInfo") }
func (f *fakeGPU) GetCurrentClocksEventReasons() (uint64, nvml.Return) {
	return 4, f.ask("GetCurrentClocksEventReasons")
}
func (f *fakeGPU) GetPerformanceState() (nvml.Pstates, nvml.Return) {
	return 0, f.ask("GetPerformanceState")
}
func (f *fakeGPU) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return f.processes, f.ask("GetComputeRunningProcesses")
}
func (f *fakeGPU) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return nil, f.ask("GetGraphicsRunningProcesses")
}
func (f *fakeGPU) GetProcessUtilization(since uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	if f.usage == nil {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return f.usage(since), f.ask("GetProcessUtilization")
}

// linkAnswer is what a fake GPU answers for a field of a link: for each another
// number that can be; 0 is none.
func linkAnswer(id, link uint32) int {
	for i, c := range linkCalls() {
		switch {
		case c.field.id != id:
		case c.rows[0] == metric.LinkUp:
			return 1
		case c.rows[0] == metric.LinkBER:
			return (1+i%2)<<8 | 10 + int(link)
		default:
			return 1000*(i+1) + int(link)
		}
	}
	return 0
}

// fakeDriver is a driver with fake GPUs that has only the functions that they answer.
type fakeDriver struct {
	gpus     []*fakeGPU
	handles  nvml.Return // what finding a GPU returns
	shutdown bool
}

// fakeFunctions are the functions that the fake driver has.
var fakeFunctions = func() map[string]bool {
	functions := map[string]bool{}
	for _, f := range []string{
		"GetName", "GetSerial", "GetVbiosVersion", "GetPciInfo", "GetArchitecture", "GetUtilizationRates",
		"GetEncoderUtilization", "GetDecoderUtilization", "GetMemoryInfo_v2", "GetPowerUsage", "GetTotalEnergyConsumption",
		"GetTemperature", "GetFieldValues", "GetClockInfo", "GetCurrentClocksEventReasons", "GetPerformanceState",
		"GetComputeRunningProcesses", "GetGraphicsRunningProcesses", "GetProcessUtilization", "GetTopologyCommonAncestor",
	} {
		functions["nvmlDevice"+f] = true
	}
	return functions
}()

func (d *fakeDriver) Init() nvml.Return { return nvml.SUCCESS }
func (d *fakeDriver) Shutdown() nvml.Return {
	d.shutdown = true
	return nvml.SUCCESS
}
func (d *fakeDriver) Extensions() nvml.ExtendedInterface            { return d }
func (d *fakeDriver) SystemGetDriverVersion() (string, nvml.Return) { return "580.1", nvml.SUCCESS }
func (d *fakeDriver) SystemGetNVMLVersion() (string, nvml.Return)   { return "13.580.1", nvml.SUCCESS }
func (d *fakeDriver) SystemGetCudaDriverVersion_v2() (int, nvml.Return) {
	return 13000, nvml.SUCCESS
}
func (d *fakeDriver) EventSetCreate() (nvml.EventSet, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}
func (d *fakeDriver) SystemGetConfComputeState() (nvml.ConfComputeSystemState, nvml.Return) {
	return nvml.ConfComputeSystemState{}, nvml.ERROR_NOT_SUPPORTED
}
func (d *fakeDriver) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}
func (d *fakeDriver) GpmMetricsGet(*nvml.GpmMetricsGetType) nvml.Return {
	return nvml.ERROR_NOT_SUPPORTED
}
func (d *fakeDriver) DeviceGetCount() (int, nvml.Return) { return len(d.gpus), nvml.SUCCESS }
func (d *fakeDriver) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if d.handles != nvml.SUCCESS {
		return nil, d.handles
	}
	return d.gpus[i], nvml.SUCCESS
}
func (d *fakeDriver) LookupSymbol(symbol string) error {
	if !fakeFunctions[symbol] {
		return fmt.Errorf("no %s", symbol)
	}
	return nil
}

// start is when the tests' time begins. Nothing in a worker reads another clock
// but for how long a call takes.
var start = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// fakeSession is a session on fake GPUs with a worker for each, driven by hand.
func fakeSession(t testing.TB, gpus ...*fakeGPU) (*fakeDriver, *server) {
	t.Helper()
	d := &fakeDriver{gpus: gpus}
	s, err := newSession(func() (library, error) { return d, nil }, Config{ProcFS: "testdata/proc"}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	srv := &server{session: s, hanging: map[int]bool{}}
	for slot := range gpus {
		srv.workers = append(srv.workers, newWorker(s, slot))
	}
	return d, srv
}

// at does one round at the given time after the start and returns the part.
func (s *server) at(t testing.TB, after time.Duration) *collector.Part {
	now := start.Add(after)
	for _, w := range s.workers {
		w.round(t.Context(), now)
	}
	return s.compose(now)
}
