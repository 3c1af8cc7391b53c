package fleet

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
)

// obstacle is what keeps a pod from a node. They are in the order in which they are
// looked at: the larger, the closer the pod comes. Another device than the pod wants comes
// first, for nobody can mend that.
type obstacle int

const (
	wrongModel obstacle = iota
	wrongProfile
	otherLabel
	notReady
	cordoned
	tainted
	noneFree
	fragmented
	noCPU
	noMemory
	noPods
	topology
	fits
)

var obstacleNames = [...]string{"wrong_model", "wrong_mig_profile", "selector", "not_ready", "cordoned", "tainted", "no_free_gpu",
	"fragmented", "cpu", "memory", "pods", "topology", "fits"}

func (o obstacle) String() string { return obstacleNames[o] }

// want is pods that want the same and are kept from it for the same reason.
type want struct {
	pod  *kube.Pod
	asks map[string]int
	why  string // it waits; empty: not tried yet

	free, other []collector.Free // devices; nil: not looked for yet
	looked      bool
}

// maxWants bounds the work: of too many kinds of pods those are left out that come last.
const maxWants = 500

// wanted are the pods that the scheduler found no node for, those alike as one.
func (o *objects) wanted() []*want {
	byShape := map[string]*want{}
	o.wants = map[*kube.Pod]*want{}
	var out []*want
	// In an order of their own, so that of too many the same are tried each time.
	pods := slices.SortedFunc(slices.Values(o.pods), func(a, b *kube.Pod) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	for _, p := range pods {
		if p.Node != "" || len(p.Gates) > 0 || p.Deleting || p.Ended() || p.Scheduled.Status != "False" {
			continue
		}
		asks := o.asks(p)
		if len(asks) == 0 {
			continue
		}
		shape := shapeOf(p, asks)
		if byShape[shape] == nil {
			if len(out) >= maxWants {
				continue
			}
			byShape[shape] = &want{pod: p, asks: asks}
			out = append(out, byShape[shape])
		}
		o.wants[p] = byShape[shape]
	}
	return out
}

// shapeOf is the same for pods that fit on the same nodes.
func shapeOf(p *kube.Pod, asks map[string]int) string {
	key, err := json.Marshal(struct {
		Asks     map[string]int
		CPU, Mem int64
		Selector map[string]string
		Affinity []kube.Term
		Tolerate []kube.Toleration
		Topology bool
	}{asks, p.Requests.CPU, p.Requests.Memory, p.Selector, p.Affinity, p.Tolerates, placed(p)})
	if err != nil {
		panic("BUG: plain data cannot be put into words: " + err.Error())
	}
	return string(key)
}

// placed reports whether the scheduler speaks of where the pod may be beside others.
func placed(p *kube.Pod) bool {
	message, _, _ := strings.Cut(strings.ToLower(p.Scheduled.Message), "preemption:")
	for _, part := range []string{"pod affinity", "anti-affinity", "topology spread", "volume", "persistentvolumeclaim"} {
		if strings.Contains(message, part) {
			return true
		}
	}
	return false
}

// reason is why a pod waits: what keeps it from the free devices of the node where it
// comes closest.
func (o *objects) reason(p *kube.Pod, places []*place) string {
	w := o.wants[p]
	if w == nil {
		return notTried // there are too many that want something else
	}
	if w.why == "" {
		w.why = closest(w, places).String()
	}
	return w.why
}

// notTried is the reason of what cannot be tried on nodes.
const notTried = "not_tried"

// closest looks only at nodes whose free devices would be enough: a full node comes
// close, but says nothing of why those that are free are of no use.
func closest(w *want, places []*place) obstacle {
	best, found := noneFree, false
	var open []*place // to the pod, with some free and too few
	for _, at := range places {
		ob := at.obstacle(w)
		switch {
		case ob == fragmented:
			open = append(open, at)
		case at.enough(w) && (!found || ob > best):
			best, found = ob, true
		}
	}
	if len(open) > 0 && best <= fragmented && enoughTogether(open, w.asks) {
		return fragmented
	}
	return best
}

// enough reports whether the node has free what the pod asks for. Of a node with other
// devices as many would be, if they were the right ones.
func (p *place) enough(w *want) bool {
	free := 0
	for resource := range p.have {
		free += p.free(resource)
	}
	for resource, count := range w.asks {
		if p.have[resource] > 0 && p.free(resource) < count {
			return false
		}
	}
	return free >= sum(w.asks)
}

// enoughTogether reports whether what is free on all of the nodes is what is asked for.
func enoughTogether(places []*place, asks map[string]int) bool {
	for resource, count := range asks {
		for _, at := range places {
			count -= at.free(resource)
		}
		if count > 0 {
			return false
		}
	}
	return true
}

// cause is why free devices of a resource are not used: what keeps the pod away that
// comes closest.
func (p *place) cause(resource string, wanted []*want) string {
	switch {
	case p.node.Ready != "True":
		return notReady.String()
	case p.node.Unschedulable:
		return cordoned.String()
	case len(wanted) == 0:
		return "no_demand"
	}
	best := wrongModel
	for _, w := range wanted {
		ob := p.obstacle(w)
		if w.asks[resource] == 0 && ob > otherLabel {
			ob = wrongModel // it wants another kind of device, of which this node may have, too
			if isMIG(resource) || slices.ContainsFunc(keysOf(w.asks), isMIG) {
				ob = wrongProfile
			}
		}
		if ob == noneFree { // of another kind that it wants, too
			ob = fragmented
		}
		best = max(best, ob)
	}
	return best.String()
}

func keysOf(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// obstacle is what keeps the pod from the node.
func (p *place) obstacle(w *want) obstacle {
	if other := p.otherDevices(w.asks); other < fits {
		return other
	}
	if key, ok := mismatch(w.pod, p.node); !ok {
		return labelObstacle(key)
	}
	n := p.node
	switch {
	case n.Ready != "True":
		return notReady
	case n.Unschedulable:
		return cordoned
	case slices.ContainsFunc(n.Taints, func(t kube.Taint) bool { return keepsAway(t) && !tolerated(t, w.pod.Tolerates) }):
		return tainted
	}
	return p.room(w)
}

// otherDevices is whether the node has none of something that is asked for.
func (p *place) otherDevices(asks map[string]int) obstacle {
	short := fits
	for resource := range asks {
		switch {
		case p.have[resource] > 0:
		case isMIG(resource) || slices.ContainsFunc(keysOf(p.have), isMIG):
			short = min(short, wrongProfile)
		default:
			short = min(short, wrongModel)
		}
	}
	return short
}

// room is what the node has too little of.
func (p *place) room(w *want) obstacle {
	short := fits
	for resource, count := range w.asks {
		switch free := p.free(resource); {
		case free == 0:
			short = min(short, noneFree)
		case free < count:
			short = min(short, fragmented)
		}
	}
	switch {
	case short < fits:
		return short
	case p.cpu < w.pod.Requests.CPU:
		return noCPU
	case p.memory < w.pod.Requests.Memory:
		return noMemory
	case p.pods <= 0 && p.node.Allocatable.Pods > 0:
		return noPods
	case placed(w.pod):
		return topology
	}
	return fits
}

func tolerated(t kube.Taint, by []kube.Toleration) bool {
	return slices.ContainsFunc(by, func(o kube.Toleration) bool {
		if o.Effect != "" && o.Effect != t.Effect {
			return false
		}
		if o.Operator == "Exists" {
			return o.Key == "" || o.Key == t.Key
		}
		return o.Key == t.Key && o.Value == t.Value
	})
}

// labelObstacle is what it means that a node's label is another one.
func labelObstacle(key string) obstacle {
	switch {
	case strings.HasPrefix(key, "nvidia.com/mig"):
		return wrongProfile
	case slices.Contains(modelLabels, key), strings.HasPrefix(key, "nvidia.com/gpu."), key == "node.kubernetes.io/instance-type":
		return wrongModel
	}
	return otherLabel
}

// mismatch returns the first label of the node that is not what the pod wants.
func mismatch(p *kube.Pod, n *kube.Node) (key string, ok bool) {
	for _, k := range slices.Sorted(maps.Keys(p.Selector)) { // in order, so that it is the same each time
		if have, given := n.Labels[k]; !given || have != p.Selector[k] {
			return k, false
		}
	}
	if len(p.Affinity) == 0 {
		return "", true
	}
	for _, t := range p.Affinity {
		bad := failing(t, n)
		if bad == nil && len(t.Labels)+len(t.Fields) > 0 {
			return "", true
		}
		if bad != nil && key == "" {
			key = bad.Key
		}
	}
	return key, false
}

// failing returns what of the term does not fit the node; nil if all does.
func failing(t kube.Term, n *kube.Node) *kube.Expression {
	for i := range t.Labels {
		value, given := n.Labels[t.Labels[i].Key]
		if !matches(&t.Labels[i], value, given) {
			return &t.Labels[i]
		}
	}
	for i := range t.Fields {
		if t.Fields[i].Key != "metadata.name" || !matches(&t.Fields[i], n.Name, true) {
			return &t.Fields[i]
		}
	}
	return nil
}

func matches(e *kube.Expression, value string, given bool) bool {
	switch e.Operator {
	case "In":
		return given && slices.Contains(e.Values, value)
	case "NotIn":
		return !given || !slices.Contains(e.Values, value)
	case "Exists":
		return given
	case "DoesNotExist":
		return !given
	case "Gt", "Lt":
		if len(e.Values) != 1 || !given {
			return false
		}
		have, err := strconv.ParseInt(value, 10, 64)
		bound, bad := strconv.ParseInt(e.Values[0], 10, 64)
		return err == nil && bad == nil && (e.Operator == "Gt" && have > bound || e.Operator == "Lt" && have < bound)
	}
	return false
}
