package detect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// stateVersion is the version of the state that Save writes. Raise it when an
// older release could not read the state any more, and keep reading the versions
// before.
const stateVersion = 1

type engineState struct {
	Version   int                          `json:"version"`
	Time      time.Time                    `json:"time"` // of the newest snapshot
	Findings  []findingState               `json:"findings"`
	Finished  []Finding                    `json:"finished"`
	Incidents []incidentState              `json:"incidents"`
	Events    []collector.Event            `json:"events"`
	Detectors map[rules.ID]json.RawMessage `json:"detectors"`
	Records   map[rules.ID]record          `json:"records,omitempty"`
	Drained   time.Time                    `json:"drained,omitzero"` // since when the node is
	Verdicts  json.RawMessage              `json:"verdicts,omitempty"`
}

type findingState struct {
	Finding
	Holds     bool        `json:"holds"`
	Ended     time.Time   `json:"last_ended,omitzero"`
	Explained time.Time   `json:"explained,omitzero"`
	Comebacks []time.Time `json:"comebacks,omitempty"`
	Incident  string      `json:"incident,omitempty"`
}

type incidentState struct {
	Incident
	LastSince time.Time `json:"last_since"`
	Told      time.Time `json:"told,omitzero"`
}

// ErrNewer says that a newer release wrote a state.
var ErrNewer = errors.New("run the newer release again, or move the state file away to start without findings and history")

// Save returns what must survive a restart: findings, incidents, what happened
// lately, and the memory of the detectors. The six hours of history are not in it.
func (e *Engine) Save() ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.save()
	if err != nil {
		return nil, err
	}
	return s.encode()
}

// SaveParts returns the same with the memories beside the state: one that is damaged
// on the disk then costs that detector's alone.
func (e *Engine) SaveParts() (state []byte, memories map[rules.ID]json.RawMessage, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.save()
	if err != nil {
		return nil, nil, err
	}
	memories, s.Detectors = s.Detectors, nil
	state, err = s.encode()
	return state, memories, err
}

func (s *engineState) encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the detectors' state: %w", err)
	}
	return data, nil
}

// save gathers the state. It shares what the engine goes on changing, so the caller
// holds e.mu until it is encoded.
func (e *Engine) save() (*engineState, error) {
	s := &engineState{
		Version: stateVersion, Time: e.now, Finished: e.finished, Events: e.events.events,
		Detectors: map[rules.ID]json.RawMessage{}, Records: maps.Clone(e.records), Drained: e.state.drained,
	}
	if s.Records == nil {
		s.Records = map[rules.ID]record{}
	}
	for id, raw := range e.parked {
		s.Detectors[id] = raw
	}
	for _, w := range e.watchers {
		s.Records[w.rule.ID] = w.record
		for _, t := range w.order {
			f := findingState{Finding: t.Finding, Holds: t.holds, Ended: t.ended, Explained: t.explained, Comebacks: t.comebacks}
			if t.incident != nil {
				f.Incident = t.incident.ID
			}
			s.Findings = append(s.Findings, f)
		}
		d, ok := w.detector.(Stateful)
		if !ok {
			continue
		}
		raw, err := d.Save()
		if err != nil {
			return nil, fmt.Errorf("save the memory of detector %s: %w", w.rule.ID, err)
		}
		s.Detectors[w.rule.ID] = raw
	}
	if e.judge != nil {
		raw, err := e.judge.Save()
		if err != nil {
			return nil, fmt.Errorf("save the verdicts: %w", err)
		}
		s.Verdicts = raw
	}
	for _, in := range e.incidents.all {
		s.Incidents = append(s.Incidents, incidentState{in.Incident, in.lastSince, in.told})
	}
	return s, nil
}

// Restore takes up what Save of this or an older release returned. It is called
// before the first Observe. A state that is damaged, or newer than this release
// knows, which is an ErrNewer, is an error and changes nothing. If only a detector's
// own memory cannot be read, that detector starts without one, which is logged and
// counted as a failure of the detector; everything else is restored.
func (e *Engine) Restore(data []byte) error {
	s, err := readState(data)
	if err != nil {
		return err
	}
	e.takeUp(s)
	return nil
}

