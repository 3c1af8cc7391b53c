package detect

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// Hung watches for jobs whose GPUs spin in a collective that does not return: fully
// used, at the power of idleness, and without traffic on their links.
type Hung struct{ judge *Judge }

// NewHung returns the detector of rule job_hung, which reads from the judge.
func NewHung(j *Judge) *Hung { return &Hung{j} }

// Judge returns what the detector reads from.
func (d *Hung) Judge() *Judge { return d.judge }

// Rule returns job_hung.
func (d *Hung) Rule() *rules.Rule { return rules.Get(rules.IDJobHung) }

// Observe judges every owner of GPUs.
func (d *Hung) Observe(_ *collector.Snapshot, report func(Observation)) {
	if !d.judge.fresh {
		return
	}
	for _, k := range d.judge.present {
		report(k.observation(&k.hung, "collective"))
	}
}

// observation is what a detector says of a symptom.
func (k *jobState) observation(y *symptom, cause string) Observation {
	o := Observation{
		Subject: Subject{Kind: k.Owner.Kind, ID: k.Owner.ID}, Cause: cause, Score: min(y.score, 0.99), Severity: rules.Page, Owner: k.Owner,
	}
	if y.holds {
		o.Score, o.At, o.Evidence = max(y.score, 1), y.since, y.told
	}
	return o
}

// watchSpin decides whether the job hangs.
func (k *jobState) watchSpin(j *Judge, s *collector.Snapshot) {
	y, now := &k.hung, s.Time
	spinning, odd := 0, -1
	for _, i := range k.members {
		if spins(j.gpus[s.GPUs[i].UUID], now) {
			spinning++
		} else {
			odd = i
		}
	}
	n := len(k.members)
	y.score = float64(spinning) / (spinShare * float64(n))
	// The rank that the others wait for is one of them: on a node of eight it alone is
	// more than a tenth.
	enough := float64(spinning) >= spinShare*float64(n) || n >= 4 && spinning == n-1
	if enough && odd >= 0 {
		enough = silent(j.gpus[s.GPUs[odd].UUID], now)
	}
	links, level := k.linkLevel(j, s)
	if !enough || links > max(spinLinks*level, linkNoise) && level >= linkTelling {
		y.holds, y.told.Seen = false, ""
		if k.working { // else it is the same spin, with a twitch in it
			k.Spin.end(now)
		}
		return
	}
	k.Spin.begin(now.Add(-jobWindow))
	if inside := k.requests(j, s); (k.served || k.server) && !(inside >= noRequests) {
		y.holds = false // nobody waits for it, or it is not told whether anybody does
		return
	}
	if writing, _ := k.writes(j, k.Spin.Since, now); writing {
		y.holds = false // one rank writes, the others wait for it
		return
	}
	lasted := now.Sub(k.Spin.Since)
	y.holds = k.Worked >= spinWorked.Seconds() && k.Spin.unusual(lasted)
	if y.holds {
		y.score, y.since = max(lasted.Seconds()/jobWindow.Seconds(), 1), k.Spin.Since
		if now.Sub(y.toldAt) >= wordsEvery || y.told.Seen == "" {
			y.told, y.toldAt = k.sayHung(j, s, spinning, odd, links, level), now
		}
	}
}

// spins reports whether a GPU has been fully used for five minutes at low and flat
// power, and nothing was computed as far as that is told.
func spins(st *judged, now time.Time) bool {
	least := time.Duration(minCoverage * float64(jobWindow))
	full, power := over(st.mean[meanFull], now, jobWindow, least), over(st.mean[meanPower], now, jobWindow, least)
	if !(full >= 0.95 && power <= lowPower) {
		return false
	}
	tensor, dram := over(st.mean[meanTensor], now, jobWindow, least), over(st.mean[meanDRAM], now, jobWindow, least)
	return !(tensor >= busyActivity) && !(dram >= lowPower) && st.power.spread(now) <= spinSpread
}

// silent reports whether a GPU does not work either, so that others do not wait for
// what it does.
func silent(st *judged, now time.Time) bool {
	return !(over(st.mean[meanPower], now, verdictWindow, time.Minute) > lowPower) && !(over(st.mean[meanSM], now, verdictWindow, time.Minute) >= lowPower)
}

// linkLevel returns what the job's GPUs move over their links, each, and what they move
// while it works; NaN if that is not known.
func (k *jobState) linkLevel(j *Judge, s *collector.Snapshot) (links, level float64) {
	for _, i := range k.members {
		links += over(j.gpus[s.GPUs[i].UUID].mean[meanLinks], s.Time, jobWindow, verdictKnown)
	}
	level = math.NaN()
	if k.Links.Weight() >= verdictKnown.Seconds() {
		level = giga * k.Links.Typical(0.5)
	}
	return links / float64(len(k.members)), level
}

func (k *jobState) sayHung(j *Judge, s *collector.Snapshot, spinning, odd int, links, level float64) Evidence {
	n := len(k.members)
	first := &s.GPUs[k.members[0]]
	power := over(j.gpus[first.UUID].mean[meanPower], s.Time, jobWindow, time.Minute)
	limit := first.Value(metric.PowerLimit)
	want := lowPower * limit
	ev := Evidence{
		Title:    fmt.Sprintf("%s hangs: %d of its %s here spin", k.Owner, spinning, count(n, "GPU", "GPUs")),
		Expected: fmt.Sprintf("above %.0f W at full utilization", want),
		Observed: power * limit, Want: &want, Confidence: VerySure,
		Why: "utilization, power and links agree for " + span(s.Time.Sub(k.Spin.Since)),
	}
	ev.Seen = fmt.Sprintf("%d of %s at 100 %% utilization and %.0f of %.0f W for %s", spinning, count(n, "GPU", "GPUs"), power*limit, limit, span(s.Time.Sub(k.Spin.Since)))
	if level >= linkTelling && !math.IsNaN(links) {
		ev.Seen += fmt.Sprintf(", links at %s (at work %s)", speed(links), speed(level))
	} else {
		ev.Confidence, ev.Why = Likely, "the traffic of its links is not told here, only utilization and power"
	}
	if odd >= 0 {
		g := &s.GPUs[odd]
		ev.Seen += fmt.Sprintf("; suspect: GPU %d, ", g.Index)
		if util := g.Value(metric.Utilization); g.Answers() && !math.IsNaN(util) {
			ev.Seen += percentOf(util) + " utilization"
		} else {
			ev.Seen += "which does not answer"
		}
		if pid := j.gpus[g.UUID].pid; pid > 0 {
			ev.Seen += fmt.Sprintf(", process %d", pid)
			ev.Action = fmt.Sprintf("Take a stack of process %d on GPU %d, then restart the job from its last checkpoint.", pid, g.Index)
		} else {
			ev.Seen += ", no process"
		}
	} else {
		ev.Seen += "; no rank here is the odd one"
	}
	return ev
}

// speed writes bytes a second: "210 GB/s".
func speed(x float64) string {
	switch {
	case x >= 1e9:
		return significant(x/1e9, 3) + " GB/s"
	case x >= 1e6:
		return significant(x/1e6, 3) + " MB/s"
	}
	return significant(x/1e3, 2) + " kB/s"
}
