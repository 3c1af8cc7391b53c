package detect

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const maxServices = 1024 // of which the replicas of several nodes are compared

// fleetQueueing is rule queueing for the replicas of a model on several nodes: requests
// wait at one while another has nothing to do, or all of them are at their limit, as their
// nodes say each for itself.
type fleetQueueing struct {
	of    map[service]*replicas
	order []service
	now   time.Time
}

// service is what has replicas: a model of one engine, of one team or of one set of pods.
type service struct{ engine, model, of string }

func (s service) subject() Subject { return Subject{"service", s.engine + "/" + s.model} }

// replicas are those of a service at the newest look.
type replicas struct {
	seen    time.Time
	share   *stream.Mean // of the time in which requests waited beside an idle one
	since   time.Time
	all     int
	nodes   map[string]bool
	waiting []placed // at which requests wait, and no idle one is on the same node
	idle    []placed
	waits   float64 // requests
	owner   collector.Owner

	full      int       // that are at their limit
	fullSince time.Time // all of them; the last to get there
	queued    float64   // requests, at all
	cache     float64   // the fullest KV cache; NaN: none is told
}

type placed struct{ node, url string }

func newFleetQueueing() *fleetQueueing { return &fleetQueueing{of: map[service]*replicas{}} }

func (d *fleetQueueing) Rule() *rules.Rule { return rules.Get(rules.IDQueueing) }

// look counts the replicas of each model and what they have to do.
func (d *fleetQueueing) look(now time.Time, heard []Heard) {
	d.now = now
	for i := range heard {
		s := heard[i].Snapshot
		if s == nil {
			continue
		}
		for k := range s.Endpoints {
			if e := &s.Endpoints[k]; e.Model != "" && s.Time.Sub(e.SampledAt(metric.Fast)) <= sampleGap {
				d.take(&heard[i], e)
			}
		}
	}
	maps.DeleteFunc(d.of, func(_ service, r *replicas) bool { return now.Sub(r.seen) > time.Hour })
	d.order = slices.SortedFunc(maps.Keys(d.of), func(a, b service) int {
		return cmp.Or(cmp.Compare(a.engine, b.engine), cmp.Compare(a.model, b.model), cmp.Compare(a.of, b.of))
	})
	for _, key := range d.order {
		d.of[key].judge(now)
	}
}

func (d *fleetQueueing) take(h *Heard, e *collector.Endpoint) {
	node := h.Node
	who, _ := h.Snapshot.OwnerOf(e)
	group, _ := groupOf(who)
	key := service{e.Engine, e.Model, cmp.Or(group, who.Team)}
	r := d.of[key]
	if r == nil {
		if len(d.of) >= maxServices {
			return
		}
		r = &replicas{share: stream.NewMean(demandWindow, 12, sampleGap)}
		d.of[key] = r
	}
	if !r.seen.Equal(d.now) {
		*r = replicas{share: r.share, since: r.since, nodes: map[string]bool{}, seen: d.now, cache: math.NaN()}
	}
	r.all++
	r.nodes[node] = true
	waiting, running := e.Value(metric.RequestsWaiting), e.Value(metric.RequestsRunning)
	if since, full := atLimit(h, e); full {
		r.full++
		r.fullSince = later(r.fullSince, since)
		r.owner = who
	}
	r.queued += positive(waiting)
	if used := e.Value(metric.KVCacheUsage); !(used <= r.cache) {
		r.cache = used
	}
	switch {
	case waiting >= 1 && e.Value(metric.EndpointStale) != 1:
		r.waiting = append(r.waiting, placed{node, e.URL})
		r.waits += waiting
		r.owner = who
	case waiting == 0 && running == 0 && e.Value(metric.EndpointUp) != 0:
		r.idle = append(r.idle, placed{node, e.URL})
	}
}

// atLimit reports whether the replica's node says that it is at its limit, and since when.
func atLimit(h *Heard, e *collector.Endpoint) (since time.Time, full bool) {
	for i := range h.Findings {
		f := &h.Findings[i]
		if f.State == Firing && f.Cause != causeIdleSibling && f.Cause != causeEpisodes && speaksOf(f, e) && (!full || f.Since.Before(since)) {
			since, full = f.Since, true
		}
	}
	return since, full
}

