package collector

import "time"

// Queue is where jobs or pods wait for GPUs, as the one role of a cluster sees it. The
// agent of a node has none.
type Queue struct {
	Scheduler, Name string
	At              time.Time // of the scheduler's answer

	Jobs         int           // that wait for GPUs and nothing else
	P90, Longest time.Duration // for how long they have waited; 0 if none does

	Waiting []Waiting // by what they ask for, the longest wait first; those that nothing free would suit are left out
}

// Waiting is jobs or pods of a queue that ask for the same.
type Waiting struct {
	Jobs, GPUs int       // GPUs of each
	PerNode    int       // that each wants on one node
	Model      string    // of the GPUs; empty if any will do, or it is not told
	Since      time.Time // since when the first of them could have run

	Free  []Free // GPUs that are free and right for them, most first
	Other []Free // GPUs that are free and not for them, most first
}

// Free is free GPUs that have the same reason why they are not used.
type Free struct {
	Cause string // one of metric.FreeCause, a state of metric.NodeState, or planned: kept for a job that comes first
	GPUs  int
	Nodes int
	Node  string // the one with the most of them
}

// Matching is how many GPUs are free and right for the jobs, whether or not they can use
// them.
func (w *Waiting) Matching() int {
	n := 0
	for _, f := range w.Free {
		n += f.GPUs
	}
	return n
}
