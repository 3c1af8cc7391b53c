package fleet

import (
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/owner"
	"gpuvigil/collector/slurm"
)

// NameSlurm is what Slurm is called as a scheduler.
const NameSlurm = "slurm"

// Slurm returns Slurm as a scheduler. latest and health are those of its client; names
// shows jobs' names.
func Slurm(latest func() *slurm.Answer, health func() slurm.Health, owners *owner.Jobs, names bool) Scheduler {
	return Scheduler{
		Name: NameSlurm,
		Latest: func() *Cluster {
			a := latest()
			if a == nil {
				return nil
			}
			return ofSlurm(a, owners, names)
		},
		Health: func() Health {
			h := health()
			return Health{Up: h.Up, Last: h.Last, Good: h.Good, Failed: h.Failed, Unreadable: h.Unreadable}
		},
	}
}

// ofSlurm makes a cluster of an answer. Jobs without GPUs are left out, and jobs of
// which it was not told.
func ofSlurm(a *slurm.Answer, owners *owner.Jobs, names bool) *Cluster {
	c := &Cluster{Time: a.Time}
	running := tasksOf(a.Jobs)
	free := freeOf(a)
	seen := map[string]bool{}
	for i := range a.Jobs {
		j := &a.Jobs[i]
		if j.GPUs <= 0 {
			continue
		}
		w, user := owners.Describe(owner.Job{ID: owner.JobPrefix + j.ID, UID: j.UID, User: j.User, Account: j.Account, Partition: partitionOf(j)})
		if j.State.Holds() && !seen[j.ID] {
			seen[j.ID] = true
			job := Job{OwnerKind: w.Kind, Owner: w.ID, Array: j.Array, User: user, Account: j.Account, Partition: partitionOf(j), QOS: j.QOS, Team: w.Team, GPUs: j.GPUs}
			if names {
				job.Name = j.Name
			}
			c.Jobs = append(c.Jobs, job)
		}
		c.Work = append(c.Work, workOf(j, w.Team, running, free)...)
	}
	for i := range a.Nodes {
		if n := &a.Nodes[i]; n.GPUs > 0 {
			state := string(n.State)
			if n.State == slurm.NodeDrained && n.Used > 0 {
				state = "cordoned"
			}
			c.Nodes = append(c.Nodes, Node{Name: n.Name, Shared: partitions(n.Partitions), Pools: n.Partitions, State: state, GPUs: n.GPUs, Used: n.Used})
			for _, partition := range n.Partitions { // one that is empty has none, and that is known
				c.Work = append(c.Work, Work{Queue: partition, State: "waiting"})
			}
		}
	}
	return c
}

// partitions are what a node has in common with others of them.
func partitions(names []string) (out []collector.Label) {
	for _, name := range names {
		out = append(out, collector.Label{Name: "partition", Value: name})
	}
	return out
}

// partitionOf returns the partition of a job, the first of several.
func partitionOf(j *slurm.Job) string {
	if len(j.Partitions) == 0 {
		return ""
	}
	return j.Partitions[0]
}

// workOf is what the job is in its queue: what an array's own limit holds back, more
// GPUs would not start.
func workOf(j *slurm.Job, team string, running map[string]int, free *slurmFree) []Work {
	state := stateOf(j)
	if state == "" || len(j.Partitions) == 0 {
		return nil
	}
	w := Work{Queue: j.Partitions[0], Account: j.Account, Team: team, State: state, Jobs: j.Tasks, GPUs: j.GPUs,
		Name: "job:" + owner.JobPrefix + j.ID, Of: j.Array, Asked: j.Submitted, Told: j.Reason}
	if state != "waiting" {
		return []Work{w}
	}
	w.Reason, w.Since = strings.ToLower(reasonOf(j)), eligible(j)
	w.Model, w.PerNode = j.Type, perNode(j)
	w.Free, w.Other = free.of(j)
	if j.Limit <= 0 {
		return []Work{w}
	}
	held := w
	w.Jobs = min(j.Tasks, max(0, j.Limit-running[arrayOf(j)]))
	held.State, held.Reason, held.Jobs, held.Told = "limited", "", j.Tasks-w.Jobs, "the array's own limit"
	held.Free, held.Other = nil, nil
	return []Work{w, held}
}

// arrayOf returns the array that a job is of.
func arrayOf(j *slurm.Job) string {
	id, _, _ := strings.Cut(j.Array, "_")
	return id
}

// tasksOf counts the running tasks of each array.
func tasksOf(jobs []slurm.Job) map[string]int {
	running := map[string]int{}
	for i := range jobs {
		if j := &jobs[i]; j.State.Holds() && strings.Contains(j.Array, "_") {
			running[arrayOf(j)]++
		}
	}
	return running
}

// eligible is since when the job could have run. Time before was not the cluster's.
func eligible(j *slurm.Job) time.Time {
	if j.Eligible.IsZero() {
		return j.Submitted
	}
	return j.Eligible
}

// reasonOf is why the job is pending, without what Slurm adds to some reasons:
// ReqNodeNotAvail, UnavailableNodes:…
func reasonOf(j *slurm.Job) string {
	reason, _, _ := strings.Cut(j.Reason, ",")
	return reason
}

// stateOf returns what becomes of the job, in the words of metric.QueueState; empty if
// it has ended.
func stateOf(j *slurm.Job) string {
	switch {
	case j.State == "SUSPENDED" || j.State == "STOPPED":
		return "suspended"
	case j.State == "CONFIGURING":
		return "starting"
	case j.State.Holds():
		return "running"
	case !j.State.Waits():
		return ""
	}
	reason := reasonOf(j)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(reason, p) })
	}
	switch {
	case reason == "Resources" || reason == "Priority":
		return "waiting"
	case strings.HasPrefix(reason, "Dependency"):
		return "dependent"
	case has("BeginTime", "Held", "JobHold"):
		return "scheduled"
	case has("QOS", "Assoc", "Limit", "MaxGRES", "MaxTRES", "License"):
		return "limited"
	case has("NotAvail", "Reservation", "PartitionDown", "PartitionInactive", "BadConstraints", "NodeDown", "DOWN"):
		return "unavailable"
	}
	return "other"
}
