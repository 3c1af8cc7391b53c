package detect

import (
	"cmp"
	"encoding/json"
	"slices"
)

type poolState struct {
	Version int          `json:"version"`
	Groups  []*poolGroup `json:"groups"`
}

// Save returns what is known of the pools.
func (p *Pool) Save() ([]byte, error) {
	s := poolState{Version: 1}
	for _, key := range p.order {
		s.Groups = append(s.Groups, p.groups[key])
	}
	return json.Marshal(s)
}

// Restore takes up what Save returned. An error changes nothing.
func (p *Pool) Restore(data []byte) error {
	var s poolState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	fresh := NewPool(p.cfg)
	for _, g := range s.Groups {
		if g == nil || len(fresh.order) >= mostPools {
			continue
		}
		key := poolKey{g.Pool, g.Component}
		g.Nodes = slices.DeleteFunc(g.Nodes, func(n *poolNode) bool { return n == nil || n.Name == "" || n.Version == "" })
		slices.SortStableFunc(g.Nodes, func(a, b *poolNode) int { return cmp.Compare(a.Name, b.Name) })
		if fresh.groups[key] == nil && len(g.Nodes) > 0 && len(g.Nodes) <= mostNodes {
			fresh.groups[key] = g
			fresh.order = append(fresh.order, key)
		}
	}
	*p = *fresh
	return nil
}
