package main

import (
	"fmt"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/internal/metric"
)

// field is something that nvidia-smi and gpuvigil both tell of a GPU.
type field struct {
	query  string // nvidia-smi's name
	row    *metric.Def
	at     int     // position in the row's dimension
	unit   float64 // one of nvidia-smi's in the row's unit
	beyond float64 // how far nvidia-smi may be outside of what gpuvigil told before and after it, in nvidia-smi's unit
	moves  bool    // may change within a second: one round in five may disagree
}

// The tolerances are half of nvidia-smi's last digit, and for what moves what it may do between two samples a second
// apart.
var fields = []field{
	{query: "utilization.gpu", row: metric.Utilization, unit: 0.01, beyond: 10, moves: true},
	{query: "utilization.memory", row: metric.MemoryUtilization, unit: 0.01, beyond: 10, moves: true},
	{query: "memory.total", row: metric.MemoryCapacity, unit: 1 << 20, beyond: 1},
	{query: "memory.used", row: metric.MemoryUsed, unit: 1 << 20, beyond: 64, moves: true},
	{query: "power.draw", row: metric.PowerDraw, unit: 1, beyond: 25, moves: true},
	{query: "enforced.power.limit", row: metric.PowerLimit, unit: 1, beyond: 0.01},
	{query: "temperature.gpu", row: metric.Temperature, unit: 1, beyond: 2, moves: true},
	{query: "temperature.memory", row: metric.MemoryTemperature, unit: 1, beyond: 2, moves: true},
	{query: "clocks.sm", row: metric.Clock, at: 1, unit: 1e6, beyond: 60, moves: true},
	{query: "clocks.mem", row: metric.Clock, at: 2, unit: 1e6, beyond: 1, moves: true},
	{query: "fan.speed", row: metric.FanSpeed, unit: 0.01, beyond: 5, moves: true},
	{query: "pcie.link.gen.gpucurrent", row: metric.PCIeGeneration, unit: 1, beyond: 0, moves: true},
	{query: "pcie.link.width.current", row: metric.PCIeWidth, unit: 1, beyond: 0, moves: true},
	{query: "ecc.errors.uncorrected.volatile.total", row: metric.ECCErrors, at: 1, unit: 1, beyond: 0},
	{query: "clocks_event_reasons.active", row: metric.ClockEvent, unit: 1, beyond: 0, moves: true},
}

// queries are what nvidia-smi is asked for.
func queries() []string {
	all := []string{"index", "uuid", "name", "driver_version"}
	for _, f := range fields {
		all = append(all, f.query)
	}
	return all
}

// page is one scrape of gpuvigil.
type page map[string]*dto.MetricFamily

// tells returns what gpuvigil tells of a GPU, in nvidia-smi's unit; NaN if nothing.
func (f field) tells(p page, uuid string) float64 {
	if f.row != metric.ClockEvent {
		return p.series(f.row, f.at, uuid) / f.unit
	}
	bits, known := 0.0, false
	for i := range f.row.Width() {
		if v := p.series(f.row, i, uuid); !math.IsNaN(v) {
			bits, known = bits+v*float64(uint64(1)<<i), true
		}
	}
	if !known {
		return math.NaN()
	}
	return bits
}

func (p page) series(d *metric.Def, at int, uuid string) float64 {
	want := map[string]string{"uuid": uuid}
	if d.Dim != nil {
		want[d.Dim.Label] = d.Dim.Values[at]
	}
	for _, s := range p[d.Name].GetMetric() {
		have := 0
		for _, l := range s.GetLabel() {
			if v, ok := want[l.GetName()]; ok && v == l.GetValue() {
				have++
			}
		}
		switch {
		case have != len(want):
		case s.GetCounter() != nil:
			return s.GetCounter().GetValue()
		default:
			return s.GetGauge().GetValue()
		}
	}
	return math.NaN()
}

// tally is how often nvidia-smi and gpuvigil agreed on a field of a GPU.
type tally struct {
	uuid, query                   string
	rounds, agreed, neither, only int // only gpuvigil tells; whether that is right, no comparison can say
	example                       string
	moves                         bool
}

// ok reports whether they agreed often enough.
func (t *tally) ok() bool {
	wrong := t.rounds - t.agreed - t.neither - t.only
	return wrong == 0 || t.moves && 5*wrong <= t.rounds
}

// tallies are ordered by GPU and field.
type tallies []*tally

func (all *tallies) of(uuid string, f field) *tally {
	for _, t := range *all {
		if t.uuid == uuid && t.query == f.query {
			return t
		}
	}
	t := &tally{uuid: uuid, query: f.query, moves: f.moves}
	*all = append(*all, t)
	return t
}

// compare adds one round: what nvidia-smi told between two scrapes.
func (all *tallies) compare(smi []reading, before, after page) {
	for _, r := range smi {
		for _, f := range fields {
			value, asked := r.values[f.query]
			if !asked || r.uuid == "" {
				continue
			}
			t, a, b := all.of(r.uuid, f), f.tells(before, r.uuid), f.tells(after, r.uuid)
			t.rounds++
			ours := slices.DeleteFunc([]float64{a, b}, math.IsNaN)
			switch {
			case math.IsNaN(value) && len(ours) == 0:
				t.neither++
			case math.IsNaN(value):
				t.only++
			case len(ours) > 0 && value >= slices.Min(ours)-f.beyond && value <= slices.Max(ours)+f.beyond:
				t.agreed++
			default:
				t.example = fmt.Sprintf("nvidia-smi %g, gpuvigil %g before and %g after", value, a, b)
			}
		}
	}
}
