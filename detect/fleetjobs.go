package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// fleetJobs are the jobs that have GPUs on several nodes, or in several pods.
type fleetJobs struct {
	of      map[Subject]*fleetJob
	order   []*fleetJob
	scratch map[collector.Owner]*fleetJob
}

// fleetJob is a job at one look.
type fleetJob struct {
	owner collector.Owner
	parts []jobPart
	gpus  int
}

// jobPart is what a job, or a pod of it, has on one node, and what that says of it.
type jobPart struct {
	node          string
	who           collector.Owner // the job, or the pod
	snapshot      *collector.Snapshot
	gpus          []*collector.GPU
	hung, stalled *Finding // nil: it does not say so
}

func newFleetJobs() *fleetJobs { return &fleetJobs{scratch: map[collector.Owner]*fleetJob{}} }

// look finds the jobs of several nodes, and of several pods.
func (j *fleetJobs) look(_ time.Time, heard []Heard) {
	clear(j.scratch)
	j.of, j.order = map[Subject]*fleetJob{}, nil
	for i := range heard {
		s := heard[i].Snapshot
		if s == nil {
			continue
		}
		for k := range s.GPUs {
			who := holder(&s.GPUs[k])
			whole := s.JobOf(who)
			if whole.Kind == "" {
				continue
			}
			job := j.scratch[whole]
			if job == nil {
				job = &fleetJob{owner: whole}
				j.scratch[whole] = job
				j.order = append(j.order, job)
			}
			part := job.part(&heard[i], who)
			part.gpus = append(part.gpus, &s.GPUs[k])
			job.gpus++
		}
	}
	j.order = slices.DeleteFunc(j.order, func(job *fleetJob) bool { return len(job.parts) < 2 })
	for _, job := range j.order {
		j.of[ownerSubject(job.owner)] = job
		for i := range job.parts {
			j.of[ownerSubject(job.parts[i].who)] = job
		}
	}
}

// part returns what an owner has of the job on a node. GPUs come node by node.
func (job *fleetJob) part(h *Heard, who collector.Owner) *jobPart {
	for i := len(job.parts) - 1; i >= 0 && job.parts[i].snapshot == h.Snapshot; i-- {
		if job.parts[i].who == who {
			return &job.parts[i]
		}
	}
	job.parts = append(job.parts, jobPart{node: h.Node, who: who, snapshot: h.Snapshot, hung: saysOf(h, who, rules.IDJobHung), stalled: saysOf(h, who, rules.IDJobStalled)})
	return &job.parts[len(job.parts)-1]
}

// on says on how many nodes the job is.
func (job *fleetJob) on() string {
	n := 0
	for i := range job.parts {
		if i == 0 || job.parts[i].snapshot != job.parts[i-1].snapshot {
			n++
		}
	}
	return count(n, "node", "nodes")
}

// saysOf returns what a node says of the job by a rule: a copy, or nil.
func saysOf(h *Heard, job collector.Owner, id rules.ID) *Finding {
	for i := range h.Findings {
		if f := h.Findings[i]; f.Rule == id && f.State == Firing && f.Subject == ownerSubject(job) {
			return &f
		}
	}
	return nil
}

// say returns what the job's nodes say of it, and on how many of its GPUs.
func (job *fleetJob) say(of func(*jobPart) *Finding) (findings []*Finding, gpus int) {
	for i := range job.parts {
		if f := of(&job.parts[i]); f != nil {
			findings = append(findings, f)
			gpus += len(job.parts[i].gpus)
		}
	}
	return findings, gpus
}

// observation is of the whole job, from what its nodes say.
func (job *fleetJob) observation(findings []*Finding, cause string, share float64) Observation {
	o := Observation{Subject: ownerSubject(job.owner), Cause: cause, Owner: job.owner, Score: min(share, 0.99)}
	for _, f := range findings {
		o.Severity = max(o.Severity, f.Severity)
		if o.At.IsZero() || f.Since.Before(o.At) {
			o.At = f.Since
		}
	}
	return o
}

// fleetHung is rule job_hung for jobs on several nodes.
type fleetHung struct{ jobs *fleetJobs }

func (d *fleetHung) Rule() *rules.Rule { return rules.Get(rules.IDJobHung) }

// Observe judges each job of several nodes: nine of ten of all its GPUs have to spin, or
// all but one.
func (d *fleetHung) Observe(s *collector.Snapshot, report func(Observation)) {
	for _, job := range d.jobs.order {
		findings, _ := job.say(func(p *jobPart) *Finding { return p.hung })
		if len(findings) == 0 {
			report(Observation{Subject: ownerSubject(job.owner), Cause: "collective", Owner: job.owner})
			continue
		}
		spinning, odd := job.spinning()
		o := job.observation(findings, "collective", float64(spinning)/(spinShare*float64(job.gpus)))
		if float64(spinning) >= spinShare*float64(job.gpus) || spinning >= 3 && spinning == job.gpus-1 {
			o.Score = max(1, s.Time.Sub(o.At).Seconds()/jobWindow.Seconds())
			o.Evidence = job.sayHung(spinning, odd, s.Time.Sub(o.At))
			if len(odd) == 1 {
				o.GPU, o.Node = odd[0].gpu, odd[0].node
			}
		}
		report(o)
	}
}

