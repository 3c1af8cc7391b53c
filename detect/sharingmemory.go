package detect

import (
	"encoding/json"
	"time"

	"gpuvigil/collector"
)

type sharingState struct {
	Version int                  `json:"version"`
	Devices []deviceState        `json:"devices"`
	Givers  map[string]time.Time `json:"givers"`
	Sees    bool                 `json:"sees"`
}

type deviceState struct {
	UUID    string        `json:"uuid"`
	MIG     string        `json:"mig,omitempty"`
	At      time.Time     `json:"at"`
	Dead    time.Time     `json:"dead,omitzero"`
	Tenants []tenantState `json:"tenants"`
}

type tenantState struct {
	Owner collector.Owner `json:"owner"`
	Since time.Time       `json:"since,omitzero"`
	Last  time.Time       `json:"last,omitzero"`
	Seen  time.Time       `json:"seen"`
	Given time.Time       `json:"given,omitzero"`
	SM    float64         `json:"sm"`
	Alone float64         `json:"alone"`
}

// Save returns who is on which device since when.
func (d *Sharing) Save() ([]byte, error) {
	s := sharingState{Version: 1, Givers: d.givers, Sees: d.sees}
	for _, key := range d.order {
		dev := d.devices[key]
		out := deviceState{UUID: key.uuid, MIG: key.mig, At: dev.at, Dead: dev.dead}
		for _, t := range dev.tenants {
			out.Tenants = append(out.Tenants, tenantState{t.owner, t.since, t.last, t.seen, t.given, t.sm, t.alone})
		}
		s.Devices = append(s.Devices, out)
	}
	return json.Marshal(s)
}

// Restore takes up what Save returned.
func (d *Sharing) Restore(data []byte) error {
	var s sharingState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	fresh := NewSharing(d.cfg)
	fresh.sees = s.Sees
	for kind, at := range s.Givers {
		fresh.givers[giver(kind)] = at
	}
	for _, in := range s.Devices[:min(len(s.Devices), mostDevices)] {
		key := deviceKey{in.UUID, in.MIG}
		if in.UUID == "" || fresh.devices[key] != nil {
			continue
		}
		dev := &device{at: in.At, dead: in.Dead}
		for _, t := range in.Tenants {
			if to := dev.tenant(t.Owner); to != nil {
				to.since, to.last, to.seen, to.given, to.sm, to.alone = t.Since, t.Last, t.Seen, t.Given, t.SM, t.Alone
			}
		}
		fresh.devices[key] = dev
		fresh.order = append(fresh.order, key)
	}
	*d = *fresh
	return nil
}

// Shift moves since when who has been where.
func (d *Sharing) Shift(by time.Duration) {
	for kind, at := range d.givers {
		d.givers[kind] = at.Add(by)
	}
	for _, dev := range d.devices {
		shift(by, &dev.at, &dev.dead)
		shiftAll(by, dev.toldAt[:])
		for _, t := range dev.tenants {
			shift(by, &t.since, &t.last, &t.seen, &t.given)
		}
	}
}
