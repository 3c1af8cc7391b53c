package synth

import (
	"slices"
	"testing"

	"gpuvigil/rules"
)

// Each rule is asked for by a synthetic fault that no other rule is right for, so that a
// detector which no longer finds anything turns the trial of all cases red.
func TestEveryRuleHasAFaultOfItsOwn(t *testing.T) {
	for _, r := range rules.All() {
		if !slices.ContainsFunc(Cases(), func(c *Case) bool { return slices.Equal(c.Rules, []rules.ID{r.ID}) }) {
			t.Errorf("no synthetic fault asks for rule %s alone: its detector could be lost and nobody would see it", r.ID)
		}
	}
}
