package fleet

import (
	"fmt"
	"slices"

	"gpuvigil/collector"
	"gpuvigil/collector/slurm"
)

// planned is why GPUs are free that the scheduler keeps for a job that comes first.
const planned = "planned"

// slurmFree finds the free GPUs of an answer for its jobs, once for those alike.
type slurmFree struct {
	nodes []slurm.Node
	known map[string]*split
}

func freeOf(a *slurm.Answer) *slurmFree {
	f := &slurmFree{known: map[string]*split{}}
	for _, n := range a.Nodes {
		if n.GPUs > 0 && n.Used >= 0 && n.Used < n.GPUs {
			f.nodes = append(f.nodes, n)
		}
	}
	return f
}

// of returns the free GPUs of the job's partitions: those that are right for it, and
// those that are not.
func (f *slurmFree) of(j *slurm.Job) (right, other []collector.Free) {
	shape := fmt.Sprintf("%q %q %d", j.Partitions, j.Type, perNode(j))
	s := f.known[shape]
	if s == nil {
		s = newSplit()
		for i := range f.nodes {
			n := &f.nodes[i]
			if slices.ContainsFunc(n.Partitions, func(p string) bool { return slices.Contains(j.Partitions, p) }) {
				right, cause := slurmCause(j, n)
				s.add(right, cause, n.Name, n.GPUs-n.Used)
			}
		}
		f.known[shape] = s
	}
	return s.right.list(), s.other.list()
}

// slurmCause is why the job does not run on the node's free GPUs. Slurm does not tell
// what else the job asks for: only a node without any CPU left is known to be of no use.
func slurmCause(j *slurm.Job, n *slurm.Node) (right bool, cause string) {
	switch {
	case n.State != slurm.NodeUsable:
		return false, string(n.State)
	case j.Type != "" && n.Type != "" && j.Type != n.Type:
		return false, wrongModel.String()
	case n.Planned:
		return false, planned
	case n.Full:
		return true, noCPU.String()
	case n.GPUs-n.Used < perNode(j):
		return true, fragmented.String()
	}
	return true, fits.String()
}

// perNode is how many GPUs the job wants on each of its nodes.
func perNode(j *slurm.Job) int {
	nodes := max(1, j.Nodes)
	return (j.GPUs + nodes - 1) / nodes
}