// speaksOf reports whether a finding is of an endpoint's queue, or of a GPU that is the
// reason of it.
func speaksOf(f *Finding, e *collector.Endpoint) bool {
	return f.Rule == rules.IDQueueing && f.Subject == EndpointSubject(e) ||
		f.Rule == rules.IDSaturatedGPU && f.Subject.Kind == "gpu" && slices.Contains(e.GPUs, f.Subject.ID)
}

// judge takes up one look. Replicas beside each other on one node are that node's to tell.
func (r *replicas) judge(now time.Time) {
	if !r.seen.Equal(now) {
		return
	}
	elsewhere := slices.ContainsFunc(r.waiting, func(w placed) bool {
		return !slices.ContainsFunc(r.idle, func(i placed) bool { return i.node == w.node })
	})
	r.share.Add(now, indicator(elsewhere && len(r.idle) > 0))
	share, covered := r.share.Over(now, demandWindow)
	switch {
	case covered < demandWindow/2 || share < 0.5:
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = now.Add(-time.Duration(share * float64(covered)))
	}
}

// Observe reports each model that has replicas on several nodes.
func (d *fleetQueueing) Observe(_ *collector.Snapshot, report func(Observation)) {
	for _, key := range d.order {
		r := d.of[key]
		if !r.seen.Equal(d.now) || len(r.nodes) < 2 {
			continue
		}
		o := Observation{Subject: key.subject(), Cause: causeIdleSibling, Severity: rules.Ticket, Owner: r.owner}
		if !r.since.IsZero() && len(r.waiting) > 0 && len(r.idle) > 0 {
			o.Score, o.At, o.Evidence = max(1, min(r.waits, 1000)), r.since, r.say(d.now)
			o.Node = r.waiting[0].node
		}
		report(o)
		o = Observation{Subject: key.subject(), Cause: causeAllReplicas, Severity: rules.Ticket, Owner: r.owner, Score: 0.9 * float64(r.full) / float64(r.all)}
		if r.full == r.all {
			o.Score, o.At, o.Evidence = max(1, min(r.queued, 1000)), r.fullSince, r.sayFull(d.now, key.model)
		}
		report(o)
	}
}

func (r *replicas) sayFull(now time.Time, model string) Evidence {
	want := float64(r.all - 1)
	e := Evidence{
		Title: fmt.Sprintf("All %d replicas of %s are at their limit", r.all, model), Observed: float64(r.full), Want: &want,
		Seen:     fmt.Sprintf("%s at all %d replicas on %s for %s", wait(r.queued), r.all, count(len(r.nodes), "node", "nodes"), span(now.Sub(r.fullSince))),
		Expected: "a replica that has room for what the others have not", Confidence: VerySure, Why: "each replica's node says it by its own queue",
		Action: "Add replicas: no balancing of load helps where none has room. Scale on waiting requests, not on CPU usage.",
	}
	if r.cache >= 0 {
		e.Seen += fmt.Sprintf("; the fullest KV cache is at %s", percentOf(r.cache))
	}
	return e
}

func wait(requests float64) string {
	return count(int(math.Round(requests)), "request waits", "requests wait")
}

func (r *replicas) say(now time.Time) Evidence {
	want := 0.0
	return Evidence{
		Title: "Requests wait beside an idle replica on another node", Observed: r.waits, Want: &want,
		Seen: fmt.Sprintf("%s wait at %d of %d replicas on %s, while %s (first %s on %s) have nothing to do, for %s",
			count(int(r.waits), "request", "requests"), len(r.waiting), r.all, r.waiting[0].node, count(len(r.idle), "replica", "replicas"), r.idle[0].url, r.idle[0].node, span(now.Sub(r.since))),
		Expected: "no request waits while a replica is free", Confidence: Certain, Why: "measured by the servers",
		Action: "Look at the load balancer: sessions that stick to a replica, a replica that it does not know, or one that it takes for unhealthy.",
	}
}
