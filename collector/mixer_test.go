package collector

import (
	"testing"
	"time"

	"gpuvigil/internal/metric"
)

func TestMixerHoldsPartsAndDeliversEventsOnce(t *testing.T) {
	tiers := [metric.Tiers]time.Duration{time.Minute, time.Minute, time.Minute, time.Minute}
	m := NewMixer(SamplerConfig{Node: "n", Tiers: tiers})
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	gpu := GPU{UUID: "GPU-a", Present: true, Readings: NewReadings(metric.GPU)}
	gpu.Set(metric.PowerDraw, 300)
	gpu.Stamp(metric.Fast, start)
	part := &Part{Time: start, GPUs: []GPU{gpu}, Events: []Event{{Time: start, Kind: XidEvent, UUID: "GPU-a", Code: 79}}}
	at := func(after time.Duration, err string) *Snapshot {
		return m.Snapshot(start.Add(after), []Latest{{Source: "host"}, {Source: "gpu", Part: part, Err: err}})
	}

	first := at(0, "")
	if len(first.Events) != 1 || len(first.Sources) != 1 || first.Sources[0].Name != "gpu" {
		t.Errorf("events %v, sources %v: the part's event, and only the source that knows something", first.Events, first.Sources)
	}
	held := at(2*time.Minute, "broken")
	if len(held.Events) != 0 || held.GPUs[0].Value(metric.PowerDraw) != 300 || held.Sources[0].Err != "broken" {
		t.Errorf("two minutes on: events %v, power %v, sources %v: the reading is held, the event is not told again", held.Events, held.GPUs[0].Value(metric.PowerDraw), held.Sources)
	}
	if old := at(4*time.Minute, ""); old.GPUs[0].Has(metric.PowerDraw) {
		t.Errorf("after more than three intervals the power is still %v", old.GPUs[0].Value(metric.PowerDraw))
	}
}
