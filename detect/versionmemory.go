package detect

import (
	"encoding/json"
	"maps"
	"slices"
)

type versionState struct {
	Version    int                   `json:"version"`
	Order      []string              `json:"order"`
	Components map[string]*component `json:"components"`
}

// Save returns the versions that were last seen, and when they changed.
func (d *Version) Save() ([]byte, error) {
	return json.Marshal(versionState{1, d.order, d.components})
}

// Restore takes up what Save returned.
func (d *Version) Restore(data []byte) error {
	var s versionState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	maps.DeleteFunc(s.Components, func(_ string, c *component) bool { return c == nil || c.Value == "" })
	for _, c := range s.Components {
		c.Was = c.Was[:min(len(c.Was), len(c.Changes))]
		for len(c.Was) < len(c.Changes) {
			c.Was = append(c.Was, "")
		}
	}
	order := slices.DeleteFunc(s.Order, func(name string) bool { return s.Components[name] == nil })
	if len(order) != len(s.Components) {
		order = slices.Sorted(maps.Keys(s.Components))
	}
	if s.Components == nil {
		s.Components = map[string]*component{}
	}
	d.components, d.order = s.Components, order
	clear(d.firmware)
	d.count()
	return nil
}
