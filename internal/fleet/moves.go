package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gpuvigil/collector"
)

const (
	movesKept = 8 * 24 * time.Hour // longer than the week that a digest sums up
	maxMoves  = 512
)

// VersionMove is a change of a version that was seen on some nodes in one day.
type VersionMove struct {
	Day       time.Time `json:"day"` // its beginning in UTC
	Component string    `json:"component"`
	From      string    `json:"from,omitempty"` // empty: there was none
	To        string    `json:"to,omitempty"`
	Nodes     int       `json:"nodes"`
}

// versionMoves are the changes of the last days. The zero value is ready to use.
type versionMoves struct{ Moves []VersionMove }

// note takes up what has changed on a node between two snapshots. What one of them does
// not tell has not changed.
func (v *versionMoves) note(now time.Time, before, after *collector.Snapshot) {
	for _, to := range after.Node.Versions {
		i := slices.IndexFunc(before.Node.Versions, func(from collector.Version) bool { return from.Component == to.Component })
		if i >= 0 && before.Node.Versions[i].Value != to.Value {
			v.add(VersionMove{now.UTC().Truncate(24 * time.Hour), to.Component, before.Node.Versions[i].Value, to.Value, 1})
		}
	}
}

func (v *versionMoves) add(m VersionMove) {
	for i := range v.Moves {
		known := &v.Moves[i]
		if known.Day.Equal(m.Day) && known.Component == m.Component && known.From == m.From && known.To == m.To {
			known.Nodes++
			return
		}
	}
	v.Moves = slices.DeleteFunc(v.Moves, func(old VersionMove) bool { return m.Day.Sub(old.Day) > movesKept })
	if len(v.Moves) < maxMoves {
		v.Moves = append(v.Moves, m)
	}
}

func (v *versionMoves) restore(data []byte) error {
	var was versionMoves
	if err := json.Unmarshal(data, &was); err != nil {
		return fmt.Errorf("which versions have changed cannot be read: %w", err)
	}
	*v = was
	return nil
}

// Moves returns which versions have changed on the days that the time touches, those of
// most nodes first; what changed on several days is one.
func (f *Fleet) Moves(from, to time.Time) []VersionMove {
	w := &f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum versionMoves
	for _, m := range w.versions.Moves {
		if m.Day.Add(24*time.Hour).After(from) && m.Day.Before(to) {
			day, nodes := m.Day, m.Nodes
			m.Day = time.Time{}
			i := slices.IndexFunc(sum.Moves, func(k VersionMove) bool { return k.Component == m.Component && k.From == m.From && k.To == m.To })
			if i < 0 {
				sum.Moves = append(sum.Moves, m)
				i = len(sum.Moves) - 1
				sum.Moves[i].Nodes = 0
			}
			sum.Moves[i].Day = day
			sum.Moves[i].Nodes += nodes
		}
	}
	slices.SortStableFunc(sum.Moves, func(a, b VersionMove) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return sum.Moves
}
