//go:build cgo

package fakenvml_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/fakenvml"
)

func TestErrors(t *testing.T) {
	inChild(t, func(n *node) {
		for i := range 2 {
			n.file.Set(fakenvml.GPU(i), "nvmlDeviceGetPowerUsage", 1000+i)
			n.file.Set(fakenvml.GPU(i), fakenvml.Key("nvmlDeviceGetClockInfo", nvml.CLOCK_SM), 1980)
			n.file.Set(fakenvml.GPU(i), fakenvml.Key("nvmlDeviceGetClockInfo", nvml.CLOCK_MEM), 2619)
		}
		n.start(2)
		first, second := n.gpu(0), n.gpu(1)

		n.file.Fault(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", fakenvml.Error(nvml.ERROR_UNKNOWN))
		n.file.Fault(fakenvml.GPU(0), fakenvml.Key("nvmlDeviceGetClockInfo", nvml.CLOCK_SM), fakenvml.Error(nvml.ERROR_NO_PERMISSION))
		n.write()
		_, ret := first.GetPowerUsage()
		n.answers("power of a GPU with that fault", ret, nvml.ERROR_UNKNOWN)
		_, ret = first.GetClockInfo(nvml.CLOCK_SM)
		n.answers("SM clock of a GPU with that fault", ret, nvml.ERROR_NO_PERMISSION)
		_, ret = first.GetClockInfo(nvml.CLOCK_MEM)
		n.ok("memory clock of a GPU whose SM clock is at fault", ret)
		_, ret = second.GetPowerUsage()
		n.ok("power of another GPU", ret)

		n.file.Fault(fakenvml.GPU(1), fakenvml.Every, fakenvml.Error(nvml.ERROR_GPU_IS_LOST))
		n.write()
		_, ret = second.GetUUID()
		n.answers("uuid of a lost GPU", ret, nvml.ERROR_GPU_IS_LOST)
		_, ret = n.nvml.DeviceGetHandleByIndex(1)
		n.answers("find a lost GPU", ret, nvml.ERROR_GPU_IS_LOST)

		n.file.Clear(fakenvml.GPU(1), fakenvml.Every)
		n.file.Clear(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage")
		n.write()
		_, ret = second.GetUUID()
		n.ok("uuid of a GPU that came back", ret)
		power, ret := first.GetPowerUsage()
		if n.ok("power after the fault", ret); power != 1000 {
			n.Errorf("power after the fault reads %d mW, want 1000", power)
		}
	})
}

func TestInitFails(t *testing.T) {
	inChild(t, func(n *node) {
		n.answers("initialise without a file", n.nvml.Init(), nvml.ERROR_DRIVER_NOT_LOADED)
		n.file.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Error(nvml.ERROR_LIB_RM_VERSION_MISMATCH))
		n.write()
		n.answers("initialise with another driver's library", n.nvml.Init(), nvml.ERROR_LIB_RM_VERSION_MISMATCH)
		_, ret := n.nvml.DeviceGetCount()
		n.answers("count GPUs without initialising", ret, nvml.ERROR_UNINITIALIZED)
		n.file.Clear(fakenvml.Sys, "nvmlInit_v2")
		n.start(1)
		if err := os.Remove(n.path); err != nil {
			n.Fatal(err)
		}
		_, ret = n.nvml.DeviceGetHandleByIndex(0)
		n.answers("find a GPU after the driver was unloaded", ret, nvml.ERROR_DRIVER_NOT_LOADED)
	})
}

func TestHang(t *testing.T) {
	inChild(t, func(n *node) {
		for i := range 2 {
			n.file.Set(fakenvml.GPU(i), "nvmlDeviceGetUtilizationRates", 10, 5)
		}
		n.start(2)
		stuck, other := n.gpu(0), n.gpu(1)
		n.file.Fault(fakenvml.GPU(0), "nvmlDeviceGetUtilizationRates", fakenvml.Hang)
		n.write()
		type answer struct {
			nvml.Utilization
			nvml.Return
		}
		answered := make(chan answer, 1)
		go func() {
			u, ret := stuck.GetUtilizationRates()
			answered <- answer{u, ret}
		}()
		n.called(fakenvml.GPU(0), "nvmlDeviceGetUtilizationRates")
		for i := range 100 {
			// Replacing the file must not release the call while the fault is in it.
			n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetUtilizationRates", 20+i, 5)
			n.write()
			_, ret := other.GetUtilizationRates()
			n.ok("utilization of a GPU beside one that hangs", ret)
		}
		select {
		case a := <-answered:
			n.Fatalf("the call that should hang answered %+v", a)
		default:
		}
		n.file.Clear(fakenvml.GPU(0), "nvmlDeviceGetUtilizationRates")
		n.write()
		select {
		case a := <-answered:
			if n.ok("the released call", a.Return); a.Gpu != 119 {
				n.Errorf("the released call reads utilization %d, want 119, the newest value", a.Gpu)
			}
		case <-time.After(30 * time.Second):
			n.Fatal("the call hangs on after its fault was cleared")
		}
	})
}

// TestManyThreads reads a pair of equal numbers from several threads while the file is replaced under them.
func TestManyThreads(t *testing.T) {
	inChild(t, func(n *node) {
		const gpus, reads = 8, 2000
		for i := range gpus {
			n.file.Set(fakenvml.GPU(i), "nvmlDeviceGetUtilizationRates", 0, 0)
		}
		n.start(gpus)
		var readers sync.WaitGroup
		for i := range gpus {
			device := n.gpu(i)
			readers.Go(func() {
				for range reads {
					u, ret := device.GetUtilizationRates()
					if ret != nvml.SUCCESS || u.Gpu != u.Memory {
						n.Errorf("GPU %d reads %+v with code %d, want two equal numbers", i, u, ret)
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { readers.Wait(); close(done) }()
		for round := 1; ; round++ {
			select {
			case <-done:
				return
			default:
			}
			for i := range gpus {
				n.file.Set(fakenvml.GPU(i), "nvmlDeviceGetUtilizationRates", round, round)
			}
			n.write()
		}
	})
}

func TestDelay(t *testing.T) {
	inChild(t, func(n *node) {
		n.start(1)
		device := n.gpu(0)
		n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", 4)
		n.file.Fault(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", fakenvml.Delay(50*time.Millisecond))
		n.write()
		begin := time.Now()
		power, ret := device.GetPowerUsage()
		n.ok("a slow call", ret)
		if took := time.Since(begin); took < 50*time.Millisecond || power != 4 {
			n.Errorf("a call made 50 ms slow took %v and read %d, want 4", took, power)
		}
	})
}

// TestMissingSymbol proves the trap that the collector has to avoid: go-nvml dies of a symbol that a driver lacks.
func TestMissingSymbol(t *testing.T) {
	const missing = "nvmlDeviceGetPowerUsage"
	if os.Getenv(envLibrary) != "" {
		inChild(t, func(n *node) {
			n.start(1)
			if n.nvml.Extensions().LookupSymbol(missing) == nil {
				n.Fatal("the library left out a symbol and yet has it")
			}
			if err := n.nvml.Extensions().LookupSymbol("nvmlDeviceGetUUID"); err != nil {
				n.Fatalf("the library lost more symbols than it should: %v", err)
			}
			_, ret := n.gpu(0).GetPowerUsage()
			n.Fatalf("a call of a missing symbol returned %v", ret)
		})
		return
	}
	lib, err := fakenvml.Build(t.Context(), t.TempDir(), fakenvml.Options{WithoutSymbols: []string{missing}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := spawn(t, lib)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 127 || !strings.Contains(out, "undefined symbol: "+missing) {
		t.Fatalf("calling a missing symbol ended the process with %v, want exit status 127 and its name:\n%s", err, out)
	}
}

func TestBuildRefusesUnknownSymbol(t *testing.T) {
	_, err := fakenvml.Build(t.Context(), t.TempDir(), fakenvml.Options{WithoutSymbols: []string{"nvmlNoSuchCall"}})
	if err == nil || !strings.Contains(err.Error(), "nvmlNoSuchCall") {
		t.Fatalf("leaving out a function that does not exist: error %v, want one that names it", err)
	}
}

// TestMalformedFile wants a loud end: a fake that guesses would let a test pass for the wrong reason.
func TestMalformedFile(t *testing.T) {
	if os.Getenv(envLibrary) != "" {
		inChild(t, func(n *node) {
			n.file.Set(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", "much")
			n.start(1)
			_, ret := n.gpu(0).GetPowerUsage()
			n.Fatalf("a value that is no number was served with %v", ret)
		})
		return
	}
	out, err := spawn(t, complete)
	if err == nil || !strings.Contains(out, "gpu0 nvmlDeviceGetPowerUsage much: want whole numbers") {
		t.Fatalf("a value that is no number: %v, want a crash that quotes its line:\n%s", err, out)
	}
}
