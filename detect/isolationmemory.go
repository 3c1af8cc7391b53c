package detect

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

type isolationState struct {
	Version  int                                 `json:"version"`
	Settings map[string]map[string]*settingState `json:"settings"` // by name, then uuid
}

// Save returns the settings that were last seen.
func (d *Isolation) Save() ([]byte, error) {
	s := isolationState{Version: 1, Settings: map[string]map[string]*settingState{}}
	for key, st := range d.settings {
		if s.Settings[key.name] == nil {
			s.Settings[key.name] = map[string]*settingState{}
		}
		s.Settings[key.name][key.uuid] = st
	}
	return json.Marshal(s)
}

// Restore takes up what Save returned.
func (d *Isolation) Restore(data []byte) error {
	var s isolationState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	fresh := NewIsolation(d.cfg)
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		for _, uuid := range slices.Sorted(maps.Keys(s.Settings[name])) {
			if st := s.Settings[name][uuid]; st != nil && len(fresh.settings) < mostPostures {
				fresh.settings[setting{name, uuid}] = st
			}
		}
	}
	*d = *fresh
	return nil
}

// Shift moves when settings changed.
func (d *Isolation) Shift(by time.Duration) {
	shift(by, &d.listedAt)
	for _, p := range d.postures {
		shift(by, &p.ended)
	}
	for _, st := range d.settings {
		shift(by, &st.Changed)
		st.told.Seen = "" // it names the time
	}
}
