package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuvigil/internal/fakenvml"
)

const stepScript = "../scripts/gpu-step-time.sh"

// fakeSMI is a directory with an nvidia-smi that lists one GPU.
func fakeSMI(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\necho 'GPU 0: fake'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fakeTorch(t *testing.T, gpu string) []string {
	t.Helper()
	path, err := filepath.Abs("testdata/faketorch")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1", "FAKETORCH_GPU=" + gpu}
}

// Where there is nothing to measure the script says why, and nothing is wrong.
func TestStepTimeRefuses(t *testing.T) {
	t.Parallel()
	none := t.TempDir()
	for name, test := range map[string]struct {
		path string
		env  []string
		say  string
	}{
		"no GPU":     {none, nil, "no GPU here, no step time measured\n"},
		"no PyTorch": {fakeSMI(t), fakeTorch(t, "0"), "python3 has no PyTorch that sees the GPU, no step time measured\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := test.path + ":/usr/local/bin:/usr/bin:/bin"
			if name == "no GPU" {
				hidden := "#!/bin/sh\nexit 9\n" // this machine may have one
				if err := os.WriteFile(filepath.Join(none, "nvidia-smi"), []byte(hidden), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if code, said := runs(t, append(test.env, "PATH="+path), stepScript); code != 0 || said != test.say {
				t.Errorf("the script exits %d and says %q, want %q", code, said, test.say)
			}
		})
	}
}

// TestStepTime runs the whole script with a fake driver and a PyTorch whose steps need no GPU. How long they take is of
// no interest, but that they were timed with the agent and without it.
func TestStepTime(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(bin, "gpuvigil")); err != nil {
		t.Fatal(err)
	}
	if code, said := runs(t, nil, "go", "build", "-o", filepath.Join(bin, "steptime"), "./steptime"); code != 0 {
		t.Fatal(said)
	}
	d := newDriver(t, 2)
	out := t.TempDir()
	code, said := runs(t, append(fakeTorch(t, "1"),
		"PATH="+fakeSMI(t)+":"+os.Getenv("PATH"), "LD_LIBRARY_PATH="+filepath.Dir(library), fakenvml.EnvFile+"="+d.path,
		"GPU_CHECK_BIN="+bin, "GPU_CHECK_PORT=19839", "STEP_TIME_PAIRS=4", "STEP_TIME_BLOCK=0.3", "STEP_TIME_SETTLE=0.1"), stepScript, out)
	log, err := os.ReadFile(filepath.Join(out, "step-agent.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if code > 1 || !containsAll(said, []string{"p50 of a step: ", "p99 of a step: ", "goal at most 0.1 %", "goal at most 1.0 %"}) {
		t.Fatalf("the script exits %d and says\n%s\n%s", code, said, log)
	}
	// On, off, off, on, on, off, off, on.
	if n := strings.Count(string(log), "Listening on"); n != 3 {
		t.Errorf("the agent was started %d times, want 3", n)
	}
	steps, err := os.ReadFile(filepath.Join(out, "steps.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for pair := range 4 {
		for _, state := range []string{"on", "off"} {
			if !strings.Contains(string(steps), fmt.Sprintf("\n%d,%s,0.", pair, state)) {
				t.Errorf("pair %d has no step with the agent %s", pair, state)
			}
		}
	}
}
