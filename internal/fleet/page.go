package fleet

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/internal/metric"
)

// Bounds of what a page can have: each is a series for as long as it is there.
const (
	maxJobs    = 20_000
	maxQueues  = 256
	maxWaiting = 1_000
	maxPools   = 128
	maxScalers = 500
)

// The kinds of things that are counted where there are too many of them.
const (
	cappedJob = iota
	cappedQueue
	cappedWaiting
	cappedPool
	cappedScaler
	cappedFinding
)

var cappedKinds = [...]string{"job", "queue", "waiting", "pool", "autoscaler", "finding"}

// Page returns what a scrape is given now.
func (f *Fleet) Page(now time.Time) []byte { return f.page(now) }

// page writes what is known as Prometheus reads it.
func (f *Fleet) page(now time.Time) []byte {
	p := page{samples: map[*metric.Def][]string{}}
	cfg := f.cfg.Load()
	follows := cfg.Follows != nil && cfg.Follows()
	for _, s := range cfg.Schedulers {
		p.health(s, now)
		if c := s.Latest(); c != nil && !cfg.Aside && !follows {
			f.jobs(&p, c.Jobs)
			f.queues(&p, s.Name, c)
			f.waiting(&p, s.Name, c)
			f.pools(&p, s.Name, c)
			f.scalers(&p, c.Scalers)
		}
	}
	if !follows {
		f.findings(&p)
	}
	f.looks(&p)
	if at := f.Watched(); !at.IsZero() {
		p.add(metric.Heartbeat, float64(at.Unix()))
	}
	p.add(metric.ConfigReloadSuccess, number(!f.outdated.Load()))
	p.add(metric.ConfigReloadTime, float64(f.loaded.Load()))
	for i, kind := range cappedKinds {
		p.add(metric.SeriesCapped, float64(f.capped[i].Load()), kind)
	}
	for _, rows := range f.cfg.Load().Rows {
		rows(p.add)
	}
	return p.text()
}

func (p *page) health(s Scheduler, now time.Time) {
	h := s.Health()
	p.add(metric.SchedulerUp, number(h.Up), s.Name)
	if !h.Last.IsZero() {
		p.add(metric.SchedulerAge, max(0, now.Sub(h.Last)).Seconds(), s.Name)
	}
	p.add(metric.SchedulerCalls, float64(h.Good), s.Name, "answered")
	p.add(metric.SchedulerCalls, float64(h.Failed), s.Name, "failed")
	p.add(metric.SchedulerCalls, float64(h.Absent), s.Name, "absent")
	p.add(metric.SchedulerUnreadable, float64(h.Unreadable), s.Name)
	if s.Readers == nil {
		return
	}
	for _, r := range s.Readers() {
		for _, state := range metric.ReaderStates.Values {
			p.add(metric.ReaderState, number(state == string(r.State)), r.Kind.String(), state)
		}
		p.add(metric.ReaderObjects, float64(r.Objects), r.Kind.String())
		p.add(metric.ReaderBytes, float64(r.Bytes), r.Kind.String())
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// most returns how many of n are shown, and counts the rest. Of too many the first are
// shown, so that a series does not come and go.
func (f *Fleet) most(kind, n, limit int) int {
	if n > limit {
		f.capped[kind].Add(uint64(n - limit))
	}
	return min(n, limit)
}

// jobs has the jobs that have GPUs: only those have processes to join with.
func (f *Fleet) jobs(p *page, jobs []Job) {
	for _, j := range jobs[:f.most(cappedJob, len(jobs), maxJobs)] {
		p.add(metric.JobInfo, 1, j.OwnerKind, j.Owner, j.Array, j.User, j.Account, j.Partition, j.QOS, j.Name, j.Team)
		p.add(metric.JobGPUs, float64(j.GPUs), j.OwnerKind, j.Owner)
	}
}

func (f *Fleet) queues(p *page, scheduler string, c *Cluster) {
	all := sumQueues(scheduler, c)
	names := slices.SortedFunc(maps.Keys(all), compareQueues)
	for _, n := range names[:f.most(cappedQueue, len(names), maxQueues)] {
		q := all[n]
		if q.work {
			for i, state := range metric.QueueState.Values {
				p.add(metric.QueueJobs, q.jobs[i], n.scheduler, n.queue, state)
				p.add(metric.QueueGPUs, q.gpus[i], n.scheduler, n.queue, state)
			}
		}
		if len(q.waits) > 0 {
			p.add(metric.QueueLongest, q.longest().Seconds(), n.scheduler, n.queue)
			p.add(metric.QueueTypical, q.typical().Seconds(), n.scheduler, n.queue)
		}
		if q.own == nil {
			continue
		}
		for i, v := range []int{q.own.Pending, q.own.Inadmissible, q.own.Inqueue, q.own.Admitted} {
			p.told(metric.QueueWorkloads, v, n.scheduler, n.queue, metric.WorkloadState.Values[i])
		}
		for i, v := range []int{q.own.Limit, q.own.Used} {
			p.told(metric.QueueQuota, v, n.scheduler, n.queue, metric.QuotaState.Values[i])
		}
	}
}

// waiting is who waits, by queue, account, team and reason.
func (f *Fleet) waiting(p *page, scheduler string, c *Cluster) {
	type key struct{ scheduler, queue, account, team, reason string }
	type sum struct{ jobs, gpus int }
	all := map[key]sum{}
	for i := range c.Work {
		if w := &c.Work[i]; w.State == "waiting" && w.Jobs > 0 {
			k := key{cmp.Or(w.Scheduler, scheduler), w.Queue, w.Account, w.Team, w.Reason}
			all[k] = sum{all[k].jobs + w.Jobs, all[k].gpus + w.Jobs*w.GPUs}
		}
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.scheduler, b.scheduler), cmp.Compare(a.queue, b.queue), cmp.Compare(a.account, b.account), cmp.Compare(a.team, b.team), cmp.Compare(a.reason, b.reason))
	})
	for _, k := range keys[:f.most(cappedWaiting, len(keys), maxWaiting)] {
		p.add(metric.WaitingJobs, float64(all[k].jobs), k.scheduler, k.queue, k.account, k.team, k.reason)
		p.add(metric.WaitingGPUs, float64(all[k].gpus), k.scheduler, k.queue, k.account, k.team, k.reason)
	}
}

