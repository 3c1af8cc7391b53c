//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// link is one NVLink as its GPU's worker keeps it.
type link struct {
	subject
	collector.Link
}

// linkCalls are the questions about one NVLink. All of them are fields, so that
// one call for each link and round asks them.
func linkCalls() []call {
	calls := []call{
		fieldAs(metric.LinkUp, 0, nvml.FI_DEV_NVLINK_GET_STATE, eachLink, asTyped),
		fieldAs(metric.LinkSpeed, 0, nvml.FI_DEV_NVLINK_GET_SPEED, eachLink, asTyped),
	}
	return append(calls, slices.Concat(
		// In the orders of the rows' dimensions.
		fields(metric.LinkBytes, eachLink, asTyped, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX),
		fields(metric.LinkErrors, eachLink, asTyped,
			nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, nvml.FI_DEV_NVLINK_ERROR_DL_CRC),
		fields(metric.Link5Errors, eachLink, asTyped,
			nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
			nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS),
		fields(metric.LinkBER, eachLink, asBitErrorRate, nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, nvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER),
	)...)
}

// sampleLinks asks about each of the GPU's NVLinks, as many as it says it has.
func (w *worker) sampleLinks(s *sample, now time.Time) {
	n := 0
	if have := s.readings.Value(metric.NVLinks); w.cfg.Full && !math.IsNaN(have) {
		n = min(int(have), nvml.NVLINK_MAX_LINKS)
	}
	for i := len(w.links); i < n; i++ {
		w.links = append(w.links, &link{
			subject: newSubject(w.linkCalls),
			Link:    collector.Link{GPU: w.gpu.Index, UUID: w.gpu.UUID, Number: i, Readings: collector.NewReadings(metric.Link)},
		})
	}
	w.links = w.links[:n]
	for _, l := range w.links {
		own := sample{readings: without(l.Readings, metric.Link, metric.Slow)}
		l.dev = w.dev
		if due := l.due(metric.Slow, now); len(due) > 0 && w.askFields(&l.subject, due, uint32(l.Number), &own, now).stop {
			return
		}
		own.readings.Stamp(metric.Slow, now)
		l.Readings = own.readings
		s.dropped = append(s.dropped, own.dropped...)
	}
}
