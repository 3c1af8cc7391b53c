package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"gpuvigil/internal/fakenvml"
)

// TestHungGPU lets the calls on one GPU not return, as a GPU does that is dead
// and not yet reported as such.
func TestHungGPU(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	a := d.start(options{})
	a.ready(t)
	a.awaits(t, "all GPUs tell their power", power(0, 1, 2, 3))
	before := a.children(t)
	if len(before) != 1 {
		t.Fatalf("the agent has %d children, want the one that talks to NVML", len(before))
	}
	threads := threadsOf(t, before[0])

	d.Fault(fakenvml.GPU(2), fakenvml.Every, fakenvml.Hang)
	d.show()
	a.awaits(t, "the hung GPU is marked, and its old values are gone", func(m metrics) error {
		return errors.Join(m.expect(1, "vigil_gpu_hung", "gpu", "2"), m.expect(1, "vigil_nvml_hung_gpus"),
			m.absent("vigil_gpu_power_draw_watts", "gpu", "2"), power(0, 1, 3)(m))
	})
	for watts := 301; watts < 306; watts++ {
		for _, gpu := range []int{0, 1, 3} {
			d.Set(fakenvml.GPU(gpu), "nvmlDeviceGetPowerUsage", 1000*watts)
		}
		d.show()
		a.awaits(t, fmt.Sprintf("beside a hung GPU the others tell that they draw %d W", watts), func(m metrics) error {
			var errs []error
			for _, gpu := range []string{"0", "1", "3"} {
				errs = append(errs, m.expect(float64(watts), "vigil_gpu_power_draw_watts", "gpu", gpu))
			}
			return errors.Join(errs...)
		})
	}
	if _, err := a.get("/-/ready"); err != nil {
		t.Errorf("one hung GPU makes the whole agent not ready: %v", err)
	}
	if page, err := a.get("/"); err != nil || !strings.Contains(strings.ToLower(page), "hung") {
		t.Errorf("the page does not say that a GPU hangs: %v", err)
	}
	after := a.children(t)
	if len(after) != 1 || after[0] != before[0] {
		t.Errorf("one hung GPU costs the child process: there was %v, now there is %v", before, after)
	}
	if now := threadsOf(t, before[0]); now > threads+8 {
		t.Errorf("stuck calls pile up: the child had %d threads, and with one GPU hung it has %d", threads, now)
	}

	d.Clear(fakenvml.GPU(2), fakenvml.Every)
	d.show()
	m := a.awaits(t, "the GPU is back once its calls return", func(m metrics) error {
		return errors.Join(m.expect(0, "vigil_gpu_hung", "gpu", "2"), power(0, 1, 2, 3)(m))
	})
	if n := m.sum("vigil_child_restarts_total"); n != 0 {
		t.Errorf("one hung GPU restarted the child %v times", n)
	}
	if now := a.children(t); len(now) != 1 || now[0] != before[0] {
		t.Errorf("it needed another child for the GPU to come back: %v, before %v", now, before)
	}
}

// power checks that GPUs tell theirs.
func power(gpus ...int) func(metrics) error {
	return func(m metrics) error {
		var errs []error
		for _, gpu := range gpus {
			if found := m.find("vigil_gpu_power_draw_watts", "gpu", fmt.Sprint(gpu)); len(found) != 1 {
				errs = append(errs, fmt.Errorf("GPU %d does not tell its power", gpu))
			}
		}
		return errors.Join(errs...)
	}
}

func threadsOf(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}
