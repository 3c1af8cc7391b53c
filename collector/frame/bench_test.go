package frame

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// node returns a part as a child sends it each second.
func nodePart(gpus, instances, processes int) *collector.Part {
	rng := rand.New(rand.NewPCG(3, 4))
	vector := func(e metric.Entity) collector.Readings {
		r := readings(rng, e)
		for i := range r.Vector() {
			r.Vector()[i] = float64(rng.IntN(1000))
		}
		return r
	}
	p := &collector.Part{Time: noon, Node: collector.Node{Readings: vector(metric.Node)}}
	uuid := func(i int) string { return fmt.Sprintf("GPU-5c9b2f5e-0000-4c3a-9d0f-%012d", i%gpus) }
	for i := range gpus {
		p.GPUs = append(p.GPUs, collector.GPU{Index: i, UUID: uuid(i), Model: "NVIDIA H200", PCIBusID: "00000000:3B:00.0", Present: true,
			Unsupported: []*metric.Def{metric.FanSpeed}, Readings: vector(metric.GPU)})
	}
	for i := range instances {
		p.Instances = append(p.Instances, collector.Instance{GPU: i % gpus, UUID: uuid(i), MIGUUID: fmt.Sprintf("MIG-%032d", i), GI: i, Profile: "1g.18gb",
			Readings: vector(metric.Instance)})
	}
	for i := range processes {
		p.Processes = append(p.Processes, collector.Process{PID: 1000 + i, Start: uint64(1e6 + i), Name: "python3", GPU: i % gpus, UUID: uuid(i),
			Readings: vector(metric.Process)})
	}
	return p
}

var sizes = []struct {
	name                       string
	gpus, instances, processes int
}{{"8gpus", 8, 0, 0}, {"8gpus-56mig-500processes", 8, 56, 500}}

func BenchmarkWrite(b *testing.B) {
	for _, s := range sizes {
		b.Run(s.name, func(b *testing.B) {
			p := nodePart(s.gpus, s.instances, s.processes)
			w := NewWriter(io.Discard)
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Write(p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(w.buf)), "bytes/frame")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, s := range sizes {
		b.Run(s.name, func(b *testing.B) {
			p := nodePart(s.gpus, s.instances, s.processes)
			stream := encodeParts(b, p)
			frame := stream[len(appendHeader(nil, catalogue())):]
			r := NewReader(io.MultiReader(bytes.NewReader(stream), &endless{frame: frame}))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless is a stream that repeats one frame.
type endless struct {
	frame []byte
	at    int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.frame[e.at:])
	e.at = (e.at + n) % len(e.frame)
	return n, nil
}
