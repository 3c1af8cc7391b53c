package inventory

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDriverThatWasInstalledAndNotLoaded(t *testing.T) {
	const library = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so"
	r, dir := within(t, map[string]string{library + ".580.65.06": "elf"})
	put(t, dir, map[string]string{"etc/alternatives/.keep": ""})
	link(t, "/"+library+".580.65.06", filepath.Join(dir, "etc/alternatives/nvml"))
	link(t, "/etc/alternatives/nvml", filepath.Join(dir, library+".1"))
	sys := t.TempDir()
	put(t, sys, map[string]string{"module/nvidia/version": "570.124.06\n"})
	got := versionsOf(t, newNodeReader(sys), r)
	if got["kernel_module"] != "570.124.06" || got["driver_library"] != "580.65.06" {
		t.Errorf("a module of 570.124.06 below a library of 580.65.06 is told as %v", got)
	}

	// The driver comes in a container: what lies on the node is of long ago.
	put(t, dir, map[string]string{"run/nvidia/driver/" + library + ".570.124.06": "elf"})
	link(t, "libnvidia-ml.so.570.124.06", filepath.Join(dir, "run/nvidia/driver", library+".1"))
	if got := versionsOf(t, newNodeReader(sys), r); got["driver_library"] != "570.124.06" {
		t.Errorf("the library of the driver's container, 570.124.06, is told as %q", got["driver_library"])
	}
	if err := os.Remove(filepath.Join(dir, "run/nvidia/driver", library+".1")); err != nil {
		t.Fatal(err)
	}
	if got := versionsOf(t, newNodeReader(sys), r); got["driver_library"] != "" {
		t.Errorf("without a library in the driver's container another one is told: %q", got["driver_library"])
	}
}

func TestDriverLibraryThatDoesNotTell(t *testing.T) {
	r, dir := within(t, map[string]string{"usr/lib64/libnvidia-ml.so.1": "a file of its own", "usr/lib/x86_64-linux-gnu/.keep": ""})
	link(t, "/nowhere", filepath.Join(dir, "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"))
	if got := versionsOf(t, newNodeReader(t.TempDir()), r); len(got) > 0 {
		t.Errorf("links that lead to no version tell %v", got)
	}
}
