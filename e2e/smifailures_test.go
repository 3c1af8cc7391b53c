package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gpuvigil/internal/fakenvml"
)

const (
	driverNotLoaded = 9
	unknownError    = 999
)

// TestFailuresOfNVIDIASMI has the driver fail as it does where nvidia-smi says what was recorded. gpuvigil must be as
// recognisable, say what to do first, and never call such a node well.
func TestFailuresOfNVIDIASMI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/nvidia-smi-failures.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		happens func(*driver)
		doctor  []string // in a line of doctor, and in that with its advice
		health  string   // how the line begins
	}{
		"Failed to initialize NVML: Driver/library version mismatch": {
			func(d *driver) { d.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Error(versionMismatch)) },
			[]string{"initialize NVML", "driver/library version mismatch", "reload the module or reboot", "without a restart"},
			"UNKNOWN  source nvml does not see: the child ended with status 1: initialize NVML: nvmlInit: driver/library version mismatch",
		},
		"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.": {
			func(d *driver) { d.Fault(fakenvml.Sys, "nvmlInit_v2", fakenvml.Error(driverNotLoaded)) },
			[]string{"driver not loaded", "load the nvidia kernel module"},
			"UNKNOWN  source nvml does not see: the child ended with status 1: initialize NVML: nvmlInit: driver not loaded",
		},
		"Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.": {
			func(d *driver) { d.Fault(fakenvml.GPU(0), fakenvml.Every, fakenvml.Error(gpuIsLost)) },
			[]string{"lists 2 and does not answer for 1", "kernel log", "reset the GPU or reboot"},
			"PROBLEM  1 of 2 GPUs answer",
		},
		"Unable to determine the device handle for GPU1: 0000:1B:00.0: Unknown Error": {
			func(d *driver) { d.Fault(fakenvml.GPU(1), fakenvml.Every, fakenvml.Error(unknownError)) },
			[]string{"lists 2 and does not answer for 1", "kernel log", "reset the GPU or reboot"},
			"PROBLEM  1 of 2 GPUs answer",
		},
		"No devices were found": {
			func(d *driver) {
				d.Set(fakenvml.Sys, "nvmlDeviceGetCount_v2", 0)
				d.Remove(fakenvml.GPU(0))
				d.Remove(fakenvml.GPU(1))
			},
			[]string{"lists no GPU", "lspci", "NVRM"},
			"OK  no GPU was ever seen here",
		},
		// nvidia-smi refuses a name of another release; NVML has the same under two names.
		`Field "clocks_throttle_reasons.active" is not a valid field to query.`: {
			func(d *driver) {
				for gpu := range 2 {
					d.Unset(fakenvml.GPU(gpu), "nvmlDeviceGetCurrentClocksThrottleReasons")
				}
			}, nil, "OK  2 GPUs",
		},
	}
	found := 0
	for block := range strings.SplitSeq(string(text), "---\n") {
		for first, c := range cases {
			if strings.HasPrefix(block, first) {
				found++
				t.Run(first, func(t *testing.T) { fails(t, c.happens, c.doctor, c.health) })
			}
		}
	}
	if blocks := strings.Count(string(text), "---\n") + 1; found != blocks || found != len(cases) {
		t.Errorf("of %d recorded failures %d are tested, with %d cases", blocks, found, len(cases))
	}
}

func fails(t *testing.T, happens func(*driver), doctor []string, health string) {
	t.Parallel()
	d := newDriver(t, 2)
	happens(d)
	d.show()
	code, said := runs(t, []string{fakenvml.EnvFile + "=" + d.path}, binary, "doctor", "--state.dir="+shortDir(t), "--nvml.library-path="+library)
	if broken := len(doctor) > 0; broken != strings.Contains(said, "BROKEN") || broken != (code == 1) || !containsAll(said, doctor) {
		t.Errorf("gpuvigil doctor exits %d and says, without all of %q:\n%s", code, doctor, said)
	}
	a := d.start(options{})
	eventually(t, "gpuvigil health says "+health, func() error {
		code, said := a.ask(t, "health")
		want := map[string]int{"OK": 0, "PROBLEM": 1, "UNKNOWN": 2}[strings.Fields(health)[0]]
		if code != want || !strings.HasPrefix(said, health) || strings.Count(said, "\n") != 1 {
			return fmt.Errorf("it exits %d and says %q", code, said)
		}
		return nil
	})
	if len(doctor) == 0 {
		a.awaits(t, "why clocks are held is told", func(m metrics) error {
			if n := len(m.find("vigil_gpu_clock_event_active", "gpu", "0")); n == 0 {
				return fmt.Errorf("there are %d reasons", n)
			}
			return nil
		})
	}
}
