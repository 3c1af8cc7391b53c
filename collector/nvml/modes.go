//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func modeCalls() []call {
	return []call{
		one("nvmlDeviceGetPersistenceMode", metric.PersistenceMode, device.GetPersistenceMode),
		one("nvmlDeviceGetComputeMode", metric.ComputeMode, device.GetComputeMode),
		one("nvmlDeviceGetAccountingMode", metric.AccountingMode, device.GetAccountingMode),
		one("nvmlDeviceGetNumaNodeId", metric.NUMANode, device.GetNumaNodeId),
		one("nvmlDeviceGetC2cModeInfoV", metric.C2CMode, func(d device) (uint32, nvml.Return) {
			mode, ret := d.GetC2cModeInfoV().V1()
			return mode.IsC2cEnabled, ret
		}),
		one("nvmlDeviceGetDisplayActive", metric.DisplayActive, device.GetDisplayActive),
		one("nvmlDeviceGetDisplayMode", metric.DisplayAttached, device.GetDisplayMode),
		one("nvmlDeviceGetAccountingBufferSize", metric.AccountingBuffer, device.GetAccountingBufferSize),
		{function: "nvmlDeviceGetGspFirmwareMode", rows: []*metric.Def{metric.GSPMode}, read: func(d device, s *sample) nvml.Return {
			now, usual, ret := d.GetGspFirmwareMode()
			if ret == nvml.SUCCESS {
				s.put(metric.GSPMode, 0, bit(now))
				s.put(metric.GSPMode, 1, bit(usual))
			}
			return ret
		}},
		{function: "nvmlDeviceGetGridLicensableFeatures", rows: []*metric.Def{metric.VGPULicensed}, read: readLicence},
		one("nvmlDeviceGetActiveVgpus", metric.VGPUs, func(d device) (int, nvml.Return) {
			vgpus, ret := d.GetActiveVgpus()
			return len(vgpus), ret
		}),
	}
}

// readLicence says nothing of a GPU that needs no licence.
func readLicence(d device, s *sample) nvml.Return {
	l, ret := d.GetGridLicensableFeatures()
	if ret != nvml.SUCCESS {
		return ret
	}
	if l.IsGridLicenseSupported == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	licensed := uint32(0)
	for _, f := range l.GridLicensableFeatures[:min(int(l.LicensableFeaturesCount), len(l.GridLicensableFeatures))] {
		if f.FeatureCode == uint32(nvml.GRID_LICENSE_FEATURE_CODE_VGPU) && f.FeatureState > 0 {
			licensed = 1
		}
	}
	put(s, metric.VGPULicensed, 0, licensed)
	return ret
}
