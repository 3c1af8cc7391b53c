package fleet

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
)

// Past is a role that is shown what was, so that it knows what is usual before it looks
// at what is. Until it ends, Observe does nothing.
type Past struct {
	f     *Fleet
	until time.Time                   // what was restored knows the past up to then
	open  map[string]bool             // incidents that people were told of before
	ended map[string]*detect.Incident // of those, that are over
	order []string                    // of ended
}

// Past begins with the past. There is one at a time, before the first Observe.
func (f *Fleet) Past() *Past {
	w := &f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &Past{f: f, open: map[string]bool{}, ended: map[string]*detect.Incident{}}
	v := w.gatherer.View()
	p.until = v.Time
	for i := range v.Incidents {
		if v.Incidents[i].State == detect.Firing {
			p.open[v.Incidents[i].ID] = true
		}
	}
	w.past = p
	return p
}

// Observe judges the snapshots of a time in the past, which does not go back, and tells
// nobody. What was restored learns nothing of the time that it has seen; nodes of which
// nothing was do.
func (p *Past) Observe(now time.Time, nodes []*collector.Snapshot) {
	w := &p.f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gather(now, nodes)
	w.judge(now)
	if !now.After(p.until) {
		return
	}
	for _, in := range w.conclude(now, &collector.Snapshot{Time: now}) {
		if !p.open[in.ID] {
			continue
		}
		if p.ended[in.ID] == nil {
			p.order = append(p.order, in.ID)
		}
		p.ended[in.ID] = &in
	}
}

// End ends the past. Of what began and ended in it nobody is told. What still is so is
// told once, with its beginning, and so is the end of what people had been told of. It
// returns what is told.
func (p *Past) End() []detect.Incident {
	w := &p.f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past = nil
	var told []detect.Incident
	for _, id := range p.order {
		if in := p.ended[id]; in.State == detect.Resolved {
			told = append(told, *in)
		}
	}
	v := w.gatherer.View()
	for i := range v.Incidents {
		if in := &v.Incidents[i]; in.State == detect.Firing && (!p.open[in.ID] || p.ended[in.ID] != nil) {
			told = append(told, *in)
		}
	}
	w.publish(v.Time)
	p.f.tell(told)
	return told
}

// tell passes on what people are to hear of.
func (f *Fleet) tell(told []detect.Incident) {
	if w := &f.watch; len(told) > 0 && w.cfg.Tell != nil {
		w.cfg.Tell(told)
	}
	for i := range told {
		f.say(&told[i])
	}
}
