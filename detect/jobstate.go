package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

const (
	spinWorked  = 10 * time.Minute // of work, before a job can hang
	spinShare   = 0.9              // of its GPUs that spin
	spinSpread  = 0.05             // of the limit: power that stays within is flat
	spinLinks   = 0.01             // of its own working level: links that carry no more are silent
	linkNoise   = 1e6              // bytes a second of a GPU: what looking at it moves over PCIe
	linkTelling = 10 * linkNoise   // of a working level below, silence cannot be told

	giga = 1e9 // a histogram tells values up to a million apart

	stallWorked = 30 * time.Minute // of work, before a job can stall
	stallFor    = 10 * time.Minute
	stallBlind  = 20 * time.Minute // where writing a checkpoint cannot be seen
	stallShare  = 0.1              // of a rank's own median
	habitual    = 1.5              // times the longest pause that it came back from
)

// jobState is what is kept of one owner's part of a job on the node. Its exported
// fields survive a restart.
type jobState struct {
	Owner  collector.Owner   `json:"owner"`
	At     time.Time         `json:"at"`     // of the newest reading
	PID    int               `json:"pid"`    // the highest of its processes; 0: not known
	Worked float64           `json:"worked"` // seconds in which most of its GPUs drew the power of work
	Links  *stream.Histogram `json:"links"`  // gigabytes a second of a GPU while it worked
	Spin   pause             `json:"spin"`   // in which its GPUs spin
	Quiet  pause             `json:"quiet"`  // in which all ranks do next to nothing

	seen             time.Time // in a snapshot
	turn             uint64    // of the judge when it was last seen
	working          bool      // most of its GPUs draw the power of work
	members          []int     // positions of its GPUs in the snapshot
	hung             symptom
	stalled          symptom
	open             int  // processes
	listed, notebook bool // they are known; one is a notebook's
	served           bool // by endpoints that are known
	server           bool // a process calls itself one, or the configuration does
	batch            bool // it is known to be a training
}

// pause is a time in which a job does not work.
type pause struct {
	Since   time.Time `json:"since"`   // zero: there is none
	Longest float64   `json:"longest"` // seconds of the longest that the same processes came back from
}

func (p *pause) begin(since time.Time) {
	if p.Since.IsZero() {
		p.Since = since
	}
}

// end remembers how long it was.
func (p *pause) end(now time.Time) {
	if !p.Since.IsZero() {
		p.Longest = max(p.Longest, now.Sub(p.Since).Seconds())
	}
	p.Since = time.Time{}
}

// unusual reports whether the pause is clearly longer than those the job makes.
func (p *pause) unusual(lasted time.Duration) bool { return lasted.Seconds() >= habitual*p.Longest }

// symptom is what is known of one way in which a job can stop.
type symptom struct {
	holds  bool
	score  float64
	since  time.Time
	told   Evidence
	toldAt time.Time
}

// told says which symptom holds.
func (k *jobState) told() string {
	switch {
	case k.hung.holds:
		return k.hung.told.Seen
	case k.stalled.holds:
		return k.stalled.told.Seen
	}
	return ""
}

// gather puts the snapshot's GPUs under their holders.
func (j *Judge) gather(s *collector.Snapshot) {
	j.present = j.present[:0]
	j.turn++
	for i := range s.GPUs {
		owner := holder(&s.GPUs[i])
		if owner.Kind == "" || j.gpus[s.GPUs[i].UUID] == nil {
			continue
		}
		k := j.jobs[owner]
		if k != nil && s.Time.Sub(k.seen) > forgotten {
			k = nil // another one of the same name
		}
		if k == nil {
			if j.jobs[owner] == nil && !room(j.jobs, maxJudged, forgotten, func(k *jobState) time.Time { return k.seen }, s.Time) {
				continue
			}
			k = &jobState{Owner: owner, Links: stream.NewHistogram(powerHalfLife)}
			j.jobs[owner] = k
		}
		if k.turn != j.turn {
			k.members, k.seen, k.turn = k.members[:0], s.Time, j.turn
			j.present = append(j.present, k)
		}
		k.members = append(k.members, i)
	}
}

