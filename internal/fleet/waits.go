package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gpuvigil/collector"
)

const (
	maxKinds   = 16 // of jobs that wait in one queue
	percentile = 0.9
)

// queuesOf are the queues of a cluster as detectors see them: who waits, and what is free
// for them.
func queuesOf(scheduler string, c *Cluster) []collector.Queue {
	type key struct {
		gpus, perNode int
		model         string
	}
	all := sumQueues(scheduler, c)
	kinds := map[queueName]map[key]*collector.Waiting{}
	for i := range c.Work {
		w := &c.Work[i]
		free := w.suits()
		if w.Jobs <= 0 || w.Since.IsZero() || len(free) == 0 && w.State != "waiting" {
			continue
		}
		name := queueName{cmp.Or(w.Scheduler, scheduler), w.Queue}
		if kinds[name] == nil {
			kinds[name] = map[key]*collector.Waiting{}
		}
		k := key{w.GPUs, w.PerNode, w.Model}
		of := kinds[name][k]
		if of == nil {
			of = &collector.Waiting{GPUs: w.GPUs, PerNode: w.PerNode, Model: w.Model}
			kinds[name][k] = of
		}
		of.Jobs += w.Jobs
		if of.Since.IsZero() || w.Since.Before(of.Since) {
			of.Since, of.Free, of.Other = w.Since, free, w.Other
		}
	}
	var out []collector.Queue
	names := slices.SortedFunc(maps.Keys(all), compareQueues)
	for _, n := range names[:min(len(names), maxQueues)] {
		q := collector.Queue{Scheduler: n.scheduler, Name: n.queue, At: c.Time}
		for _, w := range all[n].waits {
			q.Jobs += w.jobs
		}
		if q.Jobs > 0 {
			q.P90, q.Longest = all[n].quantile(percentile), all[n].longest()
		}
		for _, of := range kinds[n] {
			if len(of.Free) > 0 {
				q.Waiting = append(q.Waiting, *of)
			}
		}
		slices.SortFunc(q.Waiting, func(a, b collector.Waiting) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Model, b.Model), cmp.Compare(a.PerNode, b.PerNode))
		})
		q.Waiting = q.Waiting[:min(len(q.Waiting), maxKinds)]
		out = append(out, q)
	}
	return out
}

// suits is what is free for the work. What waits for something else than GPUs waits for
// those alone that could be made usable for it: the rest is no fault of the cluster's.
func (w *Work) suits() []collector.Free {
	switch w.State {
	case "waiting":
		return w.Free
	case "unavailable":
		return slices.DeleteFunc(slices.Clone(w.Free), func(f collector.Free) bool {
			return f.Cause == topology.String() || f.Cause == fits.String()
		})
	}
	return nil
}

// frees adds up free GPUs by why they are not used.
type frees map[string]*collector.Free

func (f frees) add(cause, node string, gpus int, most map[string]int) {
	of := f[cause]
	if of == nil {
		of = &collector.Free{Cause: cause}
		f[cause] = of
	}
	of.GPUs += gpus
	of.Nodes++
	if gpus > most[cause] {
		of.Node, most[cause] = node, gpus
	}
}

func (f frees) list() []collector.Free {
	var out []collector.Free
	for _, of := range f {
		out = append(out, *of)
	}
	slices.SortFunc(out, func(a, b collector.Free) int {
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(a.Cause, b.Cause))
	})
	return out
}

// split sums up free GPUs: those that are right for somebody, and the others.
type split struct {
	right, other         frees
	mostRight, mostOther map[string]int
}

func newSplit() *split {
	return &split{frees{}, frees{}, map[string]int{}, map[string]int{}}
}

func (s *split) add(right bool, cause, node string, gpus int) {
	if gpus <= 0 {
		return
	}
	if right {
		s.right.add(cause, node, gpus, s.mostRight)
		return
	}
	s.other.add(cause, node, gpus, s.mostOther)
}

// quantile is the wait that so large a share of the jobs does not exceed.
func (q *queue) quantile(share float64) time.Duration {
	sorted := slices.SortedFunc(slices.Values(q.waits), byLength)
	total, seen := 0, 0
	for _, w := range sorted {
		total += w.jobs
	}
	for _, w := range sorted {
		if seen += w.jobs; float64(seen) >= share*float64(total) {
			return w.length
		}
	}
	return 0
}