// oddRank is a GPU of a job that does not do what the others do.
type oddRank struct {
	node string
	gpu  *collector.GPU
}

// spinning counts the job's GPUs that are fully used at the power of idleness, and names
// the others. Of a GPU that tells neither, its node's finding is believed.
func (job *fleetJob) spinning() (n int, odd []oddRank) {
	for i := range job.parts {
		p := &job.parts[i]
		for _, g := range p.gpus {
			util, power := g.Value(metric.Utilization), g.Value(metric.PowerDraw)/g.Value(metric.PowerLimit)
			switch {
			case g.Answers() && util >= 0.95 && !(power > lowPower), g.Answers() && p.hung != nil && math.IsNaN(util) && math.IsNaN(power):
				n++
			default:
				odd = append(odd, oddRank{p.node, g})
			}
		}
	}
	return n, odd
}

func (job *fleetJob) sayHung(spinning int, odd []oddRank, lasted time.Duration) Evidence {
	first := job.parts[0].gpus[0]
	for _, p := range job.parts {
		for _, g := range p.gpus {
			if g.Value(metric.Utilization) >= 0.95 {
				first = g
			}
		}
	}
	power, limit := first.Value(metric.PowerDraw), first.Value(metric.PowerLimit)
	want := lowPower * limit
	ev := Evidence{
		Title:    fmt.Sprintf("%s hangs: %d of its %d GPUs spin", job.owner, spinning, job.gpus),
		Seen:     fmt.Sprintf("%d of %d GPUs on %s at 100 %% utilization", spinning, job.gpus, job.on()),
		Observed: float64(spinning), Confidence: VerySure, Why: "utilization and power agree on all of its nodes",
	}
	if power > 0 && limit > 0 {
		ev.Seen += fmt.Sprintf(" and about %.0f of %.0f W", power, limit)
		ev.Expected, ev.Observed, ev.Want = fmt.Sprintf("above %.0f W at full utilization", want), power, &want
	}
	ev.Seen += " for " + span(lasted)
	if len(odd) == 0 {
		ev.Seen += "; no rank is the odd one"
		return ev
	}
	var names []string
	for _, r := range odd[:min(len(odd), mostNamed)] {
		name := fmt.Sprintf("%s/%d", r.node, r.gpu.Index)
		if util := r.gpu.Value(metric.Utilization); !r.gpu.Answers() {
			name += ", which does not answer"
		} else if !math.IsNaN(util) {
			name += ", " + percentOf(util) + " utilization"
		}
		names = append(names, name)
	}
	more := ""
	if len(odd) > mostNamed {
		more = fmt.Sprintf(" and %d more", len(odd)-mostNamed)
	}
	ev.Seen += "; suspect: " + strings.Join(names, "; ") + more
	ev.Action = fmt.Sprintf("Take a stack of the process on GPU %d of %s, then restart the job from its last checkpoint.", odd[0].gpu.Index, odd[0].node)
	return ev
}

// fleetStalled is rule job_stalled for jobs on several nodes.
type fleetStalled struct{ jobs *fleetJobs }

func (d *fleetStalled) Rule() *rules.Rule { return rules.Get(rules.IDJobStalled) }

// Observe judges each job of several nodes: it has to stall on the nodes that have nine of
// ten of its GPUs.
func (d *fleetStalled) Observe(s *collector.Snapshot, report func(Observation)) {
	for _, job := range d.jobs.order {
		findings, gpus := job.say(func(p *jobPart) *Finding { return p.stalled })
		share := float64(gpus) / (spinShare * float64(job.gpus))
		o := job.observation(findings, "no_progress", share)
		if share >= 1 {
			lasted := s.Time.Sub(o.At)
			o.Score = max(1, lasted.Seconds()/stallFor.Seconds())
			o.Evidence = Evidence{
				Title:    fmt.Sprintf("%s stalls: it worked, and has done nothing for %s", job.owner, span(lasted)),
				Seen:     fmt.Sprintf("%d of %d GPUs on %s are under a tenth of their usual activity for %s", gpus, job.gpus, job.on(), span(lasted)),
				Expected: "work, or writing a checkpoint", Observed: float64(gpus), Confidence: VerySure, Why: "its nodes agree",
			}
		}
		report(o)
	}
}