// RestoreParts takes up what SaveParts returned, and what Save did, which is a state
// without memories beside it. Without a state, nil, the detectors still remember. An
// error is Restore's.
func (e *Engine) RestoreParts(state []byte, memories map[rules.ID]json.RawMessage) error {
	if state == nil && len(memories) == 0 {
		return nil
	}
	s := &engineState{}
	if state != nil {
		var err error
		if s, err = readState(state); err != nil {
			return err
		}
	}
	if s.Detectors == nil {
		s.Detectors = map[rules.ID]json.RawMessage{}
	}
	maps.Copy(s.Detectors, memories)
	e.takeUp(s)
	return nil
}

func readState(data []byte) (*engineState, error) {
	var s engineState
	var version struct{ Version int }
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("the detectors' state is damaged (%w): move the state file away to start without findings and history", err)
	}
	switch {
	case version.Version > stateVersion:
		return nil, fmt.Errorf("the detectors' state has version %d and this release of gpuvigil knows up to %d: %w",
			version.Version, stateVersion, ErrNewer)
	case version.Version < 1:
		return nil, errors.New("the detectors' state has no version: move the state file away to start without findings and history")
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("the detectors' state is damaged (%w): move the state file away to start without findings and history", err)
	}
	return &s, nil
}

func (e *Engine) takeUp(s *engineState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.finished, e.events = s.Time, s.Finished, eventLog{s.Events}
	e.state = nodeState{drained: s.Drained}
	e.restoreIncidents(s.Incidents)
	watchers := map[rules.ID]*watcher{}
	for _, w := range e.watchers {
		watchers[w.rule.ID] = w
		clear(w.found)
		w.order, w.record = nil, s.Records[w.rule.ID]
		delete(s.Records, w.rule.ID)
	}
	e.records = s.Records
	for _, f := range s.Findings {
		if w := watchers[f.Rule]; w != nil {
			e.restoreFinding(w, f)
		} else {
			e.orphan(f)
		}
	}
	for _, w := range e.watchers {
		w.block()
	}
	e.restoreDetectors(watchers, s.Detectors)
	if e.judge != nil && s.Verdicts != nil {
		if err := e.judge.Restore(s.Verdicts); err != nil {
			e.unjudged.Inc()
			e.cfg.Log.Error("the verdicts start without memory", "err", err)
		}
	}
	e.changed = true
	e.publish()
}

func (e *Engine) restoreIncidents(states []incidentState) {
	e.incidents = incidents{}
	for _, s := range states {
		if len(s.Members) > 0 {
			e.incidents.all = append(e.incidents.all, &incident{Incident: s.Incident, lastSince: s.LastSince, told: s.Told})
		}
	}
}

func (e *Engine) restoreFinding(w *watcher, f findingState) {
	t := &tracked{Finding: f.Finding, holds: f.Holds, ended: f.Ended, explained: f.Explained, comebacks: f.Comebacks}
	if t.State == Firing {
		t.link(&e.incidents, f.Incident)
	}
	w.found[key{t.Subject, t.Cause}] = t
	w.order = append(w.order, t)
}

// link finds the finding's place in its incident again.
func (t *tracked) link(is *incidents, id string) {
	for _, in := range is.all {
		for i := range in.Members {
			if in.ID == id && in.Members[i].Key() == t.Key() {
				t.incident, t.member = in, i
			}
		}
	}
}

// orphan ends a finding whose rule does not run any more, so that its incident
// does not stay open for ever.
func (e *Engine) orphan(f findingState) {
	if f.State != Firing {
		return
	}
	t := &tracked{Finding: f.Finding}
	t.link(&e.incidents, f.Incident)
	t.State, t.Resolved, t.Ended = Resolved, e.now, "expired"
	e.incidents.touch(t, e.now)
	e.finished = append(e.finished, t.Finding)
}

func (e *Engine) restoreDetectors(watchers map[rules.ID]*watcher, states map[rules.ID]json.RawMessage) {
	e.parked = map[rules.ID]json.RawMessage{}
	for id, raw := range states {
		switch {
		case watchers[id] != nil:
		case json.Valid(raw):
			e.parked[id] = raw
		default: // it could not be saved with the rest
			e.cfg.Log.Error("the memory of a detector that is off is damaged, and lost", "rule", id)
		}
	}
	for _, w := range e.watchers {
		d, ok := w.detector.(Stateful)
		raw := states[w.rule.ID]
		if !ok || raw == nil {
			continue
		}
		if err := d.Restore(raw); err != nil {
			w.failures.Inc()
			e.cfg.Log.Error("a detector starts without memory", "rule", w.rule.ID, "err", err)
		}
	}
}
