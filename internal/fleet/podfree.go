package fleet

import (
	"slices"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
)

// freeFor returns the free devices: those that are right for a pod, and the others. It is
// empty for a pod that was not tried.
func (o *objects) freeFor(p *kube.Pod, places []*place) (right, other []collector.Free) {
	w := o.wants[p]
	if w == nil {
		return nil, nil
	}
	if !w.looked {
		w.looked = true
		w.free, w.other = w.look(places)
	}
	return w.free, w.other
}

// look goes through the nodes. A node that is kept free by a taint is one that should be
// used if others of its pool are not: a pool that is tainted as a whole is somebody
// else's.
func (w *want) look(places []*place) (right, other []collector.Free) {
	found := make([]obstacle, len(places))
	open := map[string]bool{} // pools with a node that no taint keeps free
	for i, p := range places {
		if found[i] = p.obstacle(w); found[i] > tainted {
			for _, pool := range p.pools {
				open[pool] = true
			}
		}
	}
	s := newSplit()
	for i, p := range places {
		free, ob := 0, found[i]
		for resource := range p.have {
			if w.asks[resource] > 0 || ob <= wrongProfile {
				free += p.free(resource)
			}
		}
		is := ob > tainted || ob == tainted && slices.ContainsFunc(p.pools, func(pool string) bool { return open[pool] })
		if ob == noneFree { // of one kind, and some of another that it wants, too
			ob = fragmented
		}
		s.add(is, ob.String(), p.node.Name, free)
	}
	return s.right.list(), s.other.list()
}

// modelOf is the model of GPUs that the pod asks for by its selector.
func modelOf(p *kube.Pod) string { return first(p.Selector, modelLabels) }
