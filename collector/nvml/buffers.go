//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector/bands"
	"gpuvigil/internal/metric"
)

// buffer is a ring of samples that the driver keeps of a signal: what happened
// between two rounds is in it.
type buffer struct {
	call   // its one row is the reading that the samples are of
	signal bands.Signal
	kind   nvml.SamplingType
}

func buffers() []buffer {
	of := func(signal bands.Signal, kind nvml.SamplingType, d *metric.Def) buffer {
		return buffer{call{function: "nvmlDeviceGetSamples", rows: []*metric.Def{d}}, signal, kind}
	}
	return []buffer{
		of(bands.Utilization, nvml.GPU_UTILIZATION_SAMPLES, metric.Utilization),
		of(bands.Power, nvml.TOTAL_POWER_SAMPLES, metric.PowerDraw),
	}
}

// observe follows the fast signals: by the driver's buffers where it keeps them,
// else by the readings of this round.
func (w *worker) observe(s *sample, now time.Time) {
	for _, b := range w.buffers {
		if w.gpu != nil && w.worth(&b.call, now) {
			w.drain(b, s, now)
		}
	}
	if w.gpu == nil {
		return
	}
	fast := w.interval(metric.Fast)
	for _, b := range w.buffers {
		w.bands.Observe(b.signal, s.readings, now, w.quiet(b, fast))
	}
	w.bands.Observe(bands.SMActivity, s.readings, now, 0)
	w.bands.Observe(bands.MemoryBandwidth, s.readings, now, 0)
	w.bands.Fill(s.readings, now)
	if w.cfg.Histograms {
		w.gpu.Distributions = w.bands.Distributions()
	}
}

// quiet is how long a buffer may have nothing new before the round's reading counts.
func (w *worker) quiet(b *buffer, fast time.Duration) time.Duration {
	if _, refused := w.refused[&b.call]; refused || b.missing {
		return 0
	}
	return 2 * fast
}

// drain takes the samples that have come since the last time.
func (w *worker) drain(b *buffer, s *sample, now time.Time) {
	since := w.bands.Last(b.signal)
	if since.IsZero() {
		since = now.Add(-w.cfg.Tiers[metric.Fast])
	}
	var kind nvml.ValueType
	var samples []nvml.Sample
	ret := w.do(b.function, func() nvml.Return {
		var ret nvml.Return
		kind, samples, ret = readBuffer(w.dev, b.kind, uint64(since.UnixMicro()))
		return ret
	})
	if w.conclude(&w.subject, &b.call, ret, now).stop {
		return
	}
	d, limit := b.rows[0], s.readings.Value(metric.PowerLimit)
	for i := range samples {
		at := time.UnixMicro(int64(samples[i].TimeStamp))
		if !at.After(since) {
			continue // a place in the ring that holds nothing yet, or an old one
		}
		v, ok := valueOf(kind, samples[i].SampleValue)
		if v = d.FromRaw(v); !ok || !d.Plausible(v) || at.After(now.Add(time.Minute)) {
			s.drop(d)
			continue
		}
		w.bands.Add(b.signal, at, v, limit)
	}
}

// readBuffer asks for the samples since a time in the driver's microseconds.
func readBuffer(d device, kind nvml.SamplingType, since uint64) (value nvml.ValueType, samples []nvml.Sample, ret nvml.Return) {
	// go-nvml asks for the size and then for the samples, and slices beyond its
	// buffer when there are more of them by then.
	defer func() {
		if recover() != nil {
			samples, ret = nil, nvml.ERROR_NO_DATA
		}
	}()
	value, samples, ret = d.GetSamples(kind, since)
	if ret != nvml.SUCCESS {
		samples = nil
	}
	return value, samples, ret
}

// valueOf reads a number as the type that the driver says.
func valueOf(kind nvml.ValueType, value [8]byte) (float64, bool) {
	v, ret := asTyped(&nvml.FieldValue{ValueType: uint32(kind), Value: value}, nil)
	return v, ret == nvml.SUCCESS && !(kind == nvml.VALUE_TYPE_UNSIGNED_INT && sentinel(binary.NativeEndian.Uint32(value[:])))
}
