package server

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

// busy is the utilization from which the page calls a GPU busy.
const busy = 0.05

// oldReading is the age from which the page says when a silent GPU was last read.
const oldReading = 5 * time.Second

// gpuRow is one GPU of the table.
type gpuRow struct {
	Index             int
	UUID              string
	Model             string // empty if all GPUs have the same
	State             string
	Tone              tone
	StateMore         string // what the state means for the numbers beside it
	Verdict           string // what holds it
	VerdictWhy        string // and the evidence
	Owner             ownerCell
	Util, Mem, Power  meter
	Temp, MemTemp     string
	Clock, HeldDownBy string
	Instances         []instanceRow
}

// ownerCell names an owner; More is the team and how many others there are.
type ownerCell struct{ Name, More string }

// meter is a number, how full that is, and its last hour.
type meter struct {
	Text  string
	Full  string // in percent for the bar; empty: no bar
	Spark *spark
}

// instanceRow is one MIG instance under its GPU.
type instanceRow struct {
	Name, Profile string
	Owner         ownerCell
	Mem           meter
}

func (p *page) gpus(l *look, verdicts []detect.Verdict) {
	p.Model = commonModel(l.snap.GPUs)
	for i := range l.snap.GPUs {
		g := &l.snap.GPUs[i]
		row := gpuRow{Index: g.Index, UUID: oneLine(g.UUID), Owner: heldBy(g.Owners, g.Allocations, usersOf(g.UUID, l.snap.Processes)), Instances: instancesOf(l.snap, g.UUID)}
		row.State, row.Tone, row.StateMore = stateOf(g, l.now)
		if !g.Present && l.snap.GPUPage() != nil { // the exporter may have been told to leave it out
			row.State, row.Tone = "not listed", toneTicket
		}
		if p.Model == "" {
			row.Model = oneLine(g.Model)
		}
		if v := verdictOf(verdicts, g.UUID); v != nil && v.Name != detect.VerdictUnknown {
			row.Verdict, row.VerdictWhy = v.Name.Words(), oneLine(v.Evidence)
		}
		row.measure(g)
		if l.history != nil {
			row.draw(l.history(detect.Subject{Kind: "gpu", ID: g.UUID}), g, l.now)
		}
		p.Drawn = p.Drawn || row.Util.Spark != nil || row.Power.Spark != nil
		p.GPUs = append(p.GPUs, row)
		if row.Tone == tonePage && !p.told(g) {
			p.Notices = append(p.Notices, notice{tonePage, row.State, joined("; ", fmt.Sprintf("GPU %d does not answer", g.Index), row.StateMore) + "."})
		}
	}
}

// told reports whether a card is about the GPU already.
func (p *page) told(g *collector.GPU) bool {
	for _, c := range p.Cards {
		if c.subject.ID == g.UUID {
			return true
		}
	}
	return false
}

// verdictOf returns the GPU's verdict, or nil.
func verdictOf(verdicts []detect.Verdict, uuid string) *detect.Verdict {
	for i := range verdicts {
		if verdicts[i].GPU == uuid {
			return &verdicts[i]
		}
	}
	return nil
}

// commonModel is the model that all GPUs have, or nothing.
func commonModel(gpus []collector.GPU) string {
	for i := range gpus {
		if gpus[i].Model != gpus[0].Model {
			return ""
		}
	}
	if len(gpus) == 0 {
		return ""
	}
	return oneLine(gpus[0].Model)
}

func owned(by []collector.Owner) ownerCell {
	if len(by) == 0 {
		return ownerCell{}
	}
	others := ""
	if n := len(by) - 1; n > 0 {
		others = fmt.Sprintf("and %d more", n)
	}
	return ownerCell{ownerText(by[0]), joined(", ", teamText(by[0]), others)}
}

// heldBy names who uses a GPU and tells that apart from who was given it.
func heldBy(by []collector.Owner, given []collector.Allocation, users []collector.Owner) ownerCell {
	cell := owned(by)
	if len(given) == 0 && !slices.Contains(users, collector.Owner{}) {
		return cell
	}
	unused := 0
	for _, o := range by {
		if !slices.Contains(users, o) {
			unused++
		}
	}
	notes := cell.More
	switch {
	case unused > 0 && unused == len(by):
		notes = joined(", ", notes, "given, not used")
	case unused > 0:
		notes = joined(", ", notes, fmt.Sprintf("%d given, not used", unused))
	}
	if slices.Contains(users, collector.Owner{}) {
		notes = joined(", ", notes, "a process of nobody known")
	}
	cell.More = notes
	return cell
}

