package owner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// gift is an allocation whose owner has no team yet. One without a uuid is of a device
// that is not known.
type gift struct {
	to         *identity
	allocation collector.Allocation
}

// gifts says who was given which GPU, by the kubelet and by Slurm's prolog, and puts
// into the part how good that knowledge is.
func (s *Source) gifts(b board, part *collector.Part, now time.Time) []gift {
	out := append(s.fromKubelet(b, part, now), s.fromJobs(b, part, now)...)
	unresolved := 0
	for _, g := range out {
		if g.allocation.UUID == "" {
			unresolved++
		}
	}
	if s.cfg.JobMapping != "" || s.cfg.Kubelet != nil && s.cfg.Kubelet.last.Load() != nil {
		part.Node.Set(metric.AllocationsUnresolved, float64(unresolved))
	}
	known := 0.0
	if (s.cfg.Kubelet == nil || s.cfg.Kubelet.known(now, s.cfg.KubeletKeep)) && s.jobs.err == nil {
		known = 1
	}
	part.Node.Set(metric.AllocationsKnown, known)
	return out
}

func (s *Source) fromKubelet(b board, part *collector.Part, now time.Time) []gift {
	if s.cfg.Kubelet == nil {
		return nil
	}
	last := s.cfg.Kubelet.last.Load()
	if last == nil {
		return nil
	}
	age := max(0, now.Sub(last.at))
	part.Node.Set(metric.KubeletAge, age.Seconds())
	if age > s.cfg.KubeletKeep {
		return nil
	}
	var out []gift
	for _, g := range last.grants {
		id := s.identities.get(key{kindPod, g.namespace + "/" + g.pod}, now)
		if id == nil {
			continue
		}
		container := text.Clean(g.container, maxName)
		s.learnPod(id, g.namespace, g.pod)
		id.containers.add(container)
		a := collector.Allocation{Container: container, Resource: text.Clean(g.resource, maxName), Shares: g.count, Source: KubeletName}
		out = append(out, placed(id, a, s.spotsOf(b, g))...)
	}
	return out
}

// spotsOf returns what the kubelet gave. Of a claim's device only the API server knows
// which one it is.
func (s *Source) spotsOf(b board, g grant) []spot {
	if !g.claimed {
		return b.spots(g.device)
	}
	if s.cfg.Device == nil {
		return nil
	}
	uuid := s.cfg.Device(g.pool, g.claim)
	if strings.HasPrefix(uuid, "MIG-") {
		return b.spots(device{mig: uuid, minor: -1, gi: -1, ci: -1})
	}
	return b.spots(device{uuid: uuid, minor: -1, gi: -1, ci: -1})
}

func (s *Source) fromJobs(b board, part *collector.Part, now time.Time) []gift {
	if s.cfg.JobMapping == "" {
		return nil
	}
	alive := map[string]bool{}
	for _, k := range s.known {
		if k.identity != nil && k.identity.kind == kindJob {
			alive[strings.TrimPrefix(k.identity.id, JobPrefix)] = true
		}
	}
	s.jobs.refresh(now, alive)
	part.Node.Set(metric.StaleJobs, float64(s.jobs.stale))
	var out []gift
	for _, g := range s.jobs.given {
		id := s.identities.get(key{kindJob, JobPrefix + g.job}, now)
		if id == nil {
			continue
		}
		s.learnJob(id, g.job, now)
		out = append(out, placed(id, collector.Allocation{Resource: "gres/gpu", Source: "slurm"}, b.spotsOfJob(g))...)
	}
	return out
}

func (b board) spotsOfJob(g jobGrant) []spot {
	uuid := b.byIndex[g.index]
	if uuid == "" {
		return nil
	}
	if g.gi < 0 {
		return []spot{{uuid, ""}}
	}
	return b.inInstance(uuid, g.gi, -1)
}

// placed has a gift for each spot; one without a place if there is none.
func placed(to *identity, a collector.Allocation, spots []spot) []gift {
	if len(spots) == 0 {
		return []gift{{to, a}}
	}
	out := make([]gift, 0, len(spots))
	for _, at := range spots {
		a.UUID, a.MIG = at.uuid, at.mig
		out = append(out, gift{to, a})
	}
	return out
}

// settle is how long after its start the source only learns who holds what: an agent
// that starts finds owners, it does not see them come.
const settle = 30 * time.Second

// changes tells of each GPU whose owners are others than at the last sample: what
// changed before a fault is asked for.
func (s *Source) changes(snap *collector.Snapshot, uses map[process]*known, gifts []gift, now time.Time) []collector.Event {
	holders := map[string]set{}
	add := func(uuid string, id *identity) {
		if holders[uuid] == nil {
			holders[uuid] = set{}
		}
		holders[uuid].add(collector.Owner{Kind: id.kind, ID: id.id}.String())
	}
	for i := range snap.Processes {
		p := &snap.Processes[i]
		if k := uses[process{p.PID, p.Start}]; k != nil && k.identity != nil {
			add(p.UUID, k.identity)
		}
	}
	for _, g := range gifts {
		add(g.allocation.UUID, g.to)
	}
	var events []collector.Event
	last := map[string]set{}
	for i := range snap.GPUs {
		uuid := snap.GPUs[i].UUID
		last[uuid] = holders[uuid]
		if before, known := s.holders[uuid]; known && now.Sub(s.began) > settle {
			events = append(events, passed(uuid, before, last[uuid])...)
		}
	}
	s.holders = last
	return events
}

// passed has an event for each owner who came or went: one who came beside one who
// went has taken over.
func passed(uuid string, before, after set) []collector.Event {
	gone, come := missing(before, after), missing(after, before)
	var events []collector.Event
	for i := range max(len(gone), len(come)) {
		e := collector.Event{Kind: collector.OwnerEvent, UUID: uuid, From: unowned, To: unowned}
		if i < len(gone) {
			e.From = gone[i]
		}
		if i < len(come) {
			e.To = come[i]
		}
		events = append(events, e)
	}
	return events
}

// missing returns what is in a and not in b, sorted.
func missing(a, b set) []string {
	var out []string
	for name := range a {
		if !b[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// unowned is what is said of a GPU that nobody holds.
var unowned = collector.Owner{}.String()

func byPID(a, b process) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.start, b.start)) }

func compareOwners(a, b collector.Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Team, b.Team))
}
