package detect

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpuvigil/collector"
)

type idleMemory struct {
	Version   int                        `json:"version"`
	GPUs      map[string]json.RawMessage `json:"gpus"`
	Served    []served                   `json:"served"`
	Ledger    *ledger                    `json:"ledger"`
	Currency  string                     `json:"currency,omitempty"`  // of what the ledger says it cost
	Endpoints map[string]*traffic        `json:"endpoints,omitempty"` // of version 1, by URL
}

type served struct {
	collector.EndpointKey
	traffic
}

// Save returns how long each GPU has been idle, its power at rest, when endpoints
// had traffic, and the idle GPU-hours of each holder.
func (d *Idle) Save() ([]byte, error) {
	m := idleMemory{Version: 2, GPUs: map[string]json.RawMessage{}, Ledger: d.ledger, Currency: d.ledger.currency}
	for key, t := range d.endpoints {
		m.Served = append(m.Served, served{key, *t})
	}
	slices.SortFunc(m.Served, func(a, b served) int { return strings.Compare(a.String(), b.String()) })
	for uuid, st := range d.gpus {
		raw, err := json.Marshal(st)
		if err != nil {
			return nil, err
		}
		m.GPUs[uuid] = raw
	}
	return json.Marshal(m)
}

// Restore takes up what Save returned.
func (d *Idle) Restore(data []byte) error {
	m := idleMemory{Ledger: newLedger()}
	if err := decodeState(data, &m, 2); err != nil {
		return err
	}
	gpus := map[string]*idleState{}
	for uuid, raw := range m.GPUs {
		st := d.newState()
		if err := json.Unmarshal(raw, st); err != nil {
			return fmt.Errorf("its memory of GPU %s is damaged: %w", uuid, err)
		}
		if st.Busy == nil || st.Power == nil {
			return fmt.Errorf("its memory of GPU %s is not complete", uuid)
		}
		gpus[uuid] = st
	}
	if m.Ledger == nil {
		return errors.New("its memory has no ledger of idle time")
	}
	d.gpus, d.ledger = gpus, m.Ledger
	d.ledger.currency = m.Currency
	for url, t := range m.Endpoints {
		if t != nil {
			d.endpoints[collector.EndpointKey{URL: url}] = t
		}
	}
	for _, s := range m.Served {
		d.endpoints[s.EndpointKey] = &s.traffic
	}
	return nil
}
