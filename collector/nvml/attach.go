//go:build linux && cgo

package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// suspectBackoff is the time between two looks whether a handle is still good.
const suspectBackoff = 10 * time.Second

func (w *worker) mustAttach(now time.Time) bool {
	moved := w.generation != w.fleet.generation.Load()
	if w.gpu == nil {
		return moved || !now.Before(w.retry)
	}
	return moved || now.Sub(w.attached) >= w.cfg.Tiers[metric.Inventory] ||
		w.suspect && now.Sub(w.attached) >= suspectBackoff || !w.fleet.owns(w.gpu.UUID, w.slot)
}

// attach looks which GPU is in the slot. Handles die with a reset, a change of
// MIG or of the GPUs' places; the uuid stays.
func (w *worker) attach(now time.Time) {
	w.generation = w.fleet.generation.Load()
	w.attached, w.suspect = now, false
	if w.slot >= w.census.gpus() {
		w.lose(nvml.ERROR_GPU_NOT_FOUND, now)
		return
	}
	dev, uuid, ret := w.find()
	switch {
	case judge(ret) == fatal:
		w.fail(&callError{"nvmlDeviceGetHandleByIndex", "", ret})
		return
	case judge(ret) == failed && w.gpu != nil && !w.silent:
		w.log.Warn("cannot look for the GPU; it answered just now, so its handle is kept", "gpu", w.gpu.UUID, "err", text(ret))
		return
	case ret != nvml.SUCCESS:
		w.lose(ret, now)
		return
	}
	w.adopt(dev, uuid)
	w.identify(w.gpu)
	w.locate(w.gpu)
	if w.watchXids(now); w.gpu == nil {
		return
	}
	w.attachMIG()
	w.publish()
}

func (w *worker) find() (dev nvml.Device, uuid string, ret nvml.Return) {
	ret = w.do("nvmlDeviceGetHandleByIndex_v2", func() (ret nvml.Return) {
		dev, ret = w.lib.DeviceGetHandleByIndex(w.slot)
		return ret
	})
	if ret == nvml.SUCCESS {
		ret = w.do("nvmlDeviceGetUUID", func() (ret nvml.Return) {
			uuid, ret = dev.GetUUID()
			return ret
		})
	}
	return dev, uuid, ret
}

// adopt takes over the GPU in the slot, forgetting the one that was there before.
func (w *worker) adopt(dev nvml.Device, uuid string) {
	if w.gpu != nil && w.gpu.UUID != uuid {
		w.leave()
	}
	g := w.fleet.claim(uuid, dev, w.slot)
	if w.gpu == nil {
		g.Present, g.Readings = true, collector.NewReadings(metric.GPU)
		w.gpu, w.subject = &g, newSubject(w.callsOf(g.MIG))
		w.setGap()
		w.missing = nvml.SUCCESS
		w.log.Info("GPU found", "gpu", uuid, "index", g.Index)
	}
	if dev != w.handle {
		w.xidless, w.learned = true, true
		w.subject.gpm.at = time.Time{} // of before a reset, perhaps
	}
	w.handle, w.dev = dev, dev
}

func (w *worker) callsOf(mig bool) []*call {
	if mig {
		return w.migCalls
	}
	return w.gpuCalls
}

// lose gives the GPU up until it is found again.
func (w *worker) lose(ret nvml.Return, now time.Time) {
	w.retry = now.Add(w.cfg.lostBackoff)
	if w.missing != ret {
		w.missing = ret
		if w.gpu != nil {
			w.log.Warn("GPU does not answer", "gpu", w.gpu.UUID, "err", text(ret))
		} else {
			w.log.Warn("no GPU answers in this slot", "err", text(ret))
		}
	}
	if w.gpu == nil {
		return
	}
	w.leave()
	// The others may have changed places.
	w.generation = w.fleet.generation.Add(1)
}

func (w *worker) leave() {
	w.fleet.release(w.gpu.UUID, w.slot)
	w.forgetGPM(&w.subject.gpm)
	w.keepInstances(nil)
	w.gpu, w.handle, w.subject = nil, nil, subject{}
	w.processes = nil
	w.seen, w.silent, w.last = 0, false, [metric.Tiers]time.Time{}
	w.paces = [metric.Tiers]pace{}
	w.load, w.linked, w.bands, w.links, w.paths = load{}, growth{}, bands.GPU{}, nil, nil
}

// attachMIG looks for MIG mode and instances. Another mode supports other calls.
func (w *worker) attachMIG() {
	if w.learnMIGMode() && w.migMode[0] != w.gpu.MIG {
		w.gpu.MIG = w.migMode[0]
		w.forgetGPM(&w.subject.gpm)
		w.subject = newSubject(w.callsOf(w.gpu.MIG))
		w.dev = w.handle
	}
	w.partial = false
	if w.gpu.MIG {
		w.findInstances()
	} else {
		w.keepInstances(nil)
	}
}
