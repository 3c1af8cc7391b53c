package detect

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// Stalled watches for jobs that have worked for long and stopped: all ranks at once, and
// not to write a checkpoint.
type Stalled struct{ judge *Judge }

// NewStalled returns the detector of rule job_stalled, which reads from the judge.
func NewStalled(j *Judge) *Stalled { return &Stalled{j} }

// Judge returns what the detector reads from.
func (d *Stalled) Judge() *Judge { return d.judge }

// Rule returns job_stalled.
func (d *Stalled) Rule() *rules.Rule { return rules.Get(rules.IDJobStalled) }

// Observe judges every owner of GPUs. Work that nobody says is a training may come when
// it comes: that it stopped wakes nobody.
func (d *Stalled) Observe(_ *collector.Snapshot, report func(Observation)) {
	if !d.judge.fresh {
		return
	}
	for _, k := range d.judge.present {
		o := k.observation(&k.stalled, "no_progress")
		if !k.batch {
			o.Severity = rules.Ticket
		}
		report(o)
	}
}

// watchQuiet decides whether the job has stalled.
func (k *jobState) watchQuiet(j *Judge, s *collector.Snapshot) {
	y, now := &k.stalled, s.Time
	y.holds, y.score = false, 0
	quiet, worked, known := k.quiet(j, s)
	if !known {
		return // as after a restart
	}
	if !quiet {
		k.Quiet.end(now)
		y.told.Seen = ""
		return
	}
	k.Quiet.begin(now)
	if k.served || k.server || k.notebook || k.listed && k.open == 0 {
		return // it has nothing to do, or has ended
	}
	since := later(k.Quiet.Since, k.progress(s))
	patience := stallFor
	writing, visible := k.writes(j, since, now)
	if writing {
		since = later(since, j.work[k.Owner].wrote)
	}
	if !visible {
		patience = stallBlind
	}
	if w := s.WorkloadOf(k.Owner); w != nil && w.Value(metric.WorkloadFinished) == 1 {
		return
	}
	lasted := now.Sub(since)
	y.score = lasted.Seconds() / patience.Seconds()
	y.holds = lasted >= patience && k.Quiet.unusual(now.Sub(k.Quiet.Since))
	if y.holds {
		y.since = k.Quiet.Since
		if now.Sub(y.toldAt) >= wordsEvery || y.told.Seen == "" {
			y.told, y.toldAt = k.sayStalled(j, s, worked, visible), now
		}
	}
}

// quiet reports whether all ranks that have worked do next to nothing now, how many those
// are, and whether that is known of them.
func (k *jobState) quiet(j *Judge, s *collector.Snapshot) (quiet bool, worked int, known bool) {
	for _, i := range k.members {
		g := &s.GPUs[i]
		st := j.gpus[g.UUID]
		if st.Usual.Weight() < stallWorked.Seconds() {
			continue // it was never at work for long
		}
		worked++
		recent := st.recently(s.Time)
		if math.IsNaN(recent) {
			return false, worked, false
		}
		if recent >= stallShare*st.Usual.Typical(0.5) {
			return false, worked, true
		}
	}
	return worked > 0, worked, true
}

// progress is when the job last said that it got on; zero if it says nothing.
func (k *jobState) progress(s *collector.Snapshot) time.Time {
	w := s.WorkloadOf(k.Owner)
	if w == nil {
		return time.Time{}
	}
	last := largerKnown(w.Value(metric.WorkloadProgress), w.Value(metric.WorkloadCheckpoint))
	if math.IsNaN(last) {
		return time.Time{}
	}
	return time.Unix(int64(last), 0)
}

func (k *jobState) sayStalled(j *Judge, s *collector.Snapshot, worked int, visible bool) Evidence {
	first := j.gpus[s.GPUs[k.members[0]].UUID]
	usual := first.Usual.Typical(0.5)
	want := stallShare * usual
	recent := first.recently(s.Time)
	lasted := span(s.Time.Sub(k.Quiet.Since))
	ev := Evidence{
		Title: fmt.Sprintf("%s stalls: it worked, and has done nothing for %s", k.Owner, lasted),
		Seen: fmt.Sprintf("all %s that worked are under a tenth of their usual activity for %s (now %s, usually %s), processes are there",
			count(worked, "GPU", "GPUs"), lasted, percentOf(recent), percentOf(usual)),
		Expected: fmt.Sprintf("above %s, or writing a checkpoint", percentOf(want)),
		Observed: recent, Want: &want, Confidence: VerySure,
		Why: "it writes no checkpoint and its longest pause before was " + span(time.Duration(k.Quiet.Longest)*time.Second),
	}
	if !k.listed {
		ev.Seen = fmt.Sprintf("all %s that worked are under a tenth of their usual activity for %s (now %s, usually %s)",
			count(worked, "GPU", "GPUs"), lasted, percentOf(recent), percentOf(usual))
	}
	if !visible {
		ev.Confidence, ev.Why = Likely, "whether it writes a checkpoint cannot be seen here, so it was given twice the time"
	}
	return ev
}
