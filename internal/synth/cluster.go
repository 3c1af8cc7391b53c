package synth

import (
	"math"
	"time"

	"gpuvigil/collector"
)

// queueName is the one queue of the synthetic cluster, with its scheduler's.
const queueName = "slurm/batch"

// cluster is a scheduler's queue. A few GPUs of several nodes are always free, and a whole
// node for some minutes at a time.
type cluster struct {
	backlog time.Duration // for how much longer than usual jobs wait
	tainted int           // GPUs on a node that takes no jobs
	waiting drift
	first   time.Time // since when the job waits that is first in line
	idle    time.Time // until then a few GPUs are free
	few     int       // that are free
}

// snapshot is what the one agent of the cluster sees.
func (c *cluster) snapshot(n *Node) *collector.Snapshot {
	if c.waiting.back == 0 {
		c.waiting = drift{spread: 0.4, back: 7200}
	}
	busy := math.Exp(c.waiting.step(n.rng, n.cfg.Step.Seconds())) * course(n.now)
	p90 := c.backlog + time.Duration(40*busy*float64(time.Minute))
	jobs := int(poisson(n.rng, 30*busy+20*c.backlog.Hours()))
	if c.first.IsZero() || c.tainted == 0 && n.rng.IntN(12) == 0 { // another one is first
		c.first = n.now.Add(-p90)
	}
	if n.now.After(c.idle) {
		whole := c.few < nodeSize && n.rng.IntN(5) == 0
		if c.few = n.rng.IntN(nodeSize - 1); whole {
			c.few = nodeSize
		}
		c.idle = n.now.Add(time.Duration(1+n.rng.IntN(6)) * time.Minute)
	}
	q := collector.Queue{Scheduler: "slurm", Name: "batch", At: n.now, Jobs: jobs, P90: p90, Longest: p90 + p90/2}
	w := collector.Waiting{Jobs: max(1, jobs/10), GPUs: 8, PerNode: 8, Model: "H100", Since: c.first}
	if c.few > 0 {
		w.Free = append(w.Free, collector.Free{Cause: "fragmented", GPUs: c.few, Nodes: (c.few + 3) / 4, Node: "gpu-12"})
	}
	if c.tainted > 0 {
		w.Free = append(w.Free, collector.Free{Cause: "tainted", GPUs: c.tainted, Nodes: 1, Node: "gpu-40"})
	}
	if len(w.Free) > 0 {
		q.Waiting = []collector.Waiting{w}
	}
	n.last = &collector.Snapshot{Time: n.now, Simulated: true, Queues: []collector.Queue{q}}
	return n.last
}
