package detect

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// words puts a finding's evidence into words, anew every few seconds only.
func (q *queue) words(cause int, now time.Time, say func(now time.Time) Evidence) Evidence {
	if q.toldAt[cause].IsZero() || now.Sub(q.toldAt[cause]) >= evidenceEvery || now.Before(q.toldAt[cause]) {
		q.told[cause], q.toldAt[cause] = say(now), now
	}
	return q.told[cause]
}

func (q *queue) sayAboveSLO(now time.Time) Evidence {
	limit := q.limit
	ev := Evidence{
		Observed: finite(q.p95), Want: &limit, Title: "Requests wait longer than their objective allows",
		Seen:     q.seen(fmt.Sprintf("queue-time p95 %s for %s", seconds(finite(q.p95)), span(now.Sub(q.since))), now),
		Expected: "queue-time p95 below its SLO of " + seconds(limit), Action: q.action(),
	}
	ev.Confidence, ev.Why = q.sure()
	return ev
}

func (q *queue) sayGrowing(now time.Time) Evidence {
	usual := max(1, finite(q.waited.Quantile(0.99)))
	ev := Evidence{
		Observed: q.waiting, Want: &usual, Title: "Queue grows: more requests arrive than are served",
		Seen:       q.seen(fmt.Sprintf("the queue has grown for %s, by more than %s of work", span(now.Sub(q.kept.Since)), span(time.Duration(q.kept.Work)*time.Second)), now),
		Expected:   "no more than " + significant(usual, 2) + " requests waiting, as in 99 % of the time before",
		Confidence: VerySure, Why: "a server that is loaded to 80 % has such a queue less than once in a hundred weeks", Action: q.action(),
	}
	if q.waited.Weight() < blindBefore.Seconds() {
		ev.Expected = "as many requests served as arrive"
	}
	if q.waited.Weight() < youngBefore.Seconds() {
		ev.Confidence, ev.Why = Young, "only "+span(time.Duration(q.waited.Weight())*time.Second)+" of history"
	}
	return ev
}

func (q *queue) sayEpisodes(now time.Time) Evidence {
	n, want := 0, float64(episodesMany-1)
	for _, e := range q.kept.Episodes {
		if now.Sub(e.End) < day24 && !e.Told {
			n++
		}
	}
	last := q.kept.Episodes[len(q.kept.Episodes)-1]
	what := "its SLO of "
	if !q.slo {
		what = "their own 99th percentile of "
	}
	ev := Evidence{
		Observed: float64(n), Want: &want, Title: "Requests wait too long again and again",
		Seen:       q.name() + fmt.Sprintf("%d times in 24 h requests waited longer than %s%s, last at %s", n, what, seconds(finite(q.limit)), last.Start.UTC().Format("15:04 UTC")),
		Expected:   "fewer than " + count(episodesMany, "such time", "such times") + " in 24 h",
		Confidence: Certain, Why: "measured by the server against its SLO", Action: "Add a replica for the time in which they wait, or spread what is sent then.",
	}
	if when := pattern(q.kept.Episodes, now); when != "" {
		ev.Seen += "; " + when
	}
	if !q.slo {
		ev.Confidence, ev.Why = Likely, "far more often than in the days before"
	}
	return ev
}

func (q *queue) sayIdleSibling(now time.Time) Evidence {
	want := 0.0
	return Evidence{
		Observed: q.waiting, Want: &want, Title: "Requests wait beside an idle replica",
		Seen:       q.seen(fmt.Sprintf("they wait while %s of the same model has nothing to do, for %s", q.sibling, span(now.Sub(q.idleSince))), now),
		Expected:   "no request waits while a replica is free",
		Confidence: Certain, Why: "both servers say so",
		Action: "Look at the load balancer: sessions that stick to a replica, a replica that it does not know, or one that it takes for unhealthy.",
	}
}

// seen are the numbers of a queue, after what is to be said first.
func (q *queue) seen(first string, now time.Time) string {
	parts := []string{count(int(finite(q.waiting)), "request waiting", "requests waiting"), first}
	add := func(x float64, format func(float64) string) {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			parts = append(parts, format(x))
		}
	}
	if !math.IsNaN(q.arrivals) && !math.IsNaN(q.served) {
		parts = append(parts, fmt.Sprintf("%s/s arrive and %s/s are served", significant(q.arrivals, 2), significant(q.served, 2)))
	}
	add(q.load, func(x float64) string { return "utilization " + percentOf(x) })
	if q.kv >= 0 {
		parts = append(parts, "KV cache "+percentOf(q.kv))
	}
	lost, _ := q.preempts.Over(now, 5*time.Minute)
	if lost > 0 {
		parts = append(parts, significant(60*lost, 2)+" preemptions a minute")
	}
	add(q.consistent, func(x float64) string {
		if x > 0.5 && x < 2 {
			return "Little's law agrees"
		}
		return "Little's law does not agree (" + significant(x, 2) + ")"
	})
	if n := q.missing(); n > 0 {
		parts = append(parts, fmt.Sprintf("about %s needed beside the %d here", count(n, "more replica is", "more replicas are"), q.replicas))
	}
	if when := pattern(q.kept.Episodes, now); when != "" {
		parts = append(parts, when)
	}
	return q.name() + strings.Join(parts, ", ")
}

func (q *queue) name() string {
	if q.model == "" {
		return ""
	}
	return q.model + ": "
}

// missing is how many replicas more would bring the load down to what is healthy; 0 if
// that is not known. Those of the node are taken to be loaded alike.
func (q *queue) missing() int {
	load := q.load
	if math.IsNaN(load) && q.served > 0 {
		load = q.arrivals / q.served
	}
	if !(load > healthyLoad) || load > 1000 {
		return 0
	}
	return int(math.Ceil(float64(q.replicas) * (load/healthyLoad - 1)))
}

func (q *queue) action() string {
	lost, _ := q.preempts.Over(q.at, 5*time.Minute)
	switch n := q.missing(); {
	case q.kv >= 0.95 || lost > 0:
		return "Give the KV cache room: fewer or shorter requests at once, or more replicas; a faster GPU alone does not help."
	case n > 0:
		return "Add about " + count(n, "replica", "replicas") + ", and scale on waiting requests."
	}
	return "Find out what serves the requests slowly: the GPU is not busy all the time."
}

// finite is 0 for what is not told, for words and numbers of a finding.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
