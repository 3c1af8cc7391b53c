package pods

import (
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

// Sight is what rule unusual says of a pod at one time.
type Sight struct {
	At       int64
	Score    float64
	Surprise float64 // nats; 0 below a score of 1
	Said     string
}

// Watch runs rule unusual over a pod's series, a snapshot a row, and returns what it
// says of each row that it judges.
func (p *Pod) Watch() []Sight {
	d := detect.NewUnusual()
	s, gpu, end, work := p.stage()
	var out []Sight
	for i, t := range p.Times {
		at := time.Unix(t, 0)
		s.Time = at
		gpu.Stamp(metric.Fast, at)
		end.Stamp(metric.Fast, at)
		gpu.Set(metric.Utilization, p.Duty[i])
		gpu.Set(metric.MemoryUsed, p.Memory[i])
		end.Set(metric.RequestsWaiting, p.Waiting[i])
		work.Set(metric.WorkloadMemory, p.Host[i])
		d.Observe(s, func(o detect.Observation) {
			out = append(out, Sight{t, o.Score, o.Surprise, o.Evidence.Seen})
		})
	}
	return out
}

// stage makes a node of one GPU, which the pod has.
func (p *Pod) stage() (*collector.Snapshot, *collector.GPU, *collector.Endpoint, *collector.Workload) {
	who := collector.Owner{Kind: "pod", ID: "pods/" + p.Name}
	s := &collector.Snapshot{
		Node:      collector.Node{Name: "n", Readings: collector.NewReadings(metric.Node)},
		GPUs:      []collector.GPU{{UUID: "GPU-" + p.Name, Present: true, Owners: []collector.Owner{who}, Readings: collector.NewReadings(metric.GPU)}},
		Endpoints: []collector.Endpoint{{URL: "http://" + p.Name + "/metrics", GPUs: []string{"GPU-" + p.Name}, Readings: collector.NewReadings(metric.Endpoint)}},
		Workloads: []collector.Workload{{Owner: who, Readings: collector.NewReadings(metric.Workload)}},
	}
	return s, &s.GPUs[0], &s.Endpoints[0], &s.Workloads[0]
}

// Findings returns when findings begin in what was seen, as the engine counts them: at a
// score and a surprise of at least so much, and over after half an hour below.
func Findings(seen []Sight, score, surprise float64, from, to int64) []Sight {
	const hold = 30 * 60
	var out []Sight
	until := int64(math.MinInt64)
	for _, s := range seen {
		if s.Score < score || s.Surprise < surprise {
			continue
		}
		if s.At >= until && s.At >= from && s.At < to {
			out = append(out, s)
		}
		until = s.At + hold
	}
	return out
}

// Median returns the middle of the values, NaN of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return v[len(v)/2]
}
