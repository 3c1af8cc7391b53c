// Package fleet is the one role of a cluster: what it asks the scheduler once, for
// everybody. For now it knows Slurm.
package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector/slurm"
	"gpuvigil/internal/metric"
)

// queue is what is to be said of one partition.
type queue struct {
	jobs, gpus []float64 // by metric.QueueState
	capacity   []float64 // by metric.CapacityState; nil: nothing is known of its nodes
	waits      []wait
}

// wait is how long so many jobs have waited.
type wait struct {
	length time.Duration
	jobs   int
}

func newQueue() *queue {
	n := len(metric.QueueState.Values)
	return &queue{jobs: make([]float64, n), gpus: make([]float64, n)}
}

// queues sums up an answer by partition. Jobs without GPUs are left out, and jobs of
// which it was not told.
func queues(a *slurm.Answer) map[string]*queue {
	all := map[string]*queue{}
	get := func(name string) *queue {
		if all[name] == nil {
			all[name] = newQueue()
		}
		return all[name]
	}
	running := tasksOf(a.Jobs)
	for i := range a.Jobs {
		j := &a.Jobs[i]
		state := stateOf(j)
		if j.GPUs <= 0 || len(j.Partitions) == 0 || state == "" {
			continue
		}
		q := get(j.Partitions[0])
		now := j.Tasks
		if state == "waiting" && j.Limit > 0 {
			// What the array's own limit holds back, more GPUs would not start.
			now = min(j.Tasks, max(0, j.Limit-running[arrayOf(j)]))
		}
		q.add(state, now, j.GPUs)
		q.add("limited", j.Tasks-now, j.GPUs)
		if since := eligible(j); state == "waiting" && now > 0 && !since.IsZero() {
			q.waits = append(q.waits, wait{max(0, a.Time.Sub(since)), now})
		}
	}
	for i := range a.Nodes {
		n := &a.Nodes[i]
		if n.GPUs <= 0 {
			continue
		}
		for _, name := range n.Partitions {
			get(name).place(n)
		}
	}
	return all
}

func (q *queue) add(state string, jobs, each int) {
	i := metric.QueueState.Index(state)
	q.jobs[i] += float64(jobs)
	q.gpus[i] += float64(jobs * each)
}

// place adds a node's GPUs. Those in use are used, whatever the node's state is.
func (q *queue) place(n *slurm.Node) {
	if q.capacity == nil {
		q.capacity = make([]float64, len(metric.CapacityState.Values))
	}
	used := max(0, min(n.Used, n.GPUs))
	rest := string(n.State)
	switch {
	case n.Used == slurm.Unknown:
		rest = "unknown"
	case n.State == slurm.NodeUsable:
		rest = "free"
	}
	q.capacity[metric.CapacityState.Index("used")] += float64(used)
	q.capacity[metric.CapacityState.Index(rest)] += float64(n.GPUs - used)
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

// stateOf returns what becomes of the job, in the words of metric.QueueState; empty if
// it has ended.
func stateOf(j *slurm.Job) string {
	switch {
	case j.State == "SUSPENDED" || j.State == "STOPPED":
		return "suspended"
	case j.State.Holds():
		return "running"
	case !j.State.Waits():
		return ""
	}
	reason, _, _ := strings.Cut(j.Reason, ",") // ReqNodeNotAvail, UnavailableNodes:…
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

// longest and typical say how long the jobs have waited that wait for GPUs. typical is
// the median over jobs.
func (q *queue) longest() time.Duration {
	return slices.MaxFunc(q.waits, byLength).length
}

func (q *queue) typical() time.Duration {
	sorted := slices.SortedFunc(slices.Values(q.waits), byLength)
	total, seen := 0, 0
	for _, w := range sorted {
		total += w.jobs
	}
	for _, w := range sorted {
		if seen += w.jobs; 2*seen >= total {
			return w.length
		}
	}
	return 0
}

func byLength(a, b wait) int { return cmp.Compare(a.length, b.length) }
