package alerting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// firstWeek is the incident, and its rule, that the end of the first week is told as.
const firstWeek = "first_week"

// keptBack is what of an incident is remembered that was not sent in the first week.
type keptBack struct {
	Rule     rules.ID       `json:"rule"`
	Severity rules.Severity `json:"severity"`
	On       string         `json:"on"` // node, or node/GPU
	At       time.Time      `json:"at"`
}

func keepBack(i *detect.Incident) *keptBack {
	k := &keptBack{Rule: i.Rule, Severity: i.Severity, At: i.Opened}
	if len(i.Members) > 0 {
		k.On = subject(&i.Members[0], "")
	}
	return k
}

// sumUp tells a receiver once, when the first week is over, what it would have been
// sent. It returns how long it is until then. The caller holds o.mu.
func (o *Outbox) sumUp(q *queue, now time.Time) time.Duration {
	end := o.first.Add(o.cfg.Shadow)
	if left := end.Sub(now); left > 0 {
		return left
	}
	if o.cfg.Shadow == 0 || q.records[firstWeek] != nil {
		return time.Hour
	}
	byRule := map[rules.ID][]*keptBack{}
	for _, r := range q.records {
		if r.Kept != nil && !r.Missed {
			byRule[r.Kept.Rule] = append(byRule[r.Kept.Rule], r.Kept)
		}
	}
	if len(byRule) == 0 {
		return time.Hour
	}
	r := &record{key: q.Name + keySep + firstWeek}
	q.records[firstWeek] = r
	o.renew(r, summary(byRule, o.cfg.Node, end), now)
	q.put(r)
	return time.Hour
}

// summary is what was kept back in the words of an incident, a clause for each rule, the
// most frequent first.
func summary(byRule map[rules.ID][]*keptBack, node string, end time.Time) *detect.Incident {
	ids := slices.SortedFunc(maps.Keys(byRule), func(a, b rules.ID) int {
		return cmp.Or(cmp.Compare(len(byRule[b]), len(byRule[a])), cmp.Compare(a, b))
	})
	var clauses []string
	all := 0
	for _, id := range ids {
		kept := byRule[id]
		last := slices.MaxFunc(kept, func(a, b *keptBack) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.On, b.On)) })
		worst := slices.MaxFunc(kept, func(a, b *keptBack) int { return cmp.Compare(a.Severity, b.Severity) }).Severity
		clauses = append(clauses, fmt.Sprintf("%s %d × (%s, last %s on %s)", id, len(kept), worst, last.At.UTC().Format("2 Jan 15:04 MST"), last.On))
		all += len(kept)
	}
	findings := "findings"
	if all == 1 {
		findings = "finding"
	}
	return &detect.Incident{
		ID: firstWeek, Rule: firstWeek, Cause: firstWeek, Severity: rules.Info, State: detect.Firing, Opened: end, Updated: end,
		Members: []detect.Finding{{
			Rule: firstWeek, Cause: firstWeek, Subject: detect.Subject{Kind: "node", ID: node}, Node: node, GPUIndex: -1,
			Severity: rules.Info, State: detect.Firing, Since: end,
			Evidence: detect.Evidence{
				Title:      fmt.Sprintf("first days over: %d %s would have been sent", all, findings),
				Seen:       strings.Join(clauses, "; "),
				Expected:   "from now on findings like these are sent as they come",
				Confidence: detect.Certain,
				Action:     "Switch off in the configuration what you do not want; gpuvigil promote RULE says what more a rule may do.",
			},
		}},
	}
}
