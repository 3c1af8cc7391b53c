package ledger

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

const (
	// gone is for how long an owner has no process on a GPU before its work has ended,
	// and within which what looks like two interruptions is one.
	gone = time.Minute

	// maxRuns is how many owners' work is kept apart. Real nodes stay far below it.
	maxRuns = 1024
)

// run is one owner's work: a job or a pod from first to last, also when it is begun
// again. Exported fields survive a restart.
//
// GPU time that it holds is open until a checkpoint confirms it, or progress where no
// checkpoint is told. An interruption makes what is open void, and what follows until it
// makes progress again.
type run struct {
	Work     cost.Work `json:"work"`
	At       time.Time `json:"at"`    // of the last change
	Tells    bool      `json:"tells"` // of its progress
	Open     int64     `json:"open"`  // GPU time, in nanoseconds
	OpenCost int64     `json:"open_cost"`
	Since    time.Time `json:"since,omitzero"` // that Open is of
	Step     float64   `json:"step"`
	Down     bool      `json:"down"`          // interrupted, and no progress since
	Fell     time.Time `json:"fell,omitzero"` // when it was interrupted last
	Finished bool      `json:"finished"`      // as it says itself

	written, base cost.Work // as an account has them
	from          time.Time
	last          map[string]float64
	alive         map[process]bool // processes at the last look that found any
	left          time.Time        // since when there is none; zero: there is, or it has ended
	hour          window
}

// process identifies a process: a pid is used again.
type process struct {
	pid   int
	start uint64
}

// check refuses what no run can have come to.
func (r *run) check() error {
	if r == nil || r.Work.Negative() || r.Open < 0 || r.OpenCost < 0 || math.IsNaN(r.Step) || math.IsInf(r.Step, 0) {
		return fmt.Errorf("the work of an owner is less than nothing: %+v", r)
	}
	return nil
}

// shift moves what is remembered with the clock.
func (r *run) shift(by time.Duration) {
	for _, at := range []*time.Time{&r.Since, &r.Fell, &r.left} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	r.hour.shift(by)
}

// hold takes up GPU time that the owner held from at on.
func (r *run) hold(at time.Time, a cost.Amounts) cost.Work {
	switch {
	case !r.Tells:
		return cost.Work{}
	case r.Down:
		return cost.Work{Lost: a.Time, LostCost: a.Effective}
	}
	if r.Open == 0 {
		r.Since = at
	}
	r.Open += a.Time
	r.OpenCost += a.Effective
	return cost.Work{}
}

// hear takes up what the owner tells of its progress, and returns what that decides.
func (r *run) hear(w *collector.Workload, now time.Time) cost.Work {
	step, progress, checkpoint := w.Value(metric.WorkloadStep), stamp(w, metric.WorkloadProgress), stamp(w, metric.WorkloadCheckpoint)
	if math.IsNaN(step) && progress.IsZero() && checkpoint.IsZero() {
		return cost.Work{}
	}
	if !r.Tells {
		r.Tells, r.Since = true, now
	}
	var out cost.Work
	if step < r.Step && !r.Down {
		out = r.end(now)
	}
	if !math.IsNaN(step) {
		r.Step = step
	}
	r.Finished = w.Value(metric.WorkloadFinished) == 1
	if r.Down && (progress.After(r.Fell) || checkpoint.After(r.Fell)) {
		r.Down = false
	}
	if checkpoint.IsZero() {
		checkpoint = progress
	}
	return out.Plus(r.confirm(checkpoint, now))
}

func stamp(w *collector.Workload, d *metric.Def) time.Time {
	v := w.Value(d)
	if math.IsNaN(v) {
		return time.Time{}
	}
	whole, part := math.Modf(v)
	return time.Unix(int64(whole), int64(part*1e9))
}

// confirm keeps what is open from before the time. Within what is open, use is taken to
// be even: which part of it is older goes by time.
func (r *run) confirm(at, now time.Time) cost.Work {
	if at.After(now) {
		at = now
	}
	if r.Open == 0 || !at.After(r.Since) {
		return cost.Work{}
	}
	ages := []uint64{uint64(at.Sub(r.Since)), uint64(now.Sub(at))}
	kept := cost.Split(r.Open, ages)[0]
	r.Open -= kept
	r.OpenCost -= cost.Split(r.OpenCost, ages)[0]
	r.Since = at
	return cost.Work{Kept: kept}
}

// interrupt makes void what is open.
func (r *run) interrupt(now time.Time) cost.Work {
	lost := cost.Work{Lost: r.Open, LostCost: r.OpenCost}
	if r.Fell.IsZero() || now.Sub(r.Fell) >= gone {
		lost.Interruptions = 1
	}
	r.Open, r.OpenCost, r.Down, r.Fell = 0, 0, true, now
	return lost
}

// watch looks at the owner's processes. All others than before are a new beginning; none
// for a minute is an end.
func (r *run) watch(now map[process]bool, at time.Time) cost.Work {
	if len(now) > 0 {
		same := len(r.alive) == 0
		for p := range now {
			same = same || r.alive[p]
		}
		r.alive, r.left = now, time.Time{}
		if same || !r.Fell.IsZero() && at.Sub(r.Fell) < gone {
			return cost.Work{}
		}
		return r.end(at)
	}
	switch {
	case len(r.alive) == 0:
	case r.left.IsZero():
		r.left = at
	case at.Sub(r.left) >= gone:
		r.alive, r.left = nil, time.Time{}
		return r.end(at)
	}
	return cost.Work{}
}

// end judges what is open when the owner's work has ended, or begins anew.
func (r *run) end(at time.Time) cost.Work {
	switch {
	case !r.Tells:
		return cost.Work{}
	case r.Finished:
		kept := cost.Work{Kept: r.Open}
		r.Open, r.OpenCost = 0, 0
		return kept
	}
	return r.interrupt(at)
}
