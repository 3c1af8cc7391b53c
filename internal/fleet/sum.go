package fleet

import (
	"cmp"
	"slices"
	"time"

	"gpuvigil/internal/metric"
)

// queueName is a queue by whose it is.
type queueName struct{ scheduler, queue string }

func compareQueues(a, b queueName) int {
	return cmp.Or(cmp.Compare(a.scheduler, b.scheduler), cmp.Compare(a.queue, b.queue))
}

// queue is what is to be said of one queue.
type queue struct {
	jobs, gpus []float64 // by metric.QueueState
	work       bool      // there is any
	waits      []wait
	own        *Queue // what its own scheduler says; nil: nothing
}

// wait is how long so many jobs have waited.
type wait struct {
	length time.Duration
	jobs   int
}

// sumQueues sums up the work by queue.
func sumQueues(scheduler string, c *Cluster) map[queueName]*queue {
	all := map[queueName]*queue{}
	get := func(n queueName) *queue {
		if all[n] == nil {
			states := len(metric.QueueState.Values)
			all[n] = &queue{jobs: make([]float64, states), gpus: make([]float64, states)}
		}
		return all[n]
	}
	for i := range c.Work {
		w := &c.Work[i]
		q := get(queueName{cmp.Or(w.Scheduler, scheduler), w.Queue})
		state := metric.QueueState.Index(w.State)
		q.work = true
		q.jobs[state] += float64(w.Jobs)
		q.gpus[state] += float64(w.Jobs * w.GPUs)
		if w.State == "waiting" && w.Jobs > 0 && !w.Since.IsZero() {
			q.waits = append(q.waits, wait{max(0, c.Time.Sub(w.Since)), w.Jobs})
		}
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		get(queueName{q.Scheduler, q.Name}).own = q
	}
	return all
}

// longest and typical say how long the jobs have waited that wait for GPUs. typical is
// the median over jobs.
func (q *queue) longest() time.Duration { return slices.MaxFunc(q.waits, byLength).length }

func (q *queue) typical() time.Duration { return q.quantile(0.5) }

func byLength(a, b wait) int { return cmp.Compare(a.length, b.length) }

// pool is what is to be said of one pool.
type pool struct {
	models    map[string]bool
	capacity  []float64 // by metric.CapacityState
	nodes     []float64 // by metric.NodeState
	free      []float64 // by metric.FreeCause; nil: not told
	resources map[string]Amount
}

// sumPools sums up the nodes by pool; a node of several pools is in each.
func sumPools(nodes []Node) map[string]*pool {
	all := map[string]*pool{}
	for i := range nodes {
		for _, name := range nodes[i].Pools {
			if all[name] == nil {
				all[name] = &pool{models: map[string]bool{}, resources: map[string]Amount{},
					capacity: make([]float64, len(metric.CapacityState.Values)), nodes: make([]float64, len(metric.NodeState.Values))}
			}
			all[name].place(&nodes[i])
		}
	}
	return all
}

// place adds a node. What is in use is used, whatever the node's state is.
func (p *pool) place(n *Node) {
	if n.Model != "" {
		p.models[n.Model] = true
	}
	p.nodes[metric.NodeState.Index(n.State)]++
	used := max(0, min(n.Used, n.GPUs))
	rest := n.State
	switch {
	case n.Used < 0:
		rest = "unknown"
	case n.State == "usable":
		rest = "free"
	case n.State == "cordoned":
		rest = "drained"
	}
	p.capacity[metric.CapacityState.Index("used")] += float64(used)
	p.capacity[metric.CapacityState.Index(rest)] += float64(n.GPUs - used)
	p.capacity[metric.CapacityState.Index("down")] += float64(n.Sick)
	for resource, a := range n.Resources {
		sum := p.resources[resource]
		p.resources[resource] = Amount{sum.Allocatable + a.Allocatable, sum.Requested + a.Requested}
	}
	if n.Free != nil && p.free == nil {
		p.free = make([]float64, len(metric.FreeCause.Values))
	}
	for cause, free := range n.Free {
		p.free[metric.FreeCause.Index(cause)] += float64(free)
	}
}
