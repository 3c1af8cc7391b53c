package fleet

import "gpuvigil/collector"

// complete returns the snapshot with what the role knows beyond it: what its GPUs cost,
// where its own agent does not say it, and of which jobs its pods are.
func (w *watch) complete(s *collector.Snapshot) *collector.Snapshot {
	money, members := w.priced(s), w.members(s)
	if money == nil && members == nil {
		return s
	}
	out := *s
	if money != nil {
		out.Money = money
	}
	if members != nil {
		out.Members = members
	}
	return &out
}

func (w *watch) priced(s *collector.Snapshot) *collector.Money {
	if w.cfg.Price == nil || s.Money != nil {
		return nil
	}
	m := &collector.Money{At: s.Time}
	for i := range s.GPUs {
		perHour, currency := w.cfg.Price(s.Node.Name, s.GPUs[i].Model)
		if !(perHour > 0) || m.Currency != "" && currency != m.Currency {
			continue
		}
		m.Currency = currency
		m.Prices = append(m.Prices, collector.GPUPrice{UUID: s.GPUs[i].UUID, PerHour: perHour})
	}
	if len(m.Prices) == 0 {
		return nil
	}
	return m
}

// members are the pods on the node's GPUs that a scheduler says to be parts of jobs; what
// it says goes before what series do.
func (w *watch) members(s *collector.Snapshot) []collector.Member {
	if len(w.ranks) == 0 {
		return nil
	}
	var out []collector.Member
	known := map[collector.Owner]bool{}
	for i := range s.GPUs {
		for _, o := range s.GPUs[i].Owners {
			if job, ok := w.ranks[o.ID]; ok && o.Kind == "pod" && !known[o] {
				known[o] = true
				out = append(out, collector.Member{Owner: o, Job: job})
			}
		}
	}
	return out
}
