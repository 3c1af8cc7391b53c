package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuvigil/internal/config"
)

// busWith makes a sysfs with GPUs on its PCI bus, each with the driver of that name
// or, if it is empty, with none.
func busWith(t *testing.T, drivers ...string) string {
	t.Helper()
	sys := t.TempDir()
	for i, driver := range drivers {
		dir := filepath.Join(sys, "bus/pci/devices", "0000:"+string(rune('a'+i))+"0:00.0")
		put(t, filepath.Join(dir, "vendor"), "0x10de\n")
		put(t, filepath.Join(dir, "class"), "0x030200\n")
		if driver == "" {
			continue
		}
		if err := os.Symlink("../../../bus/pci/drivers/"+driver, filepath.Join(dir, "driver")); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorOnGPUsWithoutADriver(t *testing.T) {
	for name, c := range map[string]struct {
		drivers []string
		listed  int
		broken  bool
		found   string
	}{
		"no GPU":                    {nil, 0, false, "none"},
		"all are listed":            {[]string{"nvidia", "nvidia"}, 2, false, "2 with driver nvidia"},
		"no driver":                 {[]string{"", ""}, 0, true, "2 with driver none; the NVIDIA driver answers for none of them"},
		"another driver":            {[]string{"nouveau"}, 0, true, "1 with driver other; the NVIDIA driver answers for none of them"},
		"a driver that lists none":  {[]string{"nvidia"}, 0, true, "1 with driver nvidia; the NVIDIA driver answers for none of them"},
		"one did not come up":       {[]string{"nvidia", "nvidia"}, 1, false, "2 with driver nvidia; the driver lists 1"},
		"given to virtual machines": {[]string{"vfio-pci", "nvgrace-gpu-vfio-pci"}, 0, false, "2 with driver vfio"},
	} {
		t.Run(name, func(t *testing.T) {
			d := doctorBus(withSysFS(busWith(t, c.drivers...)), c.listed)
			if broken := !d.ok && d.needed; broken != c.broken || d.found != c.found || broken && d.advice == "" {
				t.Errorf("the doctor says %+v, want it broken: %v, and %q", d, c.broken, c.found)
			}
		})
	}
	sys := t.TempDir()
	put(t, filepath.Join(sys, "bus/pci/devices"), "no folder")
	if d := doctorBus(withSysFS(sys), 0); d.ok || d.needed || !strings.Contains(d.advice, "--path.sysfs") {
		t.Errorf("of a bus that cannot be read the doctor says %+v, want where to name it", d)
	}
}

func TestDoctorOnPIDs(t *testing.T) {
	proc := t.TempDir()
	if d := doctorPIDs(proc); d.ok || d.needed || !strings.Contains(d.advice, "hostPID") {
		t.Errorf("in a pid namespace of its own the doctor says %+v", d)
	}
	put(t, filepath.Join(proc, "2", "stat"), "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0\n")
	if d := doctorPIDs(proc); !d.ok || d.advice != "" {
		t.Errorf("with the host's /proc the doctor says %+v", d)
	}
	put(t, filepath.Join(proc, "2", "stat"), "2 (kthreadd")
	if d := doctorPIDs(proc); d.ok || !strings.Contains(d.found, "cut short") {
		t.Errorf("with a broken /proc the doctor says %+v", d)
	}
}

// Who has switched it on already must be told of the right that is missing, not of the
// switch.
func TestDoctorOnPrivilegedReads(t *testing.T) {
	failing := func(why error, files ...string) func(string) error {
		return func(file string) error {
			if slices.Contains(files, file) {
				return &fs.PathError{Op: "open", Path: "/proc/1/" + file, Err: why}
			}
			return nil
		}
	}
	c := config.Default()
	for name, says := range map[string]struct {
		on            bool
		read          func(string) error
		ok            bool
		found, advice []string
		never         string
	}{
		"off":                     {false, failing(nil), false, []string{"off"}, []string{"movement.privileged_reads", "CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE"}, "not here"},
		"all rights":              {true, failing(nil), true, []string{"on;"}, nil, "CAP_"},
		"no rights":               {true, failing(unix.EACCES, "mountstats", "io"), false, []string{"/proc/1/mountstats: permission denied", "/proc/1/io"}, []string{"CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE"}, "set movement"},
		"no right to read mounts": {true, failing(unix.EACCES, "mountstats"), false, []string{"/proc/1/mountstats"}, []string{"CAP_DAC_READ_SEARCH"}, "CAP_SYS_PTRACE"},
		"no right to trace":       {true, failing(unix.EPERM, "io"), false, []string{"/proc/1/io"}, []string{"CAP_SYS_PTRACE"}, "CAP_DAC_READ_SEARCH"},
		"hidden processes":        {true, failing(unix.ENOENT, "mountstats"), false, []string{"no such file"}, []string{"hidepid"}, "CAP_"},
	} {
		c.Movement.Privileged = says.on
		d := doctorPrivileged(c, says.read)
		if d.ok != says.ok || d.needed || strings.Contains(d.found+d.advice, says.never) || (d.advice == "") != (says.advice == nil) {
			t.Errorf("%s: the doctor says %+v, want it ok: %t, and never %q", name, d, says.ok, says.never)
		}
		for _, want := range says.found {
			if !strings.Contains(d.found, want) {
				t.Errorf("%s: the doctor found %q, want %q", name, d.found, want)
			}
		}
		for _, want := range says.advice {
			if !strings.Contains(d.advice, want) {
				t.Errorf("%s: the doctor advises %q, want %q", name, d.advice, want)
			}
		}
	}
}

// What the API server refuses is said with what to do, and nothing is said of what is
// off.
func TestDoctorAsksTheAPIServer(t *testing.T) {
	c := config.Default()
	c.Node = "n1"
	if got := doctorAPI(t.Context(), c); got != nil {
		t.Errorf("the doctor speaks of what is off: %+v", got)
	}
	c.Kubernetes.PodLabels, c.Kubernetes.Kubeconfig = []string{"app"}, apiServer(t)
	if got := doctorAPI(t.Context(), c); len(got) != 1 || !got[0].ok {
		t.Errorf("the API server answers, and the doctor says %+v", got)
	}
	c.Kubernetes.ResourceSlices = true // which that server does not know
	if got := doctorAPI(t.Context(), c); len(got) != 1 || got[0].ok || !strings.Contains(got[0].found, "resourceslices") || !strings.Contains(got[0].advice, "agent-api.yml") {
		t.Errorf("the server does not know resource slices, and the doctor says %+v", got)
	}
	c.Kubernetes.Kubeconfig = ""
	if got := doctorAPI(t.Context(), c); len(got) != 1 || got[0].ok || !strings.Contains(got[0].found, "service account") {
		t.Errorf("there is no account, and the doctor says %+v", got)
	}
}

// Who reads it must learn what the search for servers takes, before it finds nothing.
func TestDoctorOnFindingInferenceServers(t *testing.T) {
	proc := t.TempDir()
	c := config.Default()
	c.Host.ProcFS = proc
	says := func(ok bool, found, advice string) {
		t.Helper()
		d := doctorDiscovery(c)
		if d.ok != ok || d.needed || !strings.Contains(d.found, found) || !strings.Contains(d.advice, advice) || (advice == "") != (d.advice == "") {
			t.Errorf("the doctor says %+v, want it ok: %t, %q, and the advice %q", d, ok, found, advice)
		}
	}
	says(false, "off; 0 targets are configured", "CAP_SYS_PTRACE")
	c.Inference.Discover = true
	c.Inference.Targets = []config.Target{{Page: config.Page{URL: "http://a/metrics"}}}
	says(false, "only servers of this user are found", "inference.targets")
	put(t, filepath.Join(proc, "1", "fd", "0"), "")
	says(true, "are looked at", "")
}

func withSysFS(dir string) *config.Config {
	c := config.Default()
	c.Host.SysFS = dir
	return c
}
