// Package kube reads what the API server of a Kubernetes cluster says, with client-go's
// rest for the connection and small structs of its own for the objects: it lists and
// watches, changes nothing, and keeps of each object only what is asked for.
package kube

import "time"

// The bounds of what is read. etcd takes no object of more than 1.5 MiB by default.
const (
	maxObject  = 2 << 20   // bytes of one object
	maxPage    = 64 << 20  // bytes of one page of a list
	maxError   = 64 << 10  // bytes of an answer that is an error
	maxObjects = 50_000    // of one kind that are kept
	pageSize   = 500       // objects of a page that are asked for
	maxPages   = 2 * 1_000 // of one list: a server that never ends is not followed
	maxName    = 253       // runes of a name
)

// The times of the reader. None is random: there is one role in a cluster, and agents
// have begun at different times.
const (
	firstWait   = time.Second
	longestWait = time.Minute
	// missingWait is between two tries at what is not there or not allowed: somebody may
	// install it, or allow it.
	missingWait = 5 * time.Minute
	maxRetry    = 5 * time.Minute // that a server can ask for
	watchFor    = 5 * time.Minute // after which a watch is opened anew
	watchGrace  = 30 * time.Second
)

// Kind is what is asked for.
type Kind struct {
	Name   string   // plural, as roles name it: pods
	Group  string   // of the API, empty for the core's
	Paths  []string // below the server's address, the newest version first
	Fields string   // field selector, or empty
	Meta   bool     // only the objects' metadata is asked for
	Cached bool     // the server's cache is good enough: many ask
}

// The kinds that are read. A role needs get, list and watch of them.
var (
	Pods  = Kind{Name: "pods", Paths: []string{"api/v1/pods"}}
	Nodes = Kind{Name: "nodes", Paths: []string{"api/v1/nodes"}}

	ResourceClaims = Kind{Name: "resourceclaims", Group: "resource.k8s.io", Paths: versions("resource.k8s.io", "resourceclaims", "v1", "v1beta2", "v1beta1")}
	ResourceSlices = Kind{Name: "resourceslices", Group: "resource.k8s.io", Paths: versions("resource.k8s.io", "resourceslices", "v1", "v1beta2", "v1beta1")}

	KueueWorkloads = Kind{Name: "workloads", Group: "kueue.x-k8s.io", Paths: versions("kueue.x-k8s.io", "workloads", "v1beta2", "v1beta1")}
	ClusterQueues  = Kind{Name: "clusterqueues", Group: "kueue.x-k8s.io", Paths: versions("kueue.x-k8s.io", "clusterqueues", "v1beta2", "v1beta1")}
	LocalQueues    = Kind{Name: "localqueues", Group: "kueue.x-k8s.io", Paths: versions("kueue.x-k8s.io", "localqueues", "v1beta2", "v1beta1")}

	PodGroups     = Kind{Name: "podgroups", Group: "scheduling.volcano.sh", Paths: versions("scheduling.volcano.sh", "podgroups", "v1beta1")}
	VolcanoQueues = Kind{Name: "queues", Group: "scheduling.volcano.sh", Paths: versions("scheduling.volcano.sh", "queues", "v1beta1")}

	RayClusters = Kind{Name: "rayclusters", Group: "ray.io", Paths: versions("ray.io", "rayclusters", "v1")}
	RayJobs     = Kind{Name: "rayjobs", Group: "ray.io", Paths: versions("ray.io", "rayjobs", "v1")}

	HPAs          = Kind{Name: "horizontalpodautoscalers", Group: "autoscaling", Paths: versions("autoscaling", "horizontalpodautoscalers", "v2")}
	ScaledObjects = Kind{Name: "scaledobjects", Group: "keda.sh", Paths: versions("keda.sh", "scaledobjects", "v1alpha1")}
)

func versions(group, plural string, all ...string) []string {
	var paths []string
	for _, v := range all {
		paths = append(paths, "apis/"+group+"/"+v+"/"+plural)
	}
	return paths
}

// String names the kind as kubectl does.
func (k Kind) String() string {
	if k.Group == "" {
		return k.Name
	}
	return k.Name + "." + k.Group
}

// OnNode is what of the kind is on one node. Pods and resource slices can be asked for
// so.
func (k Kind) OnNode(node string) Kind {
	k.Fields = "spec.nodeName=" + node
	k.Cached = true
	return k
}
