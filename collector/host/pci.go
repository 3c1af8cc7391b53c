package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	pciEvery  = time.Minute // devices do not come and go often, and a node may have hundreds
	nvidia    = "0x10de"
	vgaClass  = "0x0300"
	class3D   = "0x0302"
	pciFolder = "bus/pci/devices"
)

// BusGPUs is how many NVIDIA GPUs are on the PCI bus, by the kernel driver that has
// them, in the order of metric.PCIDriver.
type BusGPUs [4]int

// Total is how many there are for this host: those that are passed on to virtual
// machines are not.
func (b BusGPUs) Total() int { return b[0] + b[2] + b[3] }

// GPUsOnBus counts the NVIDIA GPUs on the PCI bus as the sysfs at the path shows
// it, whether or not there is a driver. Virtual functions are parts of a GPU and do
// not count. A machine without PCI has none.
func GPUsOnBus(sysPath string) (BusGPUs, error) {
	drivers, err := driversOnBus(sysPath)
	return count(drivers), err
}

func count(drivers map[string]string) (found BusGPUs) {
	for _, name := range drivers {
		switch {
		case name == collector.NoDriver:
			found[3]++
		case name == "nvidia":
			found[0]++
		case strings.Contains(name, "vfio"):
			found[1]++
		default:
			found[2]++
		}
	}
	return found
}

// driversOnBus returns the kernel driver of each NVIDIA GPU, by its address.
func driversOnBus(sysPath string) (map[string]string, error) {
	found := map[string]string{}
	dir := filepath.Join(sysPath, pciFolder)
	devices, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("look for GPUs on the PCI bus: %w", err)
	}
	var errs []error
	for _, d := range devices {
		driver, is, err := gpuDriver(filepath.Join(dir, d.Name()))
		if err != nil {
			errs = append(errs, fmt.Errorf("look for GPUs on the PCI bus: %w", err))
		} else if is {
			found[d.Name()] = driver
		}
	}
	return found, errors.Join(errs...)
}

// gpuDriver reports whether a PCI device is an NVIDIA GPU, and which driver has it.
func gpuDriver(device string) (driver string, is bool, err error) {
	vendor, err := attribute(device, "vendor")
	if err != nil || vendor != nvidia {
		return "", false, err
	}
	class, err := attribute(device, "class")
	if err != nil || !strings.HasPrefix(class, vgaClass) && !strings.HasPrefix(class, class3D) {
		return "", false, err
	}
	if _, err := os.Lstat(filepath.Join(device, "physfn")); err == nil {
		return "", false, nil
	}
	link, err := os.Readlink(filepath.Join(device, "driver"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return collector.NoDriver, true, nil
	case err != nil:
		return "", false, err
	}
	return filepath.Base(link), true, nil
}

// attribute reads one of a device's files. A device that has gone has none.
func attribute(device, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(device, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

func (h *Host) pci(r collector.Readings, part *collector.Part) error {
	if now := time.Now(); h.pciAt.IsZero() || now.Sub(h.pciAt) >= pciEvery {
		h.pciAt = now
		h.onBus, h.pciErr = driversOnBus(h.sysPath)
	}
	if h.pciErr != nil {
		return h.pciErr
	}
	for i, n := range count(h.onBus) {
		r.SetAt(metric.PCIGPUs, i, float64(n))
	}
	if len(h.onBus) > 0 { // a container may have a sysfs without devices
		part.Bus = h.onBus
	}
	return nil
}
