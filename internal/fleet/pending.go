package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
)

// Pending is a job or pod and what it waits for. Tasks of an array that are alike are one.
type Pending struct {
	Job              string // kind:id, as its owner is called once it runs
	Scheduler, Queue string
	Account, Team    string
	State            string // of metric.QueueState
	Told             string // why it is pending, in the scheduler's own words; they are untrusted
	Asked            time.Time
	Jobs             int // this one, or the tasks of an array
	Waits            collector.Waiting
	Sizes            []Size
	Before           Before
	Help             string // what would help
	Blocked          []string
	Other            string // what is free and not for it
}

// Size is how many nodes have so many GPUs free.
type Size struct{ GPUs, Nodes int }

// Before is those of the queue that have waited for longer.
type Before struct{ Jobs, GPUs int }

// Pending returns what of the schedulers' work has no GPUs yet and is called job: kind:id,
// the id alone, or the id without what it is of. An empty job is all of them. The longest wait comes first.
// What has its GPUs is returned, too, if it is asked for. answered is how many of the schedulers have answered.
func (f *Fleet) Pending(job string) (found []Pending, answered int) {
	for _, s := range f.cfg.Load().Schedulers {
		c := s.Latest()
		if c == nil {
			continue
		}
		answered++
		for i := range c.Work {
			w := &c.Work[i]
			if w.Name == "" || w.Jobs <= 0 || job == "" && w.running() || job != "" && !w.called(job) {
				continue
			}
			found = append(found, c.pending(s.Name, w))
		}
	}
	slices.SortStableFunc(found, func(a, b Pending) int {
		return cmp.Or(a.Asked.Compare(b.Asked), strings.Compare(a.Job, b.Job), strings.Compare(a.State, b.State))
	})
	return found, answered
}

func (w *Work) running() bool { return w.State == "running" || w.State == "starting" }

// called reports whether people mean the work by the name.
func (w *Work) called(name string) bool {
	_, id, _ := strings.Cut(w.Name, ":")
	for _, own := range []string{w.Name, id, w.Of} {
		base, _, _ := strings.Cut(own, "_[")
		for _, n := range []string{own, base} {
			if _, short, _ := strings.Cut(n, "/"); n != "" && (n == name || short == name) {
				return true
			}
		}
	}
	return false
}

func (c *Cluster) pending(scheduler string, w *Work) Pending {
	p := Pending{
		Job: w.Name, Scheduler: cmp.Or(w.Scheduler, scheduler), Queue: w.Queue, Account: w.Account, Team: w.Team, State: w.State, Told: w.Told,
		Asked: cmp.Or(w.Since, w.Asked), Jobs: w.Jobs,
		Waits: collector.Waiting{Jobs: w.Jobs, GPUs: w.GPUs, PerNode: w.PerNode, Model: w.Model, Since: w.Since, Free: w.suits(), Other: w.Other},
	}
	if w.State == "waiting" || w.State == "unavailable" {
		p.Sizes = c.sizes(w)
		p.Blocked, p.Other = detect.WaitingWords(&p.Waits)
	}
	if w.State == "waiting" {
		p.Before = c.before(w)
	}
	p.Help = detect.WaitingHelp(w.State, &p.Waits, p.Before.Jobs)
	return p
}

// sizes are the free GPUs of the nodes that the work may run on, as far as that is told.
func (c *Cluster) sizes(w *Work) []Size {
	ofQueue := slices.ContainsFunc(c.Nodes, func(n Node) bool { return slices.Contains(n.Pools, w.Queue) })
	nodes := map[int]int{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.State != "usable" || n.Used < 0 || n.Used >= n.GPUs || ofQueue && !slices.Contains(n.Pools, w.Queue) || w.Model != "" && n.Model != "" && n.Model != w.Model {
			continue
		}
		nodes[n.GPUs-n.Used]++
	}
	var out []Size
	for gpus, n := range nodes {
		out = append(out, Size{gpus, n})
	}
	slices.SortFunc(out, func(a, b Size) int { return cmp.Compare(b.GPUs, a.GPUs) })
	return out
}

// before sums up those of the same queue that have waited longer.
func (c *Cluster) before(w *Work) (b Before) {
	for i := range c.Work {
		o := &c.Work[i]
		if o.State == "waiting" && o.Scheduler == w.Scheduler && o.Queue == w.Queue && !o.Since.IsZero() && o.Since.Before(w.Since) {
			b.Jobs += o.Jobs
			b.GPUs += o.Jobs * o.GPUs
		}
	}
	return b
}
