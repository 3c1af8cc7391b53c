//go:build linux && cgo

package nvml

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
)

// identify fills what a GPU says of itself. What cannot be told now stays as it
// was: an identity does not vanish with a call.
func (w *worker) identify(g *collector.GPU) {
	w.tell(&g.Model, "nvmlDeviceGetName", w.handle.GetName)
	w.tell(&g.Serial, "nvmlDeviceGetSerial", w.handle.GetSerial)
	w.tell(&g.VBIOS, "nvmlDeviceGetVbiosVersion", w.handle.GetVbiosVersion)
	w.tell(&g.PCIBusID, "nvmlDeviceGetPciInfo", func() (string, nvml.Return) {
		info, ret := w.handle.GetPciInfo()
		return cString(info.BusId[:]), ret
	})
	w.tell(&g.Architecture, "nvmlDeviceGetArchitecture", func() (string, nvml.Return) {
		a, ret := w.handle.GetArchitecture()
		return architecture(a), ret
	})
	w.tell(&g.BoardPart, "nvmlDeviceGetBoardPartNumber", w.handle.GetBoardPartNumber)
	w.tell(&g.GSP, "nvmlDeviceGetGspFirmwareVersion", w.handle.GetGspFirmwareVersion)
	w.tell(&g.InfoROM, "nvmlDeviceGetInforomImageVersion", w.handle.GetInforomImageVersion)
}

func (w *worker) tell(into *string, function string, get func() (string, nvml.Return)) {
	if !w.guard.has(function) {
		return
	}
	var value string
	ret := w.do(function, func() (ret nvml.Return) {
		value, ret = get()
		return ret
	})
	if ret == nvml.SUCCESS && value != "" {
		*into = clean(value)
	}
}

func cString(c []int8) string {
	var b strings.Builder
	for _, r := range c {
		if r == 0 {
			break
		}
		b.WriteByte(byte(r))
	}
	return b.String()
}

// architecture names an architecture; one that is newer than this table is told
// by no name rather than by a wrong one.
func architecture(a nvml.DeviceArchitecture) string {
	switch a {
	case nvml.DEVICE_ARCH_KEPLER:
		return "Kepler"
	case nvml.DEVICE_ARCH_MAXWELL:
		return "Maxwell"
	case nvml.DEVICE_ARCH_PASCAL:
		return "Pascal"
	case nvml.DEVICE_ARCH_VOLTA:
		return "Volta"
	case nvml.DEVICE_ARCH_TURING:
		return "Turing"
	case nvml.DEVICE_ARCH_AMPERE:
		return "Ampere"
	case nvml.DEVICE_ARCH_ADA:
		return "Ada"
	case nvml.DEVICE_ARCH_HOPPER:
		return "Hopper"
	case nvml.DEVICE_ARCH_BLACKWELL:
		return "Blackwell"
	case nvml.DEVICE_ARCH_RUBIN:
		return "Rubin"
	default:
		return ""
	}
}
