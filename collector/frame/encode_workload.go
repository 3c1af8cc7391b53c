package frame

import (
	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func (e *encoder) workload(w *collector.Workload) {
	e.owner(w.Owner)
	e.str(w.CostCenter)
	e.str(w.Sensitivity)
	e.str(w.Stage)
	e.uvarint(bit(w.Critical, flagCritical))
	e.list(len(w.Containers))
	for _, c := range w.Containers {
		e.str(c)
	}
	e.readings(w.Readings, metric.Workload)
	e.list(len(w.Caveats))
	for _, c := range w.Caveats {
		e.str(c.Fact)
		e.str(c.Reason)
	}
	e.list(len(w.Quality))
	for _, f := range w.Quality {
		e.str(f.Name)
		e.float(f.Value)
	}
	e.list(len(w.Labels))
	for _, l := range w.Labels {
		e.str(l.Name)
		e.str(l.Value)
	}
}

func (e *encoder) port(i *collector.Interface) {
	e.str(i.Device)
	e.varint(int64(i.Port))
	e.str(i.LinkLayer)
	e.str(i.State)
	e.str(i.PhysicalState)
	e.readings(i.Readings, metric.Interface)
}

func (e *encoder) page(p *collector.Page) {
	for _, s := range [...]string{p.Source, p.URL, p.Exporter, p.Names, p.Utilization} {
		e.str(s)
	}
	e.uvarint(bit(p.GPUs, flagGPUs))
}

func (e *encoder) attribution(a *collector.Attribution) {
	e.varint(int64(a.PID))
	e.uvarint(a.Start)
	e.owner(a.Owner)
	e.str(a.Container)
	e.uvarint(bit(a.Privileged, flagPrivileged))
}

func (e *encoder) allocations(list []collector.Allocation) {
	e.list(len(list))
	for i := range list {
		e.allocation(&list[i])
	}
}

func (e *encoder) allocation(a *collector.Allocation) {
	e.str(a.UUID)
	e.str(a.MIG)
	e.owner(a.Owner)
	e.str(a.Container)
	e.str(a.Resource)
	e.varint(int64(a.Shares))
	e.str(a.Source)
}

func (e *encoder) inventory(i *collector.Inventory) {
	e.time(i.At)
	e.list(len(i.Runtimes))
	for _, r := range i.Runtimes {
		e.owner(r.Owner)
		e.str(r.Component)
		e.str(r.Version)
		e.varint(int64(r.Processes))
	}
	e.list(len(i.Images))
	for _, m := range i.Images {
		e.owner(m.Owner)
		e.str(m.Container)
		e.str(m.Name)
		e.str(m.Digest)
	}
	e.list(len(i.Datasets))
	for _, s := range i.Datasets {
		e.owner(s.Owner)
		e.str(s.Kind)
		e.str(s.Source)
		e.str(s.Mount)
	}
	e.list(len(i.APIs))
	for _, a := range i.APIs {
		e.owner(a.Owner)
		e.varint(int64(a.Port))
		e.str(a.Scope)
		e.answer(a.TLS)
		e.str(a.Engine)
		e.str(a.Model)
		e.answer(a.Approved)
	}
	e.list(len(i.Unread))
	for _, u := range i.Unread {
		e.str(u.Reason)
		e.varint(int64(u.Processes))
	}
	e.list(len(i.Absent))
	for _, a := range i.Absent {
		e.str(a)
	}
}

// answer writes yes, no or unknown.
func (e *encoder) answer(b *bool) {
	switch {
	case b == nil:
		e.uvarint(answerUnknown)
	case *b:
		e.uvarint(answerYes)
	default:
		e.uvarint(answerNo)
	}
}
