package detect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

const poolEvery = time.Minute // at the versions of all nodes, which are told once a minute

// fleetVersions is rule version_mismatch over several nodes: versions of the nodes of a
// pool, and of the ranks of a job and the replicas of a service.
type fleetVersions struct {
	pool   *Pool
	ranks  *Mismatch
	looked time.Time
	now    time.Time
}

func newFleetVersions(cfg PoolConfig) *fleetVersions {
	return &fleetVersions{pool: NewPool(cfg), ranks: NewMismatch(MismatchConfig{})}
}

func (d *fleetVersions) Rule() *rules.Rule { return rules.Get(rules.IDVersionMismatch) }

func (d *fleetVersions) look(now time.Time, heard []Heard) {
	d.now = now
	if age := now.Sub(d.looked); !d.looked.IsZero() && age >= 0 && age < poolEvery {
		return
	}
	d.looked = now
	m := d.ranks
	m.begin()
	m.rows, m.software = m.rows[:0], false
	for i := range heard {
		s := heard[i].Snapshot
		if s == nil {
			continue
		}
		for _, r := range PoolRows(s) {
			d.pool.Add(r)
		}
		if inv := s.Inventory; inv != nil && s.Time.Sub(inv.At) < staleAfter {
			m.software = true
			m.ofNode(heard[i].Node, inv)
		}
	}
	m.compareAcross(now)
	m.end(now)
}

// ofNode takes up what each owner on a node has loaded, where that is one version.
func (d *Mismatch) ofNode(node string, inv *collector.Inventory) {
	from := len(d.rows)
	for i := range inv.Runtimes {
		r := &inv.Runtimes[i]
		alone := (i == 0 || inv.Runtimes[i-1].Owner != r.Owner || inv.Runtimes[i-1].Component != r.Component) &&
			(i == len(inv.Runtimes)-1 || inv.Runtimes[i+1].Owner != r.Owner || inv.Runtimes[i+1].Component != r.Component)
		if !alone || r.Version == unknownVersion {
			continue // several on one node are that node's to tell
		}
		if r.Owner.Kind == "job" {
			d.rows = append(d.rows, rankRow{group: r.Owner.String(), what: r.Component, version: r.Version, owner: r.Owner, ranks: r.Processes})
		} else if group, wait := groupOf(r.Owner); group != "" && wait == 0 {
			d.rows = append(d.rows, rankRow{group: group, what: r.Component, version: r.Version, owner: r.Owner, ranks: r.Processes})
		}
	}
	for i := range inv.Images {
		d.ofImage(&inv.Images[i])
	}
	for i := from; i < len(d.rows); i++ {
		d.rows[i].node = node
	}
}

// compareAcross compares the rows of each group that is on several nodes.
func (d *Mismatch) compareAcross(now time.Time) {
	slices.SortStableFunc(d.rows, func(a, b rankRow) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.what, b.what), cmp.Compare(a.version, b.version), cmp.Compare(a.node, b.node), strings.Compare(a.owner.ID, b.owner.ID))
	})
	for i := 0; i < len(d.rows); {
		j, several := i+1, false
		for ; j < len(d.rows) && d.rows[j].group == d.rows[i].group; j++ {
			several = several || d.rows[j].node != d.rows[i].node
		}
		if several {
			d.compareGroup(&collector.Snapshot{Time: now}, d.rows[i:j])
		}
		i = j
	}
}

// Observe reports on pools, jobs and services.
func (d *fleetVersions) Observe(_ *collector.Snapshot, report func(Observation)) {
	d.pool.Judge(d.now, report)
	d.ranks.tell(d.now, report)
}

type fleetVersionsState struct {
	Version int             `json:"version"`
	Pool    json.RawMessage `json:"pool"`
	Ranks   json.RawMessage `json:"ranks"`
}

// Save returns what is known of pools and ranks.
func (d *fleetVersions) Save() ([]byte, error) {
	pool, err := d.pool.Save()
	if err != nil {
		return nil, err
	}
	ranks, err := d.ranks.Save()
	if err != nil {
		return nil, err
	}
	return json.Marshal(fleetVersionsState{1, pool, ranks})
}

// Restore takes up what Save returned.
func (d *fleetVersions) Restore(data []byte) error {
	var s fleetVersionsState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	if err := d.pool.Restore(s.Pool); err != nil {
		return err
	}
	return d.ranks.Restore(s.Ranks)
}
