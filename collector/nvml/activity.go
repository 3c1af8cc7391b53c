//go:build linux && cgo

package nvml

import "gpuvigil/internal/metric"

func gpuActivityCalls() []call {
	calls := []call{
		gpmCall(metric.GraphicsActivity, 0, 1),
		gpmCall(metric.SMActivity, 0, 2),
		gpmCall(metric.SMOccupancy, 0, 3),
		gpmCall(metric.TensorActivity, 0, 5),
		gpmCall(metric.DRAMActivity, 0, 10),
	}
	// In the orders of metric.Tensor and metric.Pipe.
	for i, id := range []uint32{6, 7, 9} {
		calls = append(calls, gpmCall(metric.TensorKindActivity, i, id))
	}
	for i, id := range []uint32{11, 12, 13, 4} {
		calls = append(calls, gpmCall(metric.PipeActivity, i, id))
	}
	return calls
}

func instanceActivityCalls() []call {
	return []call{
		gpmCall(metric.MIGGraphicsActivity, 0, 1),
		gpmCall(metric.MIGSMActivity, 0, 2),
		gpmCall(metric.MIGSMOccupancy, 0, 3),
		gpmCall(metric.MIGTensorActivity, 0, 5),
		gpmCall(metric.MIGDRAMActivity, 0, 10),
	}
}

func gpmCall(d *metric.Def, i int, id uint32) call {
	return call{function: gpmMetrics, rows: []*metric.Def{d}, gpm: &gpmQuery{id, i}}
}