func (f *Fleet) pools(p *page, scheduler string, c *Cluster) {
	all := sumPools(c.Nodes)
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names[:f.most(cappedPool, len(names), maxPools)] {
		pool := all[name]
		for _, model := range slices.Sorted(maps.Keys(pool.models)) {
			p.add(metric.PoolInfo, 1, scheduler, name, model)
		}
		for i, state := range metric.CapacityState.Values {
			p.add(metric.PoolCapacity, pool.capacity[i], scheduler, name, state)
		}
		for i, state := range metric.NodeState.Values {
			p.add(metric.PoolNodes, pool.nodes[i], scheduler, name, state)
		}
		if pool.free != nil {
			for i, cause := range metric.FreeCause.Values {
				p.add(metric.PoolFree, pool.free[i], scheduler, name, cause)
			}
		}
		for _, resource := range slices.Sorted(maps.Keys(pool.resources)) {
			r := pool.resources[resource]
			p.add(metric.ResourceAllocatable, float64(r.Allocatable), scheduler, name, resource)
			p.add(metric.ResourceRequested, float64(r.Requested), scheduler, name, resource)
		}
	}
}

func (f *Fleet) scalers(p *page, scalers []Scaler) {
	for i := range scalers[:f.most(cappedScaler, len(scalers), maxScalers)] {
		s := &scalers[i]
		p.add(metric.ScalerInfo, 1, s.Kind, s.Namespace, s.Name, s.TargetKind, s.Target, s.Metrics)
		for i, v := range []int{s.Current, s.Desired, s.Min, s.Max} {
			p.told(metric.ScalerReplicas, v, s.Kind, s.Namespace, s.Name, metric.ReplicaState.Values[i])
		}
		for i, v := range []bool{s.Blind, s.AtMaximum, s.Unreadable, s.Paused} {
			p.add(metric.ScalerConditions, number(v), s.Kind, s.Namespace, s.Name, metric.ScalerCondition.Values[i])
		}
	}
}

// page collects samples by their row.
type page struct {
	rows    []*metric.Def
	samples map[*metric.Def][]string
}

// told adds a number unless it is not known.
func (p *page) told(d *metric.Def, v int, labels ...string) {
	if v >= 0 {
		p.add(d, float64(v), labels...)
	}
}

func (p *page) add(d *metric.Def, v float64, labels ...string) {
	if p.samples[d] == nil {
		p.rows = append(p.rows, d)
	}
	p.samples[d] = append(p.samples[d], d.Series(labels...)+" "+strconv.FormatFloat(v, 'g', -1, 64)+"\n")
}

var helpEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

func (p *page) text() []byte {
	var b bytes.Buffer
	for _, d := range p.rows {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", d.Name, helpEscaper.Replace(d.Help), d.Name, d.Kind)
		for _, s := range p.samples[d] {
			b.WriteString(s)
		}
	}
	return b.Bytes()
}
