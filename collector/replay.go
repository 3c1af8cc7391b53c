package collector

// Replay composes snapshots from parts of one source that come with their own
// time: a recording, the past of a simulation. It belongs to one goroutine.
type Replay struct {
	compose composer
	state   SourceState
}

// NewReplay returns a replay of a source with the given name.
func NewReplay(cfg SamplerConfig, source string) *Replay {
	return &Replay{compose: newComposer(cfg), state: SourceState{Name: source, Interval: cfg.Tiers[0], Expected: true}}
}

// Snapshot composes the snapshot of the part's time. A part that is older than the
// one before was recorded after the clock had been set back.
func (r *Replay) Snapshot(p *Part) *Snapshot {
	r.state.Samples++
	return r.compose.snapshot(p.Time, []view{{
		part: p, interval: r.state.Interval, events: p.Events, state: r.state,
	}})
}
