package frame

import "gpuvigil/collector"

func (d *decoder) workload(w *collector.Workload, v vector) {
	d.owner(&w.Owner)
	w.CostCenter, w.Sensitivity, w.Stage = d.str(), d.str(), d.str()
	w.Critical = d.uvarint()&flagCritical != 0
	w.Containers = list(d, func(s *string) { *s = d.str() })
	w.Readings = d.readings(v)
	if !d.done() { // else it is a record of an earlier release
		w.Caveats = list(d, func(c *collector.Caveat) { c.Fact, c.Reason = d.str(), d.str() })
	}
	if !d.done() {
		w.Quality = list(d, func(f *collector.Figure) { f.Name, f.Value = d.str(), d.float() })
	}
	if !d.done() {
		w.Labels = list(d, func(l *collector.Label) { l.Name, l.Value = d.str(), d.str() })
	}
}

func (d *decoder) port(i *collector.Interface, v vector) {
	i.Device, i.Port = d.str(), d.int()
	i.LinkLayer, i.State, i.PhysicalState = d.str(), d.str(), d.str()
	i.Readings = d.readings(v)
}

func (d *decoder) page(p *collector.Page, _ vector) {
	for _, s := range [...]*string{&p.Source, &p.URL, &p.Exporter, &p.Names, &p.Utilization} {
		*s = d.str()
	}
	p.GPUs = d.uvarint()&flagGPUs != 0
}

func (d *decoder) attribution(a *collector.Attribution, _ vector) {
	a.PID, a.Start = d.int(), d.uvarint()
	d.owner(&a.Owner)
	a.Container = d.str()
	if !d.done() {
		a.Privileged = d.uvarint()&flagPrivileged != 0
	}
}

// allocations reads those of a device; a record of an earlier release has none.
func (d *decoder) allocations() []collector.Allocation {
	if d.done() {
		return nil
	}
	return list(d, func(a *collector.Allocation) { d.allocation(a, vector{}) })
}

func (d *decoder) allocation(a *collector.Allocation, _ vector) {
	a.UUID, a.MIG = d.str(), d.str()
	d.owner(&a.Owner)
	a.Container, a.Resource, a.Shares, a.Source = d.str(), d.str(), d.int(), d.str()
}

func (d *decoder) inventory(i *collector.Inventory, _ vector) {
	i.At = d.time()
	i.Runtimes = list(d, func(r *collector.Runtime) {
		d.owner(&r.Owner)
		r.Component, r.Version, r.Processes = d.str(), d.str(), d.int()
	})
	i.Images = list(d, func(m *collector.Image) {
		d.owner(&m.Owner)
		m.Container, m.Name, m.Digest = d.str(), d.str(), d.str()
	})
	i.Datasets = list(d, func(s *collector.Dataset) {
		d.owner(&s.Owner)
		s.Kind, s.Source, s.Mount = d.str(), d.str(), d.str()
	})
	i.APIs = list(d, func(a *collector.API) {
		d.owner(&a.Owner)
		a.Port, a.Scope, a.TLS = d.int(), d.str(), d.answer()
		a.Engine, a.Model, a.Approved = d.str(), d.str(), d.answer()
	})
	i.Unread = list(d, func(u *collector.Unread) { u.Reason, u.Processes = d.str(), d.int() })
	i.Absent = list(d, func(s *string) { *s = d.str() })
}

func (d *decoder) answer() *bool {
	var yes bool
	switch d.uvarint() {
	case answerYes:
		yes = true
	case answerNo:
	default:
		return nil
	}
	return &yes
}
