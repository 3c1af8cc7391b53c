// Package slurm reads what Slurm says of its jobs and nodes: the output of its
// commands and the answers of slurmrestd, old and new. Only the one cluster role uses
// it: an agent never asks Slurm's controller.
package slurm

import (
	"time"

	"gpuvigil/internal/text"
)

// Unknown is a number that Slurm did not tell.
const Unknown = -1

// Unlimited is a time limit that there is not.
const Unlimited = time.Duration(1<<63 - 1)

const (
	maxName = 128       // runes of what others named
	maxGPUs = 1_000_000 // more are no number of GPUs
)

// Job is a job, a task of an array, a part of a heterogeneous job, or, while it is
// pending, all tasks of an array that have not been started.
type Job struct {
	ID    string // the number that cgroups have, 4711
	Array string // as squeue shows it, 4700_11, 4700_[1-9%2] or 4700+1; empty if it is the same as ID
	Tasks int    // how many jobs this is: 1, or the tasks of a pending array
	Limit int    // how many tasks of the array may run at once; 0: as many as fit

	Name, User, Account, QOS string
	Partitions               []string // one, or while it is pending all in which it may run
	UID                      int      // Unknown if it is not told

	State  State
	Reason string // why it is pending

	GPUs  int    // of one task, as Slurm counts them: a MIG instance is one; Unknown if it is not told
	Type  string // of GPU that it asks for; empty: any, several, or not told
	Nodes int    // Unknown if it is not told

	Submitted, Eligible, Started time.Time     // zero: not told
	TimeLimit                    time.Duration // 0: not told
	Elapsed                      time.Duration
	Memory                       int64 // bytes asked for, of a node or a CPU as Slurm has it; Unknown if it is not told

	Places []Place // of a running job, where it was told
}

// Place is what a job has of some of its nodes.
type Place struct {
	Nodes string // as Slurm writes them: node-[001-002]
	GPUs  int    // of each of them
	Index []int  // Slurm's indexes, which need not be the driver's
}

// Node is a compute node.
type Node struct {
	Name       string
	Partitions []string
	State      NodeState
	GPUs, Used int    // Unknown if they are not told
	Type       string // of its GPUs; empty: several, or not told
	Full       bool   // all its CPUs are given to jobs
	Planned    bool   // what is free on it is kept for a job that comes first
}

// clean makes a name that others chose safe to show. Slurm's words for nothing are
// nothing.
func clean(s string) string {
	switch s = text.Clean(s, maxName); s {
	case "(null)", "N/A", "None", "n/a", "(None)":
		return ""
	}
	return s
}
