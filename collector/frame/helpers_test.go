package frame

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// same compares parts: NaN equals NaN, rows are compared by identity.
var same = cmp.Options{
	cmp.Comparer(func(a, b *metric.Def) bool { return a == b }),
	cmp.Comparer(func(a, b collector.Readings) bool {
		for t := range metric.Tiers {
			if !a.SampledAt(t).Equal(b.SampledAt(t)) {
				return false
			}
		}
		bits := func(x, y float64) bool {
			return math.IsNaN(x) && math.IsNaN(y) || math.Float64bits(x) == math.Float64bits(y)
		}
		return (a.Vector() == nil) == (b.Vector() == nil) && slices.EqualFunc(a.Vector(), b.Vector(), bits)
	}),
}

func encodeParts(t testing.TB, parts ...*collector.Part) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf)
	for _, p := range parts {
		if err := w.Write(p); err != nil {
			t.Fatalf("write a part: %v", err)
		}
	}
	return buf.Bytes()
}

// readAll reads to the end of the stream or to the first error that is returned
// twice, and returns the parts and that error.
func readAll(b []byte) ([]*collector.Part, error) {
	r := NewReader(bytes.NewReader(b))
	var parts []*collector.Part
	var last error
	for {
		p, err := r.Read()
		switch {
		case err == nil:
			parts = append(parts, p)
		case last != nil && (errors.Is(err, io.EOF) || err == last):
			return parts, last
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return parts, err
		default:
			last = err
		}
	}
}

// fullPart sets every field that a part has.
func fullPart() *collector.Part {
	rng := rand.New(rand.NewPCG(1, 2))
	owner := collector.Owner{Kind: "pod", ID: "ml/train-0", Team: "nlp"}
	yes, no := true, false
	given := collector.Allocation{UUID: "GPU-3", MIG: "7/1", Owner: owner, Container: "main", Resource: "nvidia.com/gpu", Shares: 2, Source: "kubelet"}
	return &collector.Part{
		Time:      noon,
		Boot:      noon.Add(-72 * time.Hour),
		Simulated: true,
		Node: collector.Node{
			Name:     "gpu-01",
			Versions: []collector.Version{{Component: "cuda", Value: "12.8"}, {Component: "driver", Value: "570.124.06"}},
			Readings: readings(rng, metric.Node),
		},
		GPUs: []collector.GPU{{
			Index: 3, UUID: "GPU-3", Model: "NVIDIA H200", PCIBusID: "00000000:3B:00.0", Serial: "165", VBIOS: "96.00", Architecture: "hopper",
			BoardPart: "900-21001-0040", GSP: "570.124.06", InfoROM: "G520.0280.00.01",
			ComputeCapability: "9.0", CPUs: "0-31,64-95", NUMANodes: "1", Bound: "nvidia",
			Present: true, Hung: true, MIG: true,
			Owners:      []collector.Owner{owner, {Kind: "user", ID: "1000"}},
			Unsupported: []*metric.Def{metric.FanSpeed, metric.XidErrors},
			Dropped:     map[*metric.Def]uint64{metric.Temperature: 2, metric.PowerDraw: 9},
			Xids:        []collector.XidCount{{Code: 79, Count: 1, Last: noon.Add(-time.Minute)}},
			Readings:    readings(rng, metric.GPU),
			Allocations: []collector.Allocation{given, {UUID: "GPU-3"}},
			Distributions: []collector.Distribution{
				{Row: metric.PowerSampled, Sum: 12.5, Zero: 1, First: -3, Buckets: []uint64{1, 0, 1 << 40}}, {Row: metric.DRAMSampled},
			},
			Paths: []collector.Path{{UUID: "GPU-4", Level: "node"}},
		}, {UUID: "GPU-4"}},
		Instances: []collector.Instance{{GPU: 3, UUID: "GPU-3", MIGUUID: "MIG-1", GI: 7, CI: 1, Profile: "1g.18gb",
			Owners: []collector.Owner{owner}, Allocations: []collector.Allocation{given}, Readings: readings(rng, metric.Instance)}},
		Processes: []collector.Process{{PID: 4711, Start: 1 << 40, Name: "python\xff\n", UID: -1, GPU: 3, UUID: "GPU-3", MIG: "7/1",
			Owner: owner, Container: "main", Privileged: true, Readings: readings(rng, metric.Process)}},
		Endpoints: []collector.Endpoint{{URL: "http://127.0.0.1:8000/metrics", Engine: "vllm", Model: "llama", GPUs: []string{"GPU-3"},
			Approximate: []*metric.Def{metric.TimeToFirstToken, metric.PromptTokens},
			Readings:    readings(rng, metric.Endpoint), Histograms: []collector.Histogram{
				{Row: metric.QueueTime, Bounds: []float64{0.3, 1, 60}, Counts: []uint64{7, 9, 9, 1 << 60}, Sum: 4.25},
				{Row: metric.RequestDuration, Counts: []uint64{3}, Sum: math.Inf(1)},
			}}},
		Targets: []collector.Target{{URL: "http://127.0.0.1:8000/metrics", Discovered: true, Readings: readings(rng, metric.Target)}},
		Pages:   []collector.Page{{Source: "gpu_exporter", URL: "http://127.0.0.1:9400/metrics", Exporter: "dcgm-exporter", Names: "until 4.8", Utilization: "percent", GPUs: true}},
		Events: []collector.Event{{Time: noon.Add(time.Second), Kind: collector.XidEvent, UUID: "GPU-3", Code: -79,
			Component: "driver", Owner: owner, From: "a", To: "b", Text: "fallen off the bus"}},
		Workloads: []collector.Workload{{Owner: owner, CostCenter: "4711", Sensitivity: "secret", Stage: "training", Critical: true,
			Containers: []string{"main", "side"}, Caveats: []collector.Caveat{{Fact: "network", Reason: "host_network"}},
			Quality: []collector.Figure{{Name: "accuracy", Value: 0.75}}, Labels: []collector.Label{{Name: "app", Value: "x"}}, Readings: readings(rng, metric.Workload)}, {}},
		Interfaces: []collector.Interface{{Device: "mlx5_0", Port: 1, LinkLayer: "InfiniBand", State: "ACTIVE", PhysicalState: "LinkUp",
			Readings: readings(rng, metric.Interface)}},
		Attributions: []collector.Attribution{{PID: 4711, Start: 1 << 40, Owner: owner, Container: "main", Privileged: true}},
		Allocations:  []collector.Allocation{given},
		Inventory: &collector.Inventory{
			At:       noon.Add(-time.Minute),
			Runtimes: []collector.Runtime{{Owner: owner, Component: "torch", Version: "2.9.1", Processes: 8}},
			Images:   []collector.Image{{Owner: owner, Container: "main", Name: "trainer:7", Digest: "sha256:ab"}},
			Datasets: []collector.Dataset{{Owner: owner, Kind: "nfs", Source: "nas:/imagenet", Mount: "/data"}},
			APIs: []collector.API{{Owner: owner, Port: 8000, Scope: "any", TLS: &no, Engine: "vllm", Model: "llama", Approved: &yes},
				{Port: 9000, Scope: "loopback"}},
			Unread: []collector.Unread{{Reason: "forbidden", Processes: 3}},
			Absent: []string{"images: permission denied"},
		},
	}
}

