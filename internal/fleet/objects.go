package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gpuvigil/collector/kube"
	"gpuvigil/collector/owner"
)

// objects is what the API server had at one time. Of a kind that cannot be read there
// is nothing.
type objects struct {
	now        time.Time
	owners     *owner.Jobs
	poolLabels []string

	pods          []*kube.Pod
	nodes         []*kube.Node
	claims        []*kube.Claim
	slices        []*kube.Slice
	workloads     []*kube.Workload
	clusterQueues []*kube.Queue
	localQueues   []*kube.LocalQueue
	groups        []*kube.PodGroup
	volcanoQueues []*kube.Queue
	rayClusters   []*kube.RayCluster
	rayJobs       []*kube.RayJob
	hpas          []*kube.Autoscaler
	scaledObjects []*kube.Autoscaler
	page          []kube.Queue // Kueue's, of its page of metrics

	claim    map[name]*kube.Claim
	workload map[name]*kube.Workload
	group    map[name]*kube.PodGroup
	grouped  map[name]bool // groups that have pods
	admitted map[name]bool // pods that Kueue has made a workload of
	wants    map[*kube.Pod]*want
}

// name is what an object is called.
type name struct{ namespace, name string }

// cluster makes the answer.
func (o *objects) cluster() *Cluster {
	o.index()
	c := &Cluster{Time: o.now, Queues: o.queues(), Scalers: o.scalers()}
	places := o.places()
	wanted := o.wanted()
	c.Nodes = nodesOf(places, wanted)
	c.Ranks = o.ranks()
	c.Work = slices.Concat(o.podWork(places), o.kueueWork(), o.volcanoWork(places), o.rayWork())
	return c
}

func (o *objects) index() {
	o.claim, o.workload, o.group = map[name]*kube.Claim{}, map[name]*kube.Workload{}, map[name]*kube.PodGroup{}
	o.grouped, o.admitted = map[name]bool{}, map[name]bool{}
	for _, c := range o.claims {
		o.claim[name{c.Namespace, c.Name}] = c
	}
	for _, w := range o.workloads {
		o.workload[name{w.Namespace, w.Name}] = w
		if w.OwnerKind == "Pod" {
			o.admitted[name{w.Namespace, w.Owner}] = true
		}
	}
	for _, g := range o.groups {
		o.group[name{g.Namespace, g.Name}] = g
	}
	for _, p := range o.pods {
		if g := p.Annotations[kube.AnnotationGroup]; g != "" {
			o.grouped[name{p.Namespace, g}] = true
		}
	}
}

// claimed is the resource that stands for what claims give.
const claimed = kube.GPUDriver

// asks is what the pod asks for, by resource; nil if that is no GPU.
func (o *objects) asks(p *kube.Pod) map[string]int {
	asks := p.Requests.GPUs
	for _, claim := range p.Claims {
		c := o.claim[name{p.Namespace, claim}]
		if c == nil || c.Asks == 0 {
			continue
		}
		if asks[claimed] == 0 {
			asks = maps.Clone(asks)
			if asks == nil {
				asks = map[string]int{}
			}
		}
		asks[claimed] += c.Asks
	}
	return asks
}

func sum(devices map[string]int) int {
	n := 0
	for _, d := range devices {
		n += d
	}
	return n
}

// queues are the queues that count for themselves. What Kueue's page tells of one wins:
// it splits what waits.
func (o *objects) queues() []Queue {
	var out []Queue
	add := func(scheduler string, q *kube.Queue) {
		out = append(out, Queue{Scheduler: scheduler, Name: q.Name, Pending: q.Pending, Inadmissible: q.Inadmissible,
			Inqueue: q.Inqueue, Admitted: q.Admitted, Limit: q.Limit, Used: q.Used})
	}
	told := map[string]*kube.Queue{}
	for i := range o.page {
		told[o.page[i].Name] = &o.page[i]
	}
	for _, q := range o.clusterQueues {
		if p := told[q.Name]; p != nil {
			both := *q
			both.Inadmissible = p.Inadmissible
			q = &both
			delete(told, p.Name)
		}
		add(NameKueue, q)
	}
	for _, q := range told {
		add(NameKueue, q)
	}
	for _, q := range o.volcanoQueues {
		add(NameVolcano, q)
	}
	slices.SortFunc(out, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.Scheduler, b.Scheduler), cmp.Compare(a.Name, b.Name))
	})
	return out
}
