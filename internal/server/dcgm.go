package server

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxHolders bounds for how many holders the series of one device are repeated: each
// costs all of the device's some sixty names, twice where both generations have one.
const maxHolders = 8

// dcgmPage collects the series under the names that dcgm-exporter gives them, so
// that dashboards and alerts written for it go on working. It is made anew for each
// scrape: it is switched on for the time of a migration.
type dcgmPage struct {
	families map[string]*dto.MetricFamily
	node     string
	driver   string
	holders  [][]string // labels of those who were given the device that is being written
}

// dcgmFamilies returns what the snapshot holds under DCGM's names, sorted by name.
func dcgmFamilies(s *collector.Snapshot) []*dto.MetricFamily {
	p := &dcgmPage{families: map[string]*dto.MetricFamily{}, node: s.Node.Name}
	for _, v := range s.Node.Versions {
		if v.Component == "driver" {
			p.driver = v.Value
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		p.holders = dcgmHolders(g.Allocations, g.Owners)
		p.readings(metric.GPU, g.Readings, g)
		p.xid(g)
	}
	for i := range s.Instances {
		m := &s.Instances[i]
		if g := s.GPUByUUID(m.UUID); g != nil {
			p.holders = dcgmHolders(m.Allocations, m.Owners)
			p.readings(metric.Instance, m.Readings, g, "GPU_I_PROFILE", m.Profile, "GPU_I_ID", strconv.Itoa(m.GI))
		}
	}
	for i := range s.Links {
		l := &s.Links[i]
		if g := s.GPUByUUID(l.UUID); g != nil && l.Number == 0 { // DCGM publishes the first link only
			p.holders = dcgmHolders(g.Allocations, g.Owners)
			p.readings(metric.Link, l.Readings, g)
		}
	}
	all := make([]*dto.MetricFamily, 0, len(p.families))
	for _, f := range p.families {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

func (p *dcgmPage) readings(of metric.Entity, r collector.Readings, g *collector.GPU, further ...string) {
	for _, d := range metric.Of(of) {
		for _, n := range d.DCGM {
			v := r.ValueAt(d, n.At)
			if n.Sum {
				v = 0
				for i := range d.Width() {
					v += r.ValueAt(d, i)
				}
			}
			p.add(d, n, n.Value(v), g, further...)
		}
	}
}

// xid is the code that fell last, zero if none did: a gauge that never goes back by
// itself, which is what dcgm-exporter has.
func (p *dcgmPage) xid(g *collector.GPU) {
	var last collector.XidCount
	for _, x := range g.Xids {
		if x.Last.After(last.Last) {
			last = x
		}
	}
	for _, n := range metric.XidErrors.DCGM {
		p.add(metric.XidErrors, n, float64(last.Code), g)
	}
}

func (p *dcgmPage) add(d *metric.Def, n metric.DCGM, v float64, g *collector.GPU, further ...string) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	if n.Integer {
		v = math.Trunc(v)
	}
	f := p.families[n.Name]
	if f == nil {
		help := fmt.Sprintf("%s under the name that dcgm-exporter gives it.", d)
		typ := dto.MetricType_GAUGE
		if n.Kind == metric.Counter {
			typ = dto.MetricType_COUNTER
		}
		f = &dto.MetricFamily{Name: &n.Name, Help: &help, Type: &typ}
		p.families[n.Name] = f
	}
	for _, holder := range p.holders {
		m := &dto.Metric{Label: p.labels(n, g, slices.Concat(further, holder))}
		if n.Kind == metric.Counter {
			m.Counter = &dto.Counter{Value: &v}
		} else {
			m.Gauge = &dto.Gauge{Value: &v}
		}
		f.Metric = append(f.Metric, m)
	}
}

// dcgmHolders returns the labels of those who were given a device or, if nobody is
// known to have been, use it. dcgm-exporter repeats a device's series for each of them,
// so sums over a shared GPU count it several times; its users' rules expect that. With
// no holder there is one series without such labels; holders beyond the limit have none.
func dcgmHolders(given []collector.Allocation, owners []collector.Owner) [][]string {
	if len(given) == 0 {
		for _, o := range owners {
			given = append(given, collector.Allocation{Owner: o})
		}
	}
	var out [][]string
	for _, a := range given {
		var labels []string
		switch namespace, pod, ok := strings.Cut(a.Owner.ID, "/"); {
		case a.Owner.Kind == "pod" && ok:
			labels = []string{"pod", pod, "namespace", namespace, "container", a.Container}
		case a.Owner.Kind == "job":
			labels = []string{"hpc_job", strings.TrimPrefix(a.Owner.ID, "slurm/")}
		default:
			continue
		}
		same := func(other []string) bool { return slices.Equal(other, labels) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, labels)
		}
	}
	if extra := len(out) - maxHolders; extra > 0 {
		cappedHolders.Add(extra)
		out = out[:maxHolders]
	}
	if out == nil {
		out = [][]string{nil}
	}
	return out
}

// labels are those of dcgm-exporter. Releases from 4.9 spell two of them otherwise;
// a name that both use carries both spellings. What is not known has no label.
func (p *dcgmPage) labels(n metric.DCGM, g *collector.GPU, further []string) []*dto.LabelPair {
	index := strconv.Itoa(g.Index)
	named := []string{"gpu", index, "UUID", g.UUID, "pci_bus_id", g.PCIBusID, "device", "nvidia" + index, "modelName", g.Model}
	if n.Generation&metric.Until48 != 0 {
		named = append(named, "Hostname", p.node, "DCGM_FI_DRIVER_VERSION", p.driver)
	}
	if n.Generation&metric.Since49 != 0 {
		named = append(named, "hostname", p.node, "DCGM_FI_SYSTEM_DRIVER_VERSION", p.driver)
	}
	named = append(named, further...)
	var names, values []string
	for i := 0; i < len(named); i += 2 {
		if named[i+1] != "" {
			names, values = append(names, named[i]), append(values, named[i+1])
		}
	}
	return pairs(names, values...)
}
