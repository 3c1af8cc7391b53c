package detect

import (
	"fmt"
	"maps"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

const (
	fleetStragglerJobs = 512  // of several nodes that are compared
	fleetStragglerGPUs = 4096 // of one job
)

// fleetStraggler is rule straggler for jobs on several nodes: the GPUs of each are
// compared as those of one.
type fleetStraggler struct {
	jobs *fleetJobs
	of   map[collector.Owner]*jobStraggler
	said []Observation
}

type jobStraggler struct {
	*Straggler
	seen  time.Time
	nodes map[string]string // where each GPU is
}

func newFleetStraggler(jobs *fleetJobs) *fleetStraggler {
	return &fleetStraggler{jobs: jobs, of: map[collector.Owner]*jobStraggler{}}
}

func (d *fleetStraggler) Rule() *rules.Rule { return rules.Get(rules.IDStraggler) }

// look compares the GPUs of each job that says how it gets on. fleetJobs has looked
// before.
func (d *fleetStraggler) look(now time.Time, _ []Heard) {
	d.said = d.said[:0]
	for _, job := range d.jobs.order {
		s := job.merged(now)
		if len(s.Workloads) == 0 {
			continue
		}
		j := d.of[job.owner]
		if j == nil {
			if !room(d.of, fleetStragglerJobs, stragglerGone, func(j *jobStraggler) time.Time { return j.seen }, now) {
				continue
			}
			j = newJobStraggler()
			d.of[job.owner] = j
		}
		j.seen = now
		clear(j.nodes)
		for _, p := range job.parts {
			for _, g := range p.gpus {
				j.nodes[g.UUID] = p.node
			}
		}
		j.Straggler.Observe(s, func(o Observation) {
			if o.GPU != nil {
				o.Node = j.nodes[o.GPU.UUID]
			}
			d.said = append(d.said, o)
		})
	}
	maps.DeleteFunc(d.of, func(_ collector.Owner, j *jobStraggler) bool { return now.Sub(j.seen) > stragglerGone })
}

func newJobStraggler() *jobStraggler {
	j := &jobStraggler{Straggler: NewStraggler(), nodes: map[string]string{}}
	j.most = fleetStragglerGPUs
	j.named = func(g *collector.GPU) string { return fmt.Sprintf("%s/%d", j.nodes[g.UUID], g.Index) }
	return j
}

// merged is the job as if all its GPUs were on one node, with what its first part that
// says so tells of how it gets on.
func (job *fleetJob) merged(now time.Time) *collector.Snapshot {
	s := &collector.Snapshot{Time: now, GPUs: make([]collector.GPU, 0, job.gpus)}
	for i := range job.parts {
		p := &job.parts[i]
		for _, g := range p.gpus {
			one := *g
			if p.who != job.owner {
				one.Owners = []collector.Owner{job.owner}
			}
			s.GPUs = append(s.GPUs, one)
		}
		if w := p.snapshot.WorkloadOf(p.who); w != nil && len(s.Workloads) == 0 && tellsPace(w) {
			of := *w
			of.Owner = job.owner
			s.Workloads = append(s.Workloads, of)
		}
	}
	return s
}

// Observe reports what the newest look found.
func (d *fleetStraggler) Observe(_ *collector.Snapshot, report func(Observation)) {
	for _, o := range d.said {
		report(o)
	}
}
