package detect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// twoTeams is the cause of rule hidden_sharing for a GPU that was given to two teams, on a
// node of which nobody sees the processes.
const twoTeams = "two_teams"

// LabelSharing is the label of a node on which GPUs are shared by design: who is given one
// there knows it.
const LabelSharing = "GPU sharing"

// fleetSharing is rule hidden_sharing for nodes without an agent: what it sees is to whom
// exporters say that a GPU was given.
type fleetSharing struct {
	since map[deviceKey]*sharedSince
	order []deviceKey
	now   time.Time
}

// sharedSince is since when a GPU is two teams'.
type sharedSince struct {
	since, seen time.Time
	node        string
	gpu         *collector.GPU
	of          []collector.Owner // one of each team
}

func newFleetSharing() *fleetSharing { return &fleetSharing{since: map[deviceKey]*sharedSince{}} }

func (d *fleetSharing) Rule() *rules.Rule { return rules.Get(rules.IDHiddenSharing) }

// look finds the GPUs of several teams.
func (d *fleetSharing) look(now time.Time, heard []Heard) {
	d.now = now
	for i := range heard {
		h := &heard[i]
		if h.Snapshot == nil || h.Snapshot.Agent != nil || slices.ContainsFunc(h.Labels, func(l collector.Label) bool { return l.Name == LabelSharing }) {
			continue
		}
		for k := range h.Snapshot.GPUs {
			d.take(h, &h.Snapshot.GPUs[k])
		}
	}
	maps.DeleteFunc(d.since, func(_ deviceKey, s *sharedSince) bool { return !s.seen.Equal(now) })
	d.order = slices.SortedFunc(maps.Keys(d.since), func(a, b deviceKey) int { return cmp.Compare(a.uuid, b.uuid) })
}

// take notes a GPU that works for two teams. Instances of one are shared by design.
func (d *fleetSharing) take(h *Heard, g *collector.GPU) {
	if g.MIG || g.Value(metric.MemoryUsed) < shareMemory {
		return
	}
	of := teamsOf(h.Snapshot, g)
	if len(of) < 2 {
		return
	}
	key := deviceKey{uuid: g.UUID}
	s := d.since[key]
	if s == nil {
		if len(d.since) >= mostDevices {
			return
		}
		s = &sharedSince{since: d.now}
		d.since[key] = s
	}
	s.seen, s.node, s.gpu, s.of = d.now, h.Node, g, of
}

// teamsOf are the owners of a GPU, one of each team; those of one job are of one.
func teamsOf(s *collector.Snapshot, g *collector.GPU) (out []collector.Owner) {
	add := func(o collector.Owner) {
		job := s.JobOf(o)
		if o.Team != "" && !slices.ContainsFunc(out, func(known collector.Owner) bool {
			return known.Team == o.Team || job.Kind != "" && s.JobOf(known) == job
		}) {
			out = append(out, o)
		}
	}
	for i := range g.Allocations {
		add(g.Allocations[i].Owner)
	}
	for _, o := range g.Owners {
		add(o)
	}
	slices.SortFunc(out, func(a, b collector.Owner) int { return cmp.Compare(a.Team, b.Team) })
	return out
}

// Observe reports the GPUs that have been two teams' for five minutes.
func (d *fleetSharing) Observe(_ *collector.Snapshot, report func(Observation)) {
	for _, key := range d.order {
		s := d.since[key]
		lasts := d.now.Sub(s.since)
		o := Observation{Subject: gpuSubject(key.uuid), Cause: twoTeams, Severity: rules.Ticket, GPU: s.gpu, Node: s.node, Owner: s.of[0], Score: lasts.Seconds() / shareAfter.Seconds(), At: s.since}
		if o.Score >= 1 {
			want := 1.0
			o.Evidence = Evidence{
				Title:    fmt.Sprintf("GPU given to teams %s and %s at once", s.of[0].Team, s.of[1].Team),
				Seen:     fmt.Sprintf("GPU %d was given to %s and to %s, for %s", s.gpu.Index, ownerWords(s.of[0]), ownerWords(s.of[1]), span(lasts)),
				Expected: "a whole GPU for one team, where nothing says that GPUs are shared", Observed: float64(len(s.of)), Want: &want,
				Confidence: Likely, Why: "by the pods that the GPU's exporter names; nobody sees the processes",
				Action: "Look which of the two uses it, and how they came to the same GPU: replicas of a device plugin that shares it, or pods that see all devices.",
			}
		}
		report(o)
	}
}