// readings returns a vector with every column set and every tier stamped.
func readings(rng *rand.Rand, e metric.Entity) collector.Readings {
	r := collector.NewReadings(e)
	for _, d := range metric.Of(e) {
		for i := range d.Width() {
			r.SetAt(d, i, rng.NormFloat64()*1e9)
		}
	}
	for t := range metric.Tiers {
		r.Stamp(t, noon.Add(-time.Duration(t)*time.Second))
	}
	return r
}

// randomPart returns a part with lists, strings, times and numbers of any kind.
func randomPart(rng *rand.Rand) *collector.Part {
	g := generator{rng}
	p := &collector.Part{Time: g.time(), Boot: g.time(), Simulated: g.bool()}
	p.Node = collector.Node{Name: g.text(), Readings: g.readings(metric.Node)}
	for range rng.IntN(3) {
		p.Node.Versions = append(p.Node.Versions, collector.Version{Component: g.text(), Value: g.text()})
	}
	for range rng.IntN(4) {
		p.GPUs = append(p.GPUs, g.gpu())
	}
	for range rng.IntN(4) {
		p.Instances = append(p.Instances, collector.Instance{GPU: g.int(), UUID: g.text(), MIGUUID: g.text(), GI: g.int(), CI: g.int(),
			Profile: g.text(), Owners: g.owners(), Readings: g.readings(metric.Instance)})
	}
	for range rng.IntN(6) {
		p.Processes = append(p.Processes, collector.Process{PID: g.int(), Start: rng.Uint64(), Name: g.text(), UID: g.int(), GPU: g.int(),
			UUID: g.text(), MIG: g.text(), Owner: g.owner(), Container: g.text(), Readings: g.readings(metric.Process)})
	}
	for range rng.IntN(3) {
		p.Workloads = append(p.Workloads, collector.Workload{Owner: g.owner(), CostCenter: g.text(), Sensitivity: g.text(), Stage: g.text(),
			Critical: g.bool(), Readings: g.readings(metric.Workload), Caveats: []collector.Caveat{{Fact: g.text(), Reason: g.text()}},
			Labels: []collector.Label{{Name: g.text(), Value: g.text()}}, Quality: []collector.Figure{{Name: g.text(), Value: 0.5}}})
		p.Interfaces = append(p.Interfaces, collector.Interface{Device: g.text(), Port: g.int(), LinkLayer: g.text(), State: g.text(),
			PhysicalState: g.text(), Readings: g.readings(metric.Interface)})
		p.Attributions = append(p.Attributions, collector.Attribution{PID: g.int(), Start: rng.Uint64(), Owner: g.owner(), Container: g.text()})
		p.Allocations = append(p.Allocations, collector.Allocation{UUID: g.text(), MIG: g.text(), Owner: g.owner(), Container: g.text(),
			Resource: g.text(), Shares: g.int(), Source: g.text()})
	}
	for range rng.IntN(3) {
		p.Endpoints = append(p.Endpoints, collector.Endpoint{URL: g.text(), Engine: g.text(), Model: g.text(), Readings: g.readings(metric.Endpoint),
			Histograms: g.histograms()})
		p.Targets = append(p.Targets, collector.Target{URL: g.text(), Discovered: g.bool(), Readings: g.readings(metric.Target)})
	}
	for range rng.IntN(4) {
		p.Events = append(p.Events, collector.Event{Time: g.time(), Kind: collector.EventKind(g.text()), UUID: g.text(), Code: g.int(),
			Component: g.text(), From: g.text(), To: g.text(), Text: g.text(), PCI: g.text(), Source: g.text(), Fatal: g.bool(), Owner: g.owner()})
	}
	return p
}

