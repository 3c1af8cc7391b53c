package fleet

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"gpuvigil/collector/kube"
	"gpuvigil/collector/owner"
)

// What schedulers are called whose queues Kubernetes has.
const (
	NameKubernetes = "kubernetes"
	NameKueue      = "kueue"
	NameVolcano    = "volcano"
)

// refresh is how often the answer is made anew at most, however often it is asked for.
const refresh = 10 * time.Second

// KubernetesConfig says what is read.
type KubernetesConfig struct {
	Client     *kube.Client
	PoolLabels []string // of nodes, the first that a node has names its pool; nil: those of the known clouds
	Owners     *owner.Jobs
	Keep       time.Duration // how long what was read stands while it cannot be read
	KueuePage  string        // URL of Kueue's metrics; empty: it is not read
	Interval   time.Duration // of that page
	Timeout    time.Duration // of that page

	Kueue, Volcano, Ray, Autoscalers, Claims bool // read their kinds, too

	Log *slog.Logger
}

// Kubernetes keeps what the API server says.
type Kubernetes struct {
	cfg     KubernetesConfig
	readers []kube.Reader
	page    *kube.KueuePage

	pods          *kube.Mirror[kube.Pod]
	nodes         *kube.Mirror[kube.Node]
	claims        *kube.Mirror[kube.Claim]
	slices        *kube.Mirror[kube.Slice]
	workloads     *kube.Mirror[kube.Workload]
	clusterQueues *kube.Mirror[kube.Queue]
	localQueues   *kube.Mirror[kube.LocalQueue]
	groups        *kube.Mirror[kube.PodGroup]
	volcanoQueues *kube.Mirror[kube.Queue]
	rayClusters   *kube.Mirror[kube.RayCluster]
	rayJobs       *kube.Mirror[kube.RayJob]
	hpas          *kube.Mirror[kube.Autoscaler]
	scaledObjects *kube.Mirror[kube.Autoscaler]

	mu   sync.Mutex
	last *Cluster
}

// NewKubernetes returns what reads a cluster. It asks nothing until Run.
func NewKubernetes(cfg KubernetesConfig) *Kubernetes {
	k := &Kubernetes{cfg: cfg}
	k.pods = mirror(k, kube.Pods, kube.DecodePod)
	k.nodes = mirror(k, kube.Nodes, kube.DecodeNode)
	if cfg.Claims {
		k.claims = mirror(k, kube.ResourceClaims, kube.DecodeClaim)
		k.slices = mirror(k, kube.ResourceSlices, kube.DecodeSlice)
	}
	if cfg.Kueue {
		k.workloads = mirror(k, kube.KueueWorkloads, kube.DecodeWorkload)
		k.clusterQueues = mirror(k, kube.ClusterQueues, kube.DecodeClusterQueue)
		k.localQueues = mirror(k, kube.LocalQueues, kube.DecodeLocalQueue)
	}
	if cfg.Volcano {
		k.groups = mirror(k, kube.PodGroups, kube.DecodePodGroup)
		k.volcanoQueues = mirror(k, kube.VolcanoQueues, kube.DecodeVolcanoQueue)
	}
	if cfg.Ray {
		k.rayClusters = mirror(k, kube.RayClusters, kube.DecodeRayCluster)
		k.rayJobs = mirror(k, kube.RayJobs, kube.DecodeRayJob)
	}
	if cfg.Autoscalers {
		k.hpas = mirror(k, kube.HPAs, kube.DecodeHPA)
		k.scaledObjects = mirror(k, kube.ScaledObjects, kube.DecodeScaledObject)
	}
	if cfg.KueuePage != "" {
		k.page = kube.NewKueuePage(cfg.KueuePage, cfg.Interval, cfg.Timeout, cfg.Log)
		k.readers = append(k.readers, k.page)
	}
	return k
}

func mirror[T kube.Object](k *Kubernetes, kind kube.Kind, decode func(json.RawMessage) (T, error)) *kube.Mirror[T] {
	m := kube.NewMirror(k.cfg.Client, kind, decode, k.cfg.Log)
	k.readers = append(k.readers, m)
	return m
}

// all is what a mirror has; nothing of one that is switched off, and nothing that is
// too old.
func all[T kube.Object](m *kube.Mirror[T], now time.Time, keep time.Duration) []*T {
	if m == nil || stale(m.Health(), now, keep) {
		return nil
	}
	return m.All()
}

func stale(h kube.Health, now time.Time, keep time.Duration) bool {
	return h.Synced.IsZero() || now.Sub(h.Synced) > keep
}

// Kinds are the kinds that are read: what a role must allow.
func (k *Kubernetes) Kinds() []kube.Kind {
	var kinds []kube.Kind
	for _, r := range k.readers {
		if kind := r.Health().Kind; len(kind.Paths) > 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Run reads until ctx ends.
func (k *Kubernetes) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, r := range k.readers {
		group.Go(func() { r.Run(ctx) })
	}
	group.Wait()
}

// Scheduler returns the cluster as a scheduler.
func (k *Kubernetes) Scheduler() Scheduler {
	return Scheduler{Name: NameKubernetes, Latest: k.latest, Health: k.health, Readers: k.readings}
}

// readings is how well each kind is read.
func (k *Kubernetes) readings() []kube.Health {
	var out []kube.Health
	for _, r := range k.readers {
		out = append(out, r.Health())
	}
	return out
}

// health is that of pods and nodes, without which nothing is known. Calls are those of
// all kinds.
func (k *Kubernetes) health() Health {
	var h Health
	for _, r := range k.readers {
		one := r.Health()
		h.Good += one.Good
		h.Failed += one.Failed
		h.Absent += one.Absent
		h.Unreadable += one.Skipped
	}
	pods, nodes := k.pods.Health(), k.nodes.Health()
	h.Up = pods.State == kube.Up && nodes.State == kube.Up
	h.Last = pods.Synced
	if nodes.Synced.Before(h.Last) {
		h.Last = nodes.Synced
	}
	return h
}

// latest makes the answer, or returns the last one while it is fresh; nil while pods or
// nodes are not known.
func (k *Kubernetes) latest() *Cluster {
	now := time.Now()
	if stale(k.pods.Health(), now, k.cfg.Keep) || stale(k.nodes.Health(), now, k.cfg.Keep) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil || now.Sub(k.last.Time) >= refresh || now.Before(k.last.Time) {
		k.last = k.objects(now).cluster()
	}
	return k.last
}

func (k *Kubernetes) objects(now time.Time) *objects {
	keep := k.cfg.Keep
	o := &objects{
		now: now, owners: k.cfg.Owners, poolLabels: k.cfg.PoolLabels,
		pods: all(k.pods, now, keep), nodes: all(k.nodes, now, keep), claims: all(k.claims, now, keep), slices: all(k.slices, now, keep),
		workloads: all(k.workloads, now, keep), clusterQueues: all(k.clusterQueues, now, keep), localQueues: all(k.localQueues, now, keep),
		groups: all(k.groups, now, keep), volcanoQueues: all(k.volcanoQueues, now, keep),
		rayClusters: all(k.rayClusters, now, keep), rayJobs: all(k.rayJobs, now, keep),
		hpas: all(k.hpas, now, keep), scaledObjects: all(k.scaledObjects, now, keep),
	}
	if k.page != nil && !stale(k.page.Health(), now, keep) {
		o.page = k.page.All()
	}
	return o
}