// judge takes up a snapshot: how much the job works, and whether it has stopped to.
func (k *jobState) judge(j *Judge, s *collector.Snapshot) {
	k.know(j, s)
	k.renew(j, s)
	at := time.Time{}
	for _, i := range k.members {
		at = later(at, s.GPUs[i].SampledAt(metric.Fast))
	}
	if at.IsZero() || at.Equal(k.At) {
		return
	}
	dt := min(max(at.Sub(k.At), 0), sampleGap)
	if k.At.IsZero() || at.Sub(k.At) > pauseKept {
		dt, k.Spin.Since, k.Quiet.Since = 0, time.Time{}, time.Time{}
	}
	k.At = at
	working, links, known := 0, 0.0, true
	for _, i := range k.members {
		st := j.gpus[s.GPUs[i].UUID]
		if s.GPUs[i].Value(metric.PowerDraw) > lowPower*s.GPUs[i].Value(metric.PowerLimit) {
			working++
		}
		rate := over(st.mean[meanLinks], s.Time, time.Minute, time.Second)
		links, known = links+rate, known && !math.IsNaN(rate)
	}
	k.working = 2*working > len(k.members)
	if k.working {
		k.Worked += dt.Seconds()
		if known {
			k.Links.Add(at, links/giga/float64(len(k.members)), dt.Seconds())
		}
	}
	k.watchSpin(j, s)
	k.watchQuiet(j, s)
}

// renew begins anew when all processes are other ones: that they take long to start is
// no stall. A rank that died leaves the others, and new processes have higher pids.
func (k *jobState) renew(j *Judge, s *collector.Snapshot) {
	lowest, highest := 0, 0
	for _, i := range k.members {
		if st := j.gpus[s.GPUs[i].UUID]; st.pid > 0 {
			highest = max(highest, st.lastPID)
			if lowest == 0 || st.pid < lowest {
				lowest = st.pid
			}
		}
	}
	if highest == 0 {
		return
	}
	before := k.PID
	k.PID = highest
	if before == 0 || lowest <= before {
		return
	}
	k.Worked, k.Spin, k.Quiet = 0, pause{}, pause{}
	for _, i := range k.members {
		j.gpus[s.GPUs[i].UUID].Usual = stream.NewHistogram(powerHalfLife)
	}
}

// know says what kind of workload it is.
func (k *jobState) know(j *Judge, s *collector.Snapshot) {
	k.served, k.server, k.batch = false, false, k.Owner.Kind == "job"
	k.open, k.listed, k.notebook = 0, false, isNotebook(k.Owner.ID)
	for _, i := range k.members {
		g := &s.GPUs[i]
		st := j.gpus[g.UUID]
		k.server, k.notebook, k.listed = k.server || st.server, k.notebook || st.notebook, k.listed || st.listed
		k.open += st.open
		for e := range s.Endpoints {
			k.served = k.served || covers(&s.Endpoints[e], g)
		}
	}
	if w := s.WorkloadOf(k.Owner); w != nil {
		k.server = k.server || w.Stage == "inference"
		k.notebook = k.notebook || w.Stage == "notebook"
		k.batch = k.batch || w.Stage == "training" || w.Stage == "fine_tuning" || w.Has(metric.WorkloadProgress)
	}
}

// requests are those inside the endpoints on the job's GPUs; NaN if that is not told.
func (k *jobState) requests(j *Judge, s *collector.Snapshot) float64 {
	sum := math.NaN()
	for e := range s.Endpoints {
		on := false
		for _, i := range k.members {
			on = on || covers(&s.Endpoints[e], &s.GPUs[i])
		}
		if w := j.servers[s.Endpoints[e].Key()]; on && w != nil {
			sum = sumKnown(sum, over(w.mean[serverInside], s.Time, jobWindow, time.Minute))
		}
	}
	return sum
}

// writes reports whether it may be writing a checkpoint, and whether that can be seen.
func (k *jobState) writes(j *Judge, since, now time.Time) (writes, visible bool) {
	w := j.work[k.Owner]
	if w == nil || now.Sub(w.at) > pauseKept {
		return false, false
	}
	return !w.wrote.Before(since), w.visible
}

func (k *jobState) shift(by time.Duration) {
	shift(by, &k.At, &k.Spin.Since, &k.Quiet.Since, &k.seen, &k.hung.since, &k.stalled.since, &k.hung.toldAt, &k.stalled.toldAt)
	k.Links.Shift(by)
}
