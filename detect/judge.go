package detect

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	maxJudged = 256           // GPUs, holders and endpoints each
	forgotten = 2 * time.Hour // after which what is not seen any more is

	judgeEvery    = 5 * time.Second
	verdictWindow = 3 * time.Minute  // of readings that a verdict is of
	verdictKnown  = 2 * time.Minute  // of it, by samples, before there is one
	recentWindow  = time.Minute      // of readings that must agree
	verdictDwell  = time.Minute      // for which another must hold before it takes over
	verdictMixed  = 5 * time.Minute  // where the recent readings do not agree
	wordsEvery    = time.Minute      // evidence is put into words anew
	verdictGone   = 2 * time.Minute  // after which one that nothing speaks for any more stands no longer
	pauseKept     = 10 * time.Minute // without a look, after which a verdict is not taken up again
)

// Judge gives each GPU its verdict, from what the snapshots of the last minutes tell of
// the GPU, its host, its workload and its endpoints. The detectors of whole jobs and of
// clocks read from it; the engine lets it look before them.
type Judge struct {
	now      time.Time
	gpus     map[string]*judged
	jobs     map[collector.Owner]*jobState
	work     map[collector.Owner]*workWindow
	servers  map[collector.EndpointKey]*serverWindow
	host     *hostWindow
	listedAt time.Time // of the newest process list
	services bool      // it had processes that belong to no workload

	judgedAt time.Time
	turn     uint64      // how often it has judged
	fresh    bool        // the newest snapshot was judged, and not only taken up
	present  []*jobState // of the newest snapshot, by their first GPU
	verdicts []Verdict
	words    []byte // scratch
}

// NewJudge returns a judge that has seen nothing.
func NewJudge() *Judge {
	return &Judge{
		gpus: map[string]*judged{}, jobs: map[collector.Owner]*jobState{}, work: map[collector.Owner]*workWindow{},
		servers: map[collector.EndpointKey]*serverWindow{}, host: newHostWindow(), words: make([]byte, 0, 512),
	}
}

// judging is a detector that reads from a judge.
type judging interface{ Judge() *Judge }

// Verdicts returns the verdict of each GPU of the newest snapshot, in its order. It
// must not be modified and is good until the next one.
func (j *Judge) Verdicts() []Verdict { return j.verdicts }

// verdictOf returns the verdict of one GPU; empty if it has none.
func (j *Judge) verdictOf(uuid string) VerdictName {
	for i := range j.verdicts {
		if j.verdicts[i].GPU == uuid {
			return j.verdicts[i].Name
		}
	}
	return ""
}

// Observe takes up a snapshot and reports whether a verdict changed.
func (j *Judge) Observe(s *collector.Snapshot) (changed bool) {
	j.now = s.Time
	j.host.take(s)
	for i := range s.Workloads {
		j.takeWork(&s.Workloads[i])
	}
	for i := range s.Endpoints {
		j.takeServer(&s.Endpoints[i])
	}
	for i := range s.GPUs {
		if st := j.gpu(&s.GPUs[i]); st != nil {
			st.take(s, &s.GPUs[i])
		}
	}
	j.list(s)
	if j.fresh = j.due(s); !j.fresh {
		return false
	}
	j.judgedAt = s.Time
	j.gather(s)
	for _, k := range j.present {
		k.judge(j, s)
	}
	return j.conclude(s)
}

// due reports whether it is time to judge what was taken up, or there are other GPUs.
func (j *Judge) due(s *collector.Snapshot) bool {
	if s.Time.Sub(j.judgedAt).Abs() >= judgeEvery || len(s.GPUs) != len(j.verdicts) {
		return true
	}
	for i := range s.GPUs {
		if s.GPUs[i].UUID != j.verdicts[i].GPU {
			return true
		}
	}
	return false
}

// conclude gives the verdicts.
func (j *Judge) conclude(s *collector.Snapshot) (changed bool) {
	if len(j.verdicts) != len(s.GPUs) {
		j.verdicts, changed = make([]Verdict, len(s.GPUs)), true
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		v := &j.verdicts[i]
		st := j.gpus[g.UUID]
		if st == nil {
			*v = Verdict{GPU: g.UUID, Index: g.Index, Owner: holder(g), Name: VerdictUnknown, Since: s.Time, Evidence: "more GPUs than are judged", Confidence: Certain}
			continue
		}
		if st.standsOnNoProcess() && st.open > 0 {
			st.beginAnew(s.Time)
		}
		f := j.figures(s, g, st, verdictWindow)
		name, sure := f.decide()
		recent := j.figures(s, g, st, recentWindow)
		recentName, recentSure := recent.decide()
		was := st.Name
		st.settle(s.Time, name, recentName, f.refutes(st.Name), holder(g))
		stale := st.Name == VerdictUnknown && st.worded != f.blind() // a fact, which may be another one now
		if st.Name != was || v.Name != st.Name || v.GPU != g.UUID || stale || s.Time.Sub(st.wordedAt) >= wordsEvery {
			switch {
			case st.Name == name:
				st.sure = sure
			case st.Name == recentName && st.Name != was:
				st.sure = recentSure
			case st.Name != recentName:
				st.sure = Likely // it stands only until another one has held for long enough
			}
			seen := &f
			if recentName == st.Name {
				seen = &recent // what is, without what was
			}
			st.worded, st.wordedAt = seen.words(st.Name, j.words[:0]), s.Time
			changed = changed || v.Name != st.Name || stale
		}
		*v = Verdict{GPU: g.UUID, Index: g.Index, Owner: st.Holder, Name: st.Name, Since: st.Since, Evidence: st.worded, Confidence: st.sure}
	}
	return changed
}

