package detect

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// scripted is a source that a test writes.
type scripted struct {
	name   string
	sample func(now time.Time) *collector.Part
}

func (s scripted) Name() string { return s.name }

func (s scripted) Sample(context.Context) (*collector.Part, error) { return s.sample(time.Now()), nil }

// TestLostGPUOfAllSourcesIsOneIncident takes a GPU that falls off the bus through
// sampler and engine: the driver's event, its silence, the kernel's lines and the
// recovery of each GPU are one incident, and the GPU is shown as lost.
func TestLostGPUOfAllSourcesIsOneIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		falls := func(now time.Time, second int) bool {
			return now.Sub(start) >= time.Duration(second)*time.Second && now.Sub(start) < time.Duration(second+1)*time.Second
		}
		driver := scripted{"nvml", func(now time.Time) *collector.Part {
			s := node(now, 2)
			p := &collector.Part{Time: now, GPUs: s.GPUs}
			p.GPUs[0].PCIBusID, p.GPUs[1].PCIBusID = "00000000:3B:00.0", "00000000:CA:00.0"
			if now.Sub(start) >= 10*time.Second {
				p.GPUs[0].Present, p.GPUs[0].Readings = false, collector.NewReadings(metric.GPU)
				p.GPUs[0].Xids = []collector.XidCount{{Code: 79, Count: 1, Last: start.Add(10 * time.Second)}}
			}
			if falls(now, 10) {
				p.Events = []collector.Event{{Time: now, Kind: collector.XidEvent, UUID: "GPU-0", Code: 79}}
			}
			return p
		}}
		log := scripted{"kernellog", func(now time.Time) *collector.Part {
			p := &collector.Part{Time: now, Log: &collector.LogPosition{}}
			line := func(pci string, code int, text string) {
				p.Events = append(p.Events, collector.Event{Time: now, Kind: collector.XidEvent, PCI: pci, Code: code, Text: text, Source: "kernel"})
			}
			if falls(now, 11) {
				line("0000:3b:00.0", 79, "")
				line("0000:3b:00.0", 45, "")
				line("0000:3b:00.0", 154, "Node Reboot Required")
				line("0000:ca:00.0", 154, "Node Reboot Required")
			}
			return p
		}}
		tiers := [metric.Tiers]time.Duration{time.Second, 15 * time.Second, 15 * time.Second, time.Minute}
		scheduled := func(s collector.Source) collector.Scheduled {
			return collector.Scheduled{Source: s, Interval: time.Second, Deadline: time.Second, Expected: true}
		}
		sampler := collector.NewSampler(collector.SamplerConfig{Node: "n1", Tiers: tiers, Log: slog.New(slog.DiscardHandler)},
			[]collector.Scheduled{scheduled(driver), scheduled(log)})
		e := NewEngine(Config{Node: "n1"}, Detectors(DetectorConfig{}))
		var told []Incident
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := sampler.Run(ctx, func(s *collector.Snapshot) { told = append(told, e.Observe(s)...) }); err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0].Cause != "xid_79" || told[0].Severity != rules.Page || len(told[0].Members) != 1 {
			t.Fatalf("told %+v, want one page about the lost GPU", told)
		}
		if why := told[0].Members[0].Evidence.Why; why != "reported by the driver in the kernel log and through NVML" {
			t.Errorf("it says %q, both told", why)
		}
		g := sampler.Latest().GPUs[0]
		if g.Value(metric.GPUPresent) != 0 || len(g.Xids) != 3 || g.Xids[1].Code != 79 || g.Xids[1].Count != 1 {
			t.Errorf("the lost GPU is shown present %v with errors %+v, want 0 and one each of 45, 79 and 154", g.Value(metric.GPUPresent), g.Xids)
		}
	})
}
