package collector

import (
	"slices"
	"time"

	"gpuvigil/internal/metric"
)

// Latest is what one source of a Mixer knows.
type Latest struct {
	Source string
	Part   *Part  // the newest; the one of the call before if nothing is new, nil if there is none
	Err    string // why there is nothing newer; empty: all is well, or nobody knows
}

// Mixer composes the snapshots of one node from parts of several sources that come with
// their own time and are asked by somebody else. It belongs to one goroutine.
type Mixer struct {
	compose composer
	sources []mixed
}

type mixed struct {
	state SourceState
	part  *Part // of the snapshot before
}

// NewMixer returns a mixer. A reading is held for three of its tier's intervals, and a
// source is fresh for three of the fast ones.
func NewMixer(cfg SamplerConfig) *Mixer { return &Mixer{compose: newComposer(cfg)} }

// Node returns the snapshots' name of the node.
func (m *Mixer) Node() string { return m.compose.node }

// GPUs returns how many GPUs have been seen.
func (m *Mixer) GPUs() int { return len(m.compose.gpus.list) }

// Snapshot composes the snapshot of the given time. The sources are the same in each
// call and in the same order: where two know the same thing the later one wins. One
// that has never had a part nor an error is not in the snapshot.
func (m *Mixer) Snapshot(now time.Time, latest []Latest) *Snapshot {
	for len(m.sources) < len(latest) {
		m.sources = append(m.sources, mixed{state: SourceState{Interval: m.compose.tiers[metric.Fast]}})
	}
	views := make([]view, len(latest))
	for i, l := range latest {
		s := &m.sources[i]
		s.state.Name, s.state.Err = l.Source, l.Err
		v := view{part: l.Part, interval: s.state.Interval, sinceOK: -1}
		if l.Part != nil {
			s.state.Expected = true
			v.age = max(0, now.Sub(l.Part.Time))
			v.sinceOK = v.age
			if l.Part != s.part {
				v.events = l.Part.Events
				s.state.Samples++
			}
		}
		if l.Err != "" {
			s.state.Errors++
		}
		s.part = l.Part
		v.state = s.state
		views[i] = v
	}
	snap := m.compose.snapshot(now, views)
	snap.Sources = slices.DeleteFunc(snap.Sources, func(s SourceState) bool { return s.Samples == 0 && s.Err == "" })
	return snap
}
