//go:build linux && cgo

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

func utilizationCalls() []call {
	return []call{
		{
			function: "nvmlDeviceGetUtilizationRates",
			rows:     []*metric.Def{metric.Utilization, metric.MemoryUtilization},
			read: func(d device, s *sample) nvml.Return {
				u, ret := d.GetUtilizationRates()
				if ret == nvml.SUCCESS {
					put(s, metric.Utilization, 0, u.Gpu)
					put(s, metric.MemoryUtilization, 0, u.Memory)
				}
				return ret
			},
		},
		one("nvmlDeviceGetEncoderUtilization", metric.EncoderUtilization, func(d device) (uint32, nvml.Return) {
			v, _, ret := d.GetEncoderUtilization()
			return v, ret
		}),
		one("nvmlDeviceGetDecoderUtilization", metric.DecoderUtilization, func(d device) (uint32, nvml.Return) {
			v, _, ret := d.GetDecoderUtilization()
			return v, ret
		}),
		one("nvmlDeviceGetJpgUtilization", metric.JPEGUtilization, func(d device) (uint32, nvml.Return) {
			v, _, ret := d.GetJpgUtilization()
			return v, ret
		}),
		one("nvmlDeviceGetOfaUtilization", metric.OFAUtilization, func(d device) (uint32, nvml.Return) {
			v, _, ret := d.GetOfaUtilization()
			return v, ret
		}),
		{
			function: "nvmlDeviceGetFBCStats",
			rows:     []*metric.Def{metric.CaptureSessions, metric.CaptureFrames, metric.CaptureLatency},
			read: func(d device, s *sample) nvml.Return {
				f, ret := d.GetFBCStats()
				if ret == nvml.SUCCESS {
					put(s, metric.CaptureSessions, 0, f.SessionsCount)
					put(s, metric.CaptureFrames, 0, f.AverageFPS)
					put(s, metric.CaptureLatency, 0, f.AverageLatency)
				}
				return ret
			},
		},
		{
			function: "nvmlDeviceGetEncoderStats",
			rows:     []*metric.Def{metric.EncoderSessions, metric.EncoderFrames, metric.EncoderLatency},
			read: func(d device, s *sample) nvml.Return {
				sessions, frames, latency, ret := d.GetEncoderStats()
				if ret == nvml.SUCCESS {
					put(s, metric.EncoderSessions, 0, sessions)
					put(s, metric.EncoderFrames, 0, frames)
					put(s, metric.EncoderLatency, 0, latency)
				}
				return ret
			},
		},
	}
}
