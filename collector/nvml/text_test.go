//go:build linux && cgo

package nvml

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestDriversWithBadProcessLists(t *testing.T) {
	for driver, bad := range map[string]bool{
		"535.43.02": true, "535.54.03": true, "535.86.10": true, "535.97": true,
		"535.98": false, "535.104.05": false, "535.40": false, "530.30.02": false, "580.65.06": false, "1535.50": false,
		"": false, "535": false, "535.x": false,
	} {
		if got := badProcessStruct(driver); got != bad {
			t.Errorf("driver %q has bad process lists: %v, want %v", driver, got, bad)
		}
	}
}

func TestProfileNames(t *testing.T) {
	const gib = 1 << 30
	for want, in := range map[string]struct {
		attributes nvml.DeviceAttributes
		total      float64
	}{
		"1g.5gb":     {nvml.DeviceAttributes{GpuInstanceSliceCount: 1, ComputeInstanceSliceCount: 1, MemorySizeMB: 4864}, 40 * gib},
		"3g.20gb":    {nvml.DeviceAttributes{GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 3, MemorySizeMB: 19968}, 40 * gib},
		"7g.80gb":    {nvml.DeviceAttributes{GpuInstanceSliceCount: 7, ComputeInstanceSliceCount: 7, MemorySizeMB: 81408}, 81559 << 20},
		"1c.3g.40gb": {nvml.DeviceAttributes{GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 1, MemorySizeMB: 40448}, 81559 << 20},
	} {
		if got := profileOf(in.attributes, in.total); got != want {
			t.Errorf("profile is %s, want %s", got, want)
		}
	}
}

func TestCUDAVersions(t *testing.T) {
	for in, want := range map[int]string{13000: "13.0", 12080: "12.8", 11040: "11.4"} {
		if got := cudaVersion(in); got != want {
			t.Errorf("CUDA %d is %s, want %s", in, got, want)
		}
	}
}

func TestEveryReturnCodeHasATextOfItsOwn(t *testing.T) {
	seen := map[string]nvml.Return{}
	for ret := nvml.SUCCESS; ret <= nvml.ERROR_UNKNOWN; ret++ {
		s := text(ret)
		if before, ok := seen[s]; ok || s == "" {
			t.Errorf("code %d reads %q, as %d does", ret, s, before)
		}
		seen[s] = ret
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	err := &callError{"nvmlInit", "GPU-1", nvml.ERROR_DRIVER_NOT_LOADED}
	for _, want := range []string{"nvmlInit", "GPU-1", "driver not loaded", "load the nvidia kernel module"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("python3")
	f.Add("e\x1b[31m\xff\u202evil\n")
	f.Fuzz(func(t *testing.T, s string) {
		if got := clean(s); clean(got) != got || strings.ContainsAny(got, "\x00\n\r\t\x1b\u202e") {
			t.Errorf("clean(%q) = %q, which is not", s, got)
		}
	})
}
