package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/sim"
	"gpuvigil/internal/sim/simfake"
)

// driver is what the fake NVML library says, set by a test.
type driver struct {
	fakenvml.File
	t    *testing.T
	path string
}

var epoch = time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)

// newDriver has some GPUs at work that answer everything.
func newDriver(t *testing.T, gpus int) *driver {
	t.Helper()
	scenario, err := sim.ScenarioByName("saturate")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(sim.Config{Seed: 1, Start: epoch, Scenario: scenario, GPUs: gpus})
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, path: filepath.Join(t.TempDir(), "nvml.values")}
	simfake.Apply(&d.File, s.Part(epoch))
	d.show()
	return d
}

// show lets the library see what was set.
func (d *driver) show() {
	d.t.Helper()
	if err := d.Write(d.path); err != nil {
		d.t.Fatal(err)
	}
}

// start runs an agent with this driver and a configuration that samples often.
func (d *driver) start(o options) *agent {
	d.t.Helper()
	o.env = append(o.env, fakenvml.EnvFile+"="+d.path)
	if o.config == "" {
		o.config = quick
	}
	return startAgent(d.t, withLibrary(o))
}

// withLibrary adds the fake library unless the flags name another.
func withLibrary(o options) options {
	for _, a := range o.args {
		if filepath.Base(a) == filepath.Base(library) {
			return o
		}
	}
	o.args = append(o.args, "--nvml.library-path="+library)
	return o
}

// quick samples as often as is allowed, and takes a call for hung soon.
const quick = `
sampling: {fast: 500ms, slow: 1s, inventory: 1s}
nvml: {call_limit: 1s, init_limit: 3s}
`

// write makes a file for a test and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
