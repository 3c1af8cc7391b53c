package detect

import (
	"slices"
	"time"

	"gpuvigil/rules"
)

// FleetConfig is what the detectors of the cluster role can be told. The zero value
// works untouched.
type FleetConfig struct {
	Waiting WaitingConfig
	Pool    PoolConfig
	Cluster string // its name, which findings of the whole are about
}

// FleetDetectors returns the detectors that see the queues of a cluster's schedulers and
// no node.
func FleetDetectors(cfg FleetConfig) []Detector { return []Detector{NewWaitingJobs(cfg.Waiting)} }

// Across are the detectors of the one role of a cluster: of the queues of its schedulers,
// and of what shows only where several nodes are looked at.
type Across struct {
	detectors []Detector
	crossing  []crossing
	jobs      *fleetJobs
	spend     *fleetSpend
}

// crossing is a detector that looks at all nodes. Look comes before each Observe, which
// reports what it found.
type crossing interface {
	look(now time.Time, heard []Heard)
}

// NewAcross returns detectors that have seen nothing.
func NewAcross(cfg FleetConfig) *Across {
	if cfg.Cluster == "" {
		cfg.Cluster = "cluster"
	}
	jobs := newFleetJobs()
	silent, straggler, queueing, versions := newFleetSilent(cfg.Cluster), newFleetStraggler(jobs), newFleetQueueing(), newFleetVersions(cfg.Pool)
	spend, waiting := newFleetSpend(), &fleetWaiting{NewWaitingJobs(cfg.Waiting)}
	return &Across{
		detectors: []Detector{silent, &fleetHung{jobs}, &fleetStalled{jobs}, queueing, waiting, straggler, spend, versions},
		crossing:  []crossing{silent, jobs, queueing, waiting, straggler, versions}, jobs: jobs, spend: spend,
	}
}

// Detectors returns the detectors, causes before what they hide, for an engine.
func (a *Across) Detectors() []Detector { return a.detectors }

// Look lets the detectors see all nodes; the engine's Observe with the same time follows.
// It takes out of the nodes' findings those that are told of the whole: a part of a job
// that hangs is no job that hangs, and what a team spends on one node is a part of it.
func (a *Across) Look(now time.Time, heard []Heard) {
	for _, c := range a.crossing {
		c.look(now, heard)
	}
	for i := range heard {
		heard[i].Findings = slices.DeleteFunc(heard[i].Findings, func(f Finding) bool { return a.jobs.joint(f) || a.spend.joint(f) })
	}
}

// joint reports whether a node's finding is told of the whole job.
func (j *fleetJobs) joint(f Finding) bool {
	return (f.Rule == rules.IDJobHung || f.Rule == rules.IDJobStalled) && j.of[f.Subject] != nil
}
