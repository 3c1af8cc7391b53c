//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// instance is a MIG instance as its GPU's worker keeps it.
type instance struct {
	subject
	collector.Instance
}

func (i *instance) id() string { return fmt.Sprintf("%d/%d", i.GI, i.CI) }

// learnMIGMode asks whether MIG is on, and reports whether that could be told. A
// GPU that has no such mode is not in it.
func (w *worker) learnMIGMode() bool {
	for _, function := range []string{
		"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
	} {
		if !w.guard.has(function) {
			w.migMode, w.migKnown = [2]bool{}, false
			return true
		}
	}
	now, next := 0, 0
	ret := w.do("nvmlDeviceGetMigMode", func() (ret nvml.Return) {
		now, next, ret = w.handle.GetMigMode()
		return ret
	})
	if judge(ret) > unsupported {
		return false
	}
	w.migKnown = ret == nvml.SUCCESS
	w.migMode = [2]bool{w.migKnown && now == nvml.DEVICE_MIG_ENABLE, w.migKnown && next == nvml.DEVICE_MIG_ENABLE}
	return true
}

// keepInstances replaces the instances and gives back what the others held.
func (w *worker) keepInstances(found []*instance) {
	for _, old := range w.instances {
		if !slices.ContainsFunc(found, func(in *instance) bool { return in.MIGUUID == old.MIGUUID }) {
			w.forgetGPM(&old.subject.gpm)
		}
	}
	w.instances = found
}

// findInstances lists the GPU's MIG instances. One that cannot be read is left
// out, counted as an error and tried again with the next inventory.
func (w *worker) findInstances() {
	most := 0
	if !w.learn(&most, "nvmlDeviceGetMaxMigDeviceCount", w.handle.GetMaxMigDeviceCount) {
		w.partial = true
		return
	}
	var found []*instance
	for i := range most {
		var dev nvml.Device
		ret := w.do("nvmlDeviceGetMigDeviceHandleByIndex", func() (ret nvml.Return) {
			dev, ret = w.handle.GetMigDeviceHandleByIndex(i)
			return ret
		})
		if ret == nvml.SUCCESS {
			if in := w.inspect(dev); in != nil {
				found = append(found, in)
			}
		} else if judge(ret) != nothing {
			w.log.Warn("cannot read a MIG instance", "slot", i, "err", text(ret))
			w.partial = true
		}
	}
	w.keepInstances(found)
}

// inspect identifies an instance and keeps what was learned about it before.
func (w *worker) inspect(dev device) *instance {
	in := &instance{}
	in.GPU, in.UUID = w.gpu.Index, w.gpu.UUID
	ok := w.learn(&in.GI, "nvmlDeviceGetGpuInstanceId", dev.GetGpuInstanceId) &&
		w.learn(&in.CI, "nvmlDeviceGetComputeInstanceId", dev.GetComputeInstanceId)
	w.tell(&in.MIGUUID, "nvmlDeviceGetUUID", dev.GetUUID)
	if !ok || in.MIGUUID == "" {
		w.log.Warn("cannot identify a MIG instance", "mig", in.MIGUUID)
		w.partial = true
		return nil
	}
	in.Profile = w.profile(dev)
	in.subject = newSubject(w.instanceCalls)
	in.Readings = collector.NewReadings(metric.Instance)
	if i := slices.IndexFunc(w.instances, func(o *instance) bool { return o.MIGUUID == in.MIGUUID }); i >= 0 {
		in.subject, in.Readings = w.instances[i].subject, w.instances[i].Readings
	}
	in.dev = dev
	return in
}

func (w *worker) learn(into *int, function string, get func() (int, nvml.Return)) bool {
	if !w.guard.has(function) {
		return false
	}
	return w.do(function, func() (ret nvml.Return) {
		*into, ret = get()
		return ret
	}) == nvml.SUCCESS
}

// profile returns the instance's profile, such as 1g.10gb, which ends the name of
// a MIG device. Where it does not, the profile follows from the attributes.
func (w *worker) profile(dev device) string {
	name := ""
	w.tell(&name, "nvmlDeviceGetName", dev.GetName)
	if _, profile, ok := strings.Cut(name, " MIG "); ok {
		return profile
	}
	if !w.guard.has("nvmlDeviceGetAttributes") {
		return ""
	}
	var a nvml.DeviceAttributes
	ret := w.do("nvmlDeviceGetAttributes", func() (ret nvml.Return) {
		a, ret = dev.GetAttributes()
		return ret
	})
	total := 0
	if ret == nvml.SUCCESS && w.learn(&total, "nvmlDeviceGetMemoryInfo", func() (int, nvml.Return) {
		m, ret := w.handle.GetMemoryInfo()
		return int(m.Total), ret
	}) && total > 0 {
		return profileOf(a, float64(total))
	}
	return ""
}

// profileOf names a profile as NVIDIA does: the memory is the instance's share of
// the GPU's, in eighths rounded up, of whole GiB.
func profileOf(a nvml.DeviceAttributes, total float64) string {
	const gib = 1 << 30
	eighths := math.Ceil(float64(a.MemorySizeMB) * (1 << 20) / total * 8)
	memory := math.Round(eighths / 8 * math.Ceil(total/gib))
	if a.ComputeInstanceSliceCount != a.GpuInstanceSliceCount {
		return fmt.Sprintf("%dc.%dg.%.0fgb", a.ComputeInstanceSliceCount, a.GpuInstanceSliceCount, memory)
	}
	return fmt.Sprintf("%dg.%.0fgb", a.GpuInstanceSliceCount, memory)
}