type generator struct{ *rand.Rand }

func (g generator) bool() bool { return g.IntN(2) == 0 }
func (g generator) int() int   { return int(g.Uint64()) >> g.IntN(64) }

func (g generator) text() string {
	return []string{"", "GPU-1", "GPU-2", "\x00\xff", fmt.Sprint(g.Uint64())}[g.IntN(5)]
}

func (g generator) time() time.Time {
	return []time.Time{{}, noon, time.Unix(int64(g.Uint64()), g.Int64N(1e9)).UTC(), noon.Add(time.Duration(g.Int64()))}[g.IntN(4)]
}

func (g generator) owner() collector.Owner {
	return collector.Owner{Kind: g.text(), ID: g.text(), Team: g.text()}
}

func (g generator) owners() (out []collector.Owner) {
	for range g.IntN(3) {
		out = append(out, g.owner())
	}
	return out
}

func (g generator) gpu() collector.GPU {
	rows := metric.All()
	c := collector.GPU{Index: g.int(), UUID: g.text(), Model: g.text(), Present: g.bool(), Hung: g.bool(), MIG: g.bool(),
		Owners: g.owners(), Readings: g.readings(metric.GPU)}
	for range g.IntN(3) {
		c.Unsupported = append(c.Unsupported, rows[g.IntN(len(rows))])
		c.Xids = append(c.Xids, collector.XidCount{Code: g.int(), Count: g.Uint64(), Last: g.time()})
	}
	for range g.IntN(3) {
		c.Distributions = append(c.Distributions, collector.Distribution{Row: metric.Of(metric.Option)[g.IntN(4)], Sum: g.NormFloat64(), Zero: g.Uint64(), First: g.int(),
			Buckets: []uint64{g.Uint64(), 0, g.Uint64()}})
	}
	if g.bool() {
		c.Dropped = map[*metric.Def]uint64{rows[g.IntN(len(rows))]: g.Uint64()}
	}
	return c
}

func (g generator) histograms() (out []collector.Histogram) {
	for range g.IntN(3) {
		h := collector.Histogram{Row: metric.TimeToFirstToken, Sum: g.NormFloat64(), Counts: []uint64{g.Uint64()}}
		for range g.IntN(5) {
			h.Bounds, h.Counts = append(h.Bounds, g.Float64()), append(h.Counts, g.Uint64())
		}
		out = append(out, h)
	}
	return out
}

func (g generator) readings(e metric.Entity) collector.Readings {
	if g.IntN(5) == 0 {
		return collector.Readings{}
	}
	r := collector.NewReadings(e)
	for i := range r.Vector() {
		r.Vector()[i] = []float64{math.NaN(), 0, math.Copysign(0, -1), math.Inf(1), g.NormFloat64(), float64(g.IntN(1e6))}[g.IntN(6)]
	}
	for t := range metric.Tiers {
		r.Stamp(t, g.time())
	}
	return r
}
