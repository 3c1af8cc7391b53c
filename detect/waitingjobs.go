package detect

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// WaitingConfig is what the detector of waiting jobs can be told. Zero fields take the
// defaults.
type WaitingConfig struct {
	SLO     time.Duration            // above which nine of ten jobs should not wait; 0: nothing is declared
	Queues  map[string]time.Duration // the same by a queue's name or scheduler/name; 0: nothing is declared for it
	FreeFor time.Duration            // so long a job waits beside free GPUs before it is a finding; 15 min
}

const (
	causeFreeGPUs   = "free_gpus"
	maxWaitingKinds = 4096
	waitingKept     = time.Hour       // of a kind that has not been seen since
	answerGap       = 5 * time.Minute // an answer that is older says nothing of now
)

// WaitingJobs watches the queues of a cluster's schedulers. That jobs wait is by design:
// it tells of those that wait although GPUs that are right for them are free, and of
// queues that wait longer than was declared.
type WaitingJobs struct {
	cfg   WaitingConfig
	kinds map[waitingKey]*waitingKind
	over  map[queueKey]*queueWait
	now   time.Time
	idle  heldIdle // as far as nodes tell
}

type queueKey struct{ scheduler, name string }

// waitingKey is what jobs ask for.
type waitingKey struct {
	queueKey
	gpus  int
	model string
}

// waitingKind is since when the first of those that ask for the same waits beside free
// GPUs.
type waitingKind struct {
	first time.Time // since when that job waits: another one first in line is another fact
	since time.Time
	seen  time.Time
}

type queueWait struct {
	subject Subject
	slo     time.Duration
	above   time.Time // since when it waits longer; zero: it does not
	seen    time.Time
	told    [2]Evidence
	toldAt  [2]time.Time
}

// NewWaitingJobs returns the detector of rule waiting_jobs.
func NewWaitingJobs(cfg WaitingConfig) *WaitingJobs {
	if cfg.FreeFor <= 0 {
		cfg.FreeFor = 15 * time.Minute
	}
	return &WaitingJobs{cfg: cfg, kinds: map[waitingKey]*waitingKind{}, over: map[queueKey]*queueWait{}}
}

// Rule returns waiting_jobs.
func (d *WaitingJobs) Rule() *rules.Rule { return rules.Get(rules.IDWaitingJobs) }

// Observe judges every queue of which the scheduler has spoken lately.
func (d *WaitingJobs) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	for i := range s.Queues {
		q := &s.Queues[i]
		if s.Time.Sub(q.At) > answerGap {
			continue
		}
		w := d.queue(q)
		if w == nil {
			continue
		}
		d.againstObjective(q, w, report)
		d.besideFree(q, w, report)
	}
	if len(d.kinds) > 0 || len(d.over) > 0 {
		d.forget()
	}
}

func (d *WaitingJobs) queue(q *collector.Queue) *queueWait {
	key := queueKey{q.Scheduler, q.Name}
	w := d.over[key]
	if w == nil {
		if len(d.over) >= maxWaitingKinds {
			return nil
		}
		id := q.Scheduler + "/" + q.Name
		w = &queueWait{subject: Subject{"queue", id}, slo: d.cfg.SLO}
		if slo, given := d.cfg.Queues[id]; given {
			w.slo = slo
		} else if slo, given := d.cfg.Queues[q.Name]; given {
			w.slo = slo
		}
		d.over[key] = w
	}
	w.seen = d.now
	return w
}

func (d *WaitingJobs) againstObjective(q *collector.Queue, w *queueWait, report func(Observation)) {
	o := Observation{Subject: w.subject, Cause: causeAboveSLO, Severity: rules.Ticket}
	switch {
	case w.slo <= 0 || q.P90 <= w.slo:
		w.above = time.Time{}
	case w.above.IsZero():
		w.above = d.now
	}
	if !w.above.IsZero() {
		o.Score, o.At = min(q.P90.Seconds()/w.slo.Seconds(), 1000), w.above
		if w.fresh(0, d.now) {
			w.told[0] = sayLongWait(q, w.slo, &d.idle)
		}
		o.Evidence = w.told[0]
	}
	report(o)
}

// besideFree looks for the kind of jobs that has waited longest beside GPUs that are free
// for it. As long as each of its jobs starts in its turn, the free GPUs are others each
// time and nothing is wrong.
func (d *WaitingJobs) besideFree(q *collector.Queue, w *queueWait, report func(Observation)) {
	o := Observation{Subject: w.subject, Cause: causeFreeGPUs, Severity: rules.Ticket}
	var worst *collector.Waiting
	for i := range q.Waiting {
		of := &q.Waiting[i]
		key := waitingKey{queueKey{q.Scheduler, q.Name}, of.GPUs, of.Model}
		k := d.kinds[key]
		stuck := of.Jobs > 0 && of.GPUs > 0 && !of.Since.IsZero() && of.Matching() >= of.GPUs
		if !stuck {
			if k != nil {
				delete(d.kinds, key)
			}
			continue
		}
		if k == nil {
			if len(d.kinds) >= maxWaitingKinds {
				continue
			}
			k = &waitingKind{}
			d.kinds[key] = k
		}
		if !k.first.Equal(of.Since) {
			k.first, k.since = of.Since, d.now
		}
		k.seen = d.now
		lasts := d.now.Sub(k.since)
		if score := lasts.Seconds() / d.cfg.FreeFor.Seconds(); score > o.Score || worst == nil {
			o.Score, o.At, worst = min(score, 1000), k.since, of
		}
	}
	if o.Score >= 1 {
		if w.fresh(1, d.now) {
			w.told[1] = sayFreeGPUs(q, worst, d.now)
		}
		o.Evidence = w.told[1]
	}
	report(o)
}

// fresh reports whether the words of a cause have to be made anew.
func (w *queueWait) fresh(cause int, now time.Time) bool {
	if age := now.Sub(w.toldAt[cause]); w.toldAt[cause].IsZero() || age >= evidenceEvery || age < 0 {
		w.toldAt[cause] = now
		return true
	}
	return false
}

// forget drops what has not been seen for long.
func (d *WaitingJobs) forget() {
	for key, k := range d.kinds {
		if d.now.Sub(k.seen) > waitingKept {
			delete(d.kinds, key)
		}
	}
	for key, w := range d.over {
		if d.now.Sub(w.seen) > waitingKept {
			delete(d.over, key)
		}
	}
}

// Shift moves since when jobs wait beside free GPUs. When a job could have run is by the
// scheduler's clock.
func (d *WaitingJobs) Shift(by time.Duration) {
	shift(by, &d.now)
	for _, k := range d.kinds {
		shift(by, &k.since, &k.seen)
	}
	for _, w := range d.over {
		shift(by, &w.above, &w.seen)
		shiftAll(by, w.toldAt[:])
	}
}
