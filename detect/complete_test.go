package detect

import (
	"slices"
	"testing"

	"gpuvigil/rules"
)

// A rule of the book that no detector stands behind promises what nobody looks for: each
// has one on the node or in the cluster's role, and none has two at one place.
func TestEveryRuleHasItsDetector(t *testing.T) {
	places := map[string][]Detector{"the node": Detectors(DetectorConfig{}), "the cluster": FleetDetectors(FleetConfig{})}
	has := map[rules.ID]bool{}
	for place, detectors := range places {
		seen := map[rules.ID]bool{}
		for _, d := range detectors {
			id := d.Rule().ID
			if seen[id] {
				t.Errorf("two detectors on %s tell of rule %s", place, id)
			}
			seen[id], has[id] = true, true
		}
	}
	for _, r := range rules.All() {
		if !has[r.ID] {
			t.Errorf("rule %s (%s) is in the book, and no detector looks for it: nobody would be told", r.ID, r.Title)
		}
	}
	for id := range has {
		if !slices.ContainsFunc(rules.All(), func(r *rules.Rule) bool { return r.ID == id }) {
			t.Errorf("a detector tells of %s, which the book does not have", id)
		}
	}
}