// stateOf says in a word how the GPU is.
func stateOf(g *collector.GPU, now time.Time) (word string, t tone, more string) {
	if at := g.SampledAt(metric.Fast); !at.IsZero() && now.Sub(at) > oldReading {
		more = "last reading " + ago(now.Sub(at))
	}
	util := g.Value(metric.Utilization)
	switch {
	case g.GivenAway():
		return "given away", toneInfo, "to the driver " + oneLine(g.Bound)
	case !g.Present:
		return "lost", tonePage, more
	case g.Hung:
		return "hung", tonePage, more
	case g.MIG:
		return "MIG", toneInfo, ""
	case math.IsNaN(util):
		return "no data", toneTicket, more
	case util >= busy:
		return "busy", toneOK, ""
	}
	return "idle", toneQuiet, ""
}

func (r *gpuRow) measure(g *collector.GPU) {
	util := g.Value(metric.Utilization)
	r.Util = newMeter(percent(util), util)
	used, capacity := g.Value(metric.MemoryUsed), g.Value(metric.MemoryCapacity)
	r.Mem = newMeter(ofWhole(gib(used), gib(capacity), 0, "GiB"), share(used, capacity))
	draw, limit := g.Value(metric.PowerDraw), g.Value(metric.PowerLimit)
	r.Power = newMeter(ofWhole(draw, limit, 0, "W"), share(draw, limit))
	r.Temp = quantity(g.Value(metric.Temperature), 0, "°C")
	if v := g.Value(metric.MemoryTemperature); finite(v) {
		r.MemTemp = "memory " + quantity(v, 0, "°C")
	}
	r.Clock = quantity(g.ValueAt(metric.Clock, metric.Clocks.Index("sm"))/1e9, 2, "GHz")
	r.HeldDownBy = heldDown(g)
}

func newMeter(text string, full float64) meter {
	m := meter{Text: text}
	if finite(full) {
		m.Full = strconv.FormatFloat(100*min(max(full, 0), 1), 'f', 1, 64)
	}
	return m
}

// heldDown names what holds the clocks down, the gravest first. An idle GPU and
// clocks that somebody asked for are no such reason.
func heldDown(g *collector.GPU) string {
	for _, r := range [][2]string{
		{"hw_thermal", "heat (hardware)"},
		{"hw_power_brake", "power brake"},
		{"hw_slowdown", "hardware slowdown"},
		{"sw_thermal", "heat"},
		{"sw_power_cap", "power cap"},
		{"sync_boost", "sync boost"},
	} {
		if g.ValueAt(metric.ClockEvent, metric.ClockReason.Index(r[0])) == 1 {
			return r[1]
		}
	}
	return ""
}

// draw adds the last hour of utilization and power.
func (r *gpuRow) draw(histories []detect.History, g *collector.GPU, now time.Time) {
	for _, h := range histories {
		switch h.Reading {
		case metric.Utilization:
			r.Util.Spark = newSpark(h.Points, now, 1)
		case metric.PowerDraw:
			top := g.Value(metric.PowerLimit)
			if !finite(top) {
				top = scale(h)
			}
			r.Power.Spark = newSpark(h.Points, now, top)
		}
	}
}

func instancesOf(s *collector.Snapshot, uuid string) []instanceRow {
	var rows []instanceRow
	for i := range s.Instances {
		m := &s.Instances[i]
		if m.UUID != uuid {
			continue
		}
		used, capacity := m.Value(metric.MIGMemoryUsed), m.Value(metric.MIGMemoryCapacity)
		rows = append(rows, instanceRow{
			Name: fmt.Sprintf("%d/%d", m.GI, m.CI), Profile: oneLine(m.Profile), Owner: owned(m.Owners),
			Mem: newMeter(ofWhole(gib(used), gib(capacity), 0, "GiB"), share(used, capacity)),
		})
	}
	return rows
}