// settle lets another verdict take over once it has held for long enough. The means of
// the whole window and those of its last minute must agree, or have to for longer: after
// work has changed, the long ones mix what was with what is. A verdict that a fact
// refutes ends at once, and one that neither of them speaks for ends soon, also where
// they do not agree on the next.
func (st *judged) settle(at time.Time, name, recent VerdictName, refuted bool, owner collector.Owner) {
	if owner != st.Holder {
		st.Holder, st.Since = owner, at
	}
	if name != st.next {
		st.next, st.nextAt = name, at
	}
	if st.heldAt.IsZero() || name == st.Name || recent == st.Name {
		st.heldAt = at
	}
	if name == st.Name {
		return
	}
	held := at.Sub(st.nextAt)
	switch {
	case st.Name == "", st.Name == VerdictUnknown && st.sure == Young: // there was none yet
	case name == VerdictHung || name == VerdictStalled: // have been watched for minutes already
	case refuted:
	case at.Sub(st.heldAt) >= verdictGone: // long enough for the last minute to be of nothing else
		st.Name, st.Since, st.heldAt = recent, st.heldAt, at
		return
	case recent != name && held < verdictMixed || held < dwell(name):
		return
	}
	st.Name, st.Since, st.heldAt = name, st.nextAt, at
}

// standsOnNoProcess reports whether the verdict says that no process has the GPU open.
func (st *judged) standsOnNoProcess() bool {
	return st.Name == VerdictFree || st.Name == VerdictHeldWithoutProcess
}

// beginAnew forgets the readings of a GPU that a process has opened: those of the time
// before say nothing of it.
func (st *judged) beginAnew(at time.Time) {
	st.Name, st.Since, st.sure = VerdictUnknown, at, Young
	st.begun, st.opened = at, true
	st.resetMeans()
}

// dwell is for how long a verdict must hold. A job that starts, ends or dies passes what
// looks like gaps on its way.
func dwell(name VerdictName) time.Duration {
	switch name {
	case VerdictHealthy, VerdictCPUStarved, VerdictDiskStarved, VerdictNetworkStarved, VerdictHostBound, VerdictCommunicationBound:
		return verdictWindow
	}
	return verdictDwell
}

// gpu returns what is kept of a GPU; nil if there is no room.
func (j *Judge) gpu(g *collector.GPU) *judged {
	st := j.gpus[g.UUID]
	if st == nil {
		if !room(j.gpus, maxJudged, forgotten, func(st *judged) time.Time { return st.seen }, j.now) {
			return nil
		}
		st = newJudged()
		j.gpus[g.UUID] = st
	}
	if st.begun.IsZero() {
		st.begun = j.now
	}
	st.seen = j.now
	return st
}

// list takes up the newest process list: who has which GPU open.
func (j *Judge) list(s *collector.Snapshot) {
	newest := time.Time{}
	for i := range s.GPUs {
		newest = later(newest, s.GPUs[i].SampledAt(metric.Processes))
	}
	if newest.Equal(j.listedAt) && !newest.IsZero() {
		return
	}
	j.listedAt, j.services = newest, false
	for i := range s.GPUs {
		if st := j.gpus[s.GPUs[i].UUID]; st != nil {
			st.open, st.notebook, st.server, st.pid, st.lastPID = 0, false, false, 0, 0
		}
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		st := j.gpus[p.UUID]
		switch {
		case st == nil:
		case p.Service():
			j.services = true
		default:
			if st.open++; st.pid == 0 || p.PID < st.pid {
				st.pid = p.PID
			}
			st.lastPID = max(st.lastPID, p.PID)
			st.notebook = st.notebook || isNotebook(p.Name)
			st.server = st.server || isServer(p.Name)
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if st := j.gpus[g.UUID]; st != nil {
			counted := g.Value(metric.ProcessCount)
			if st.open == 0 && !j.services && counted > 0 {
				st.open = int(counted) // a count without names is believed, unless services explain it
			}
			st.listed = st.open > 0 || j.services || g.Has(metric.ProcessCount)
		}
	}
}
