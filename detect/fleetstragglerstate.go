package detect

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"gpuvigil/collector"
)

type fleetStragglerState struct {
	Version int                   `json:"version"`
	Jobs    []fleetStragglerOfJob `json:"jobs"`
}

type fleetStragglerOfJob struct {
	Owner collector.Owner `json:"owner"`
	Seen  time.Time       `json:"seen"`
	State json.RawMessage `json:"state"`
}

// Save returns what is usual of the GPUs of each job.
func (d *fleetStraggler) Save() ([]byte, error) {
	s := fleetStragglerState{Version: 1, Jobs: make([]fleetStragglerOfJob, 0, len(d.of))}
	for owner, j := range d.of {
		state, err := j.Straggler.Save()
		if err != nil {
			return nil, err
		}
		s.Jobs = append(s.Jobs, fleetStragglerOfJob{owner, j.seen, state})
	}
	slices.SortFunc(s.Jobs, func(a, b fleetStragglerOfJob) int {
		return cmp.Or(cmp.Compare(a.Owner.Kind, b.Owner.Kind), cmp.Compare(a.Owner.ID, b.Owner.ID), cmp.Compare(a.Owner.Team, b.Owner.Team))
	})
	return json.Marshal(s)
}

// Restore takes up what Save returned.
func (d *fleetStraggler) Restore(data []byte) error {
	var s fleetStragglerState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	of := map[collector.Owner]*jobStraggler{}
	for _, job := range s.Jobs[:min(len(s.Jobs), fleetStragglerJobs)] {
		j := newJobStraggler()
		most, named := j.most, j.named
		if err := j.Straggler.Restore(job.State); err != nil {
			return err
		}
		j.most, j.named, j.seen = most, named, job.Seen
		if of[job.Owner] != nil {
			return errors.New("its memory of stragglers has a job twice")
		}
		of[job.Owner] = j
	}
	d.of = of
	return nil
}

// Shift moves when the jobs were seen.
func (d *fleetStraggler) Shift(by time.Duration) {
	for _, j := range d.of {
		shift(by, &j.seen)
		j.Straggler.Shift(by)
	}
}
