package detect

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// say puts into words what is unusual of a model's use.
func (u *endpointUse) say(now time.Time, factor float64) Evidence {
	var seen, usual []string
	since := now
	for i := range u.read {
		r := &u.read[i]
		if r.since.IsZero() {
			continue
		}
		if r.since.Before(since) {
			since = r.since
		}
		seen = append(seen, useWords(i, r.x, true))
		usual = append(usual, useWords(i, r.typical, false))
	}
	if p, a := &u.read[usePrompt], &u.read[useAnswer]; p.x > 0 && !math.IsNaN(a.x) && (!p.since.IsZero() || !a.since.IsZero()) {
		seen = append(seen, significant(a.x/p.x, 2)+" tokens out for each one in")
		if p.typical > 0 && a.typical > 0 {
			usual = append(usual, significant(a.typical/p.typical, 2)+" out for each one in")
		}
	}
	want := 1.0
	ev := Evidence{
		Observed: factor, Want: &want,
		Seen:       strings.Join(seen, ", ") + " for " + span(now.Sub(since)) + "; volume per client: not available, the server's metrics name no client",
		Expected:   "about " + strings.Join(usual, ", "),
		Confidence: Likely, Why: fmt.Sprintf("unlike %s of its own history", span(now.Sub(u.kept.First))),
	}
	if len(usual) > 0 && u.model != "" {
		ev.Seen = u.model + ": " + ev.Seen
	}
	return ev
}

// useWords writes a reading, as a whole or short.
func useWords(which int, x float64, whole bool) string {
	unit := ""
	if whole {
		unit = " on average"
	}
	switch which {
	case usePrompt:
		return significant(finite(x), 2) + " tokens a prompt" + unit
	case useAnswer:
		return significant(finite(x), 2) + " tokens an answer" + unit
	case useErrors:
		return significant(100*finite(x), 2) + " % of requests with an error"
	case useVolume:
		return significant(finite(x), 2) + " times the requests of this hour"
	}
	return significant(finite(x), 2) + " tokens out for each one in"
}
