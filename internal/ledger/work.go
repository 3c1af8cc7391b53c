package ledger

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// workHours holds what was done in each hour.
type workHours map[span]map[collector.Owner]cost.Work

func (h workHours) add(at span, o collector.Owner, w cost.Work) {
	if h[at] == nil {
		h[at] = map[collector.Owner]cost.Work{}
	}
	h[at][o] = h[at][o].Plus(w)
}

// merge adds what other holds.
func (h workHours) merge(other workHours) {
	for at, in := range other {
		for o, w := range in {
			h.add(at, o, w)
		}
	}
}

// worked books what an owner did.
func (l *Ledger) worked(o collector.Owner, r *run, w cost.Work) {
	if w == (cost.Work{}) {
		return
	}
	r.Work, r.At = r.Work.Plus(w), l.now
	r.hour.work(l.now, w)
	l.freshWork.add(l.span(l.now), o, w)
}

// runOf returns the owner's run. It is nil of nobody, of those who are too many, and, if
// there is none yet, unless it is to be begun.
func (l *Ledger) runOf(o collector.Owner, begin bool) *run {
	r := l.runs[o]
	if r == nil && begin && o.Kind != "" && o != Other && len(l.runs) < maxRuns {
		r = &run{At: l.now}
		l.runs[o] = r
	}
	return r
}

// observeWork books what owners did since the snapshot before. It comes after their GPU
// time.
func (l *Ledger) observeWork(s *collector.Snapshot) {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		o := cleaned(w.Owner)
		if r := l.runOf(o, tells(w)); r != nil {
			done := r.hear(w, s.Time)
			for unit, d := range []*metric.Def{cost.Steps: metric.WorkloadSteps, cost.Samples: metric.WorkloadSamples, cost.Tokens: metric.WorkloadTokens} {
				done.Units[unit] = r.grown(d.Name, w.Value(d))
			}
			l.worked(o, r, done)
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		o, known := s.OwnerOf(e)
		if !known {
			continue
		}
		o = cleaned(o)
		if r := l.runOf(o, true); r != nil {
			var done cost.Work
			at := e.URL + "\x00" + e.Engine + "\x00" + e.Model
			done.Units[cost.Tokens] = r.grown(at+"\x00tokens", e.Value(metric.GeneratedTokens))
			done.Units[cost.Requests] = r.grown(at+"\x00requests", e.ValueAt(metric.Requests, 0))
			l.worked(o, r, done)
		}
	}
	l.watchProcesses(s)
}

// tells reports whether the workload says anything of its progress.
func tells(w *collector.Workload) bool {
	return w.Has(metric.WorkloadStep) || w.Has(metric.WorkloadProgress) || w.Has(metric.WorkloadCheckpoint)
}

// watchProcesses says to each run which processes it has, while it is known.
func (l *Ledger) watchProcesses(s *collector.Snapshot) {
	listed := false
	for i := range s.GPUs {
		listed = listed || s.GPUs[i].Has(metric.ProcessCount)
	}
	if !listed {
		return
	}
	alive := map[collector.Owner]map[process]bool{}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Owner == (collector.Owner{}) || p.Service() {
			continue
		}
		o := cleaned(p.Owner)
		if alive[o] == nil {
			alive[o] = map[process]bool{}
		}
		alive[o][process{p.PID, p.Start}] = true
	}
	for o, r := range l.runs {
		l.worked(o, r, r.watch(alive[o], s.Time))
	}
}

// grown is by how much a counter has grown since it was last seen, in whole units. What
// it stood at when it was first seen, or began anew, is of another time.
func (r *run) grown(name string, v float64) int64 {
	if !(v >= 0 && v < 1<<53) {
		return 0
	}
	if r.last == nil {
		r.last = map[string]float64{}
	}
	before, known := r.last[name]
	r.last[name] = v
	if !known || v < before {
		return 0
	}
	return int64(math.Floor(v)) - int64(math.Floor(before))
}

// hold tells the owner's run of GPU time that was booked to it.
func (l *Ledger) hold(at time.Time, k cost.Key, a cost.Amounts) {
	r := l.runs[k.Owner]
	if r == nil {
		return
	}
	r.At = l.now
	r.hour.cost(l.now, a)
	l.worked(k.Owner, r, r.hold(at, a))
}

// pruneRuns forgets the work of owners who have done nothing for as long as the
// retention.
func (l *Ledger) pruneRuns() {
	limit := l.now.Add(-l.cfg.Retention)
	for o, r := range l.runs {
		if r.At.Before(limit) {
			delete(l.runs, o)
		}
	}
}
