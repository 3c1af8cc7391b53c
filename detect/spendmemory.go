package detect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gpuvigil/collector"
)

// maxDays is more days than anything runs.
const maxDays = 1 << 20

type spendMemory struct {
	Version int                   `json:"version"`
	Teams   map[string]*teamSpend `json:"teams"`
	Owners  []ownersOutput        `json:"owners"`
	Servers []serversAnswers      `json:"servers"`
}

type serversAnswers struct {
	collector.EndpointKey
	answers
}

type ownersOutput struct {
	Owner collector.Owner `json:"owner"`
	output
}

// Save returns what teams spend by the hour of the day, and what comes of owners' GPU
// time.
func (d *Spend) Save() ([]byte, error) {
	m := spendMemory{Version: 1, Teams: d.teams}
	for o, st := range d.owners {
		m.Owners = append(m.Owners, ownersOutput{o, *st})
	}
	for k, st := range d.endpoints {
		m.Servers = append(m.Servers, serversAnswers{k, *st})
	}
	slices.SortFunc(m.Servers, func(a, b serversAnswers) int { return cmp.Compare(a.String(), b.String()) })
	slices.SortFunc(m.Owners, func(a, b ownersOutput) int {
		return cmp.Or(cmp.Compare(a.Owner.String(), b.Owner.String()), cmp.Compare(a.Owner.Team, b.Owner.Team))
	})
	return json.Marshal(m)
}

// Restore takes up what Save returned.
func (d *Spend) Restore(data []byte) error {
	var m spendMemory
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	teams, owners := map[string]*teamSpend{}, map[collector.Owner]*output{}
	for team, st := range m.Teams {
		if st == nil || slices.Min(st.Days[:]) < 0 || slices.Max(st.Days[:]) > maxDays || st.Hour < 0 {
			return fmt.Errorf("its memory of team %s is not complete", team)
		}
		teams[team] = st
	}
	for _, o := range m.Owners {
		if o.Usual == nil || o.Unit >= len(unitsOfWork) {
			return fmt.Errorf("its memory of %s is not complete", o.Owner)
		}
		owners[o.Owner] = &o.output
	}
	d.teams, d.owners = teams, owners
	d.endpoints = map[collector.EndpointKey]*answers{}
	for _, v := range m.Servers {
		d.endpoints[v.EndpointKey] = &v.answers
	}
	return nil
}

// Shift moves what is remembered of owners. The hour in which the clock was set is of no
// length that is known.
func (d *Spend) Shift(by time.Duration) {
	shift(by, &d.now, &d.moneyAt)
	for _, st := range d.teams {
		shift(by, &st.Seen, &st.burn.At, &st.ran.At)
		st.Hour, st.Whole, st.Over = 0, false, 0
	}
	for _, st := range d.endpoints {
		shift(by, &st.At, &st.Moved, &st.Asked, &st.toldAt)
	}
	for _, st := range d.owners {
		shift(by, &st.At, &st.First, &st.Progress, &st.Bad, &st.toldAt)
		st.Written.shift(by)
		st.Usual.Shift(by)
	}
}
