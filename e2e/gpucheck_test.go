package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpuvigil/internal/fakenvml"
)

// script is the check for machines with a GPU, run where there may be none.
const script = "../scripts/gpu-check.sh"

func TestGPUCheckWithoutGPU(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nvidia-smi"); err == nil {
		t.Skip("this machine has nvidia-smi")
	}
	if code, said := runs(t, nil, script); code != 0 || said != "no GPU here, nothing checked\n" {
		t.Errorf("without a GPU the check exits %d and says %q", code, said)
	}
}

// TestGPUCheck runs the whole script with a fake driver and an nvidia-smi that agrees with it, and with one that does
// not.
func TestGPUCheck(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(bin, "gpuvigil")); err != nil {
		t.Fatal(err)
	}
	if code, said := runs(t, nil, "go", "build", "-o", filepath.Join(bin, "gpucheck"), "./gpucheck"); code != 0 {
		t.Fatal(said)
	}
	for name, test := range map[string]struct {
		port, watts string
		code        int
	}{
		"agreed":   {port: "19837", watts: "300.00", code: 0},
		"differed": {port: "19838", watts: "150.00", code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver(t, 2)
			d.Set(fakenvml.GPU(0), "nvmlDeviceGetUUID", "GPU-00000000-0000-4000-8000-000000000001")
			d.Set(fakenvml.GPU(0), "nvmlDeviceGetPowerUsage", 300_000)
			d.show()
			smi := t.TempDir()
			fake := "#!/bin/sh\ncase $1 in\n-L) echo 'GPU 0: fake' ;;\n--query-gpu=*) printf 'uuid, name, power.draw [W]\\n" +
				"GPU-00000000-0000-4000-8000-000000000001, fake, " + test.watts + " W\\n' ;;\nesac\n"
			if err := os.WriteFile(filepath.Join(smi, "nvidia-smi"), []byte(fake), 0o755); err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			code, said := runs(t, []string{
				"PATH=" + smi + ":" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + filepath.Dir(library), fakenvml.EnvFile + "=" + d.path,
				"GPU_CHECK_BIN=" + bin, "GPU_CHECK_PORT=" + test.port, "GPU_CHECK_FOR=2s", "GPU_CHECK_RECORD_FOR=2s",
			}, script, out)
			if code != test.code || strings.Contains(said, "DIFFERS") != (test.code != 0) {
				t.Errorf("the check exits %d, want %d, and says\n%s", code, test.code, said)
			}
			if info, err := os.Stat(filepath.Join(out, "recording.frames")); err != nil || info.Size() == 0 {
				t.Errorf("the check leaves no recording: %v", err)
			}
		})
	}
}
