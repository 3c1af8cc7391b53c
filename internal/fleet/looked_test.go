package fleet

import (
	"testing"
	"time"

	"gpuvigil/detect"
)

// While nobody sends, looks are as of the clock; what is sent then is as of its samples,
// which are older. Nothing ends before it began, and nothing is told twice.
func TestTimeDoesNotGoBackAfterASilence(t *testing.T) {
	a := newAgents(t, 3)
	a.says("gpu-000", "xid", "page", "gpu:GPU-gpu-000-1", "79")
	a.run(10 * time.Minute)
	told := len(a.said)
	silent := a.now.Add(2 * time.Minute)
	a.role.Observe(silent, nil)
	a.said = append(a.said, a.role.Observe(silent.Add(-30*time.Second), a.snapshots())...)
	if at := a.role.View().Time; at.Before(silent) {
		t.Errorf("after a look at %v the next one is of %v", silent, at)
	}
	a.now = silent
	a.run(5 * time.Minute)
	if len(a.said) != told {
		t.Errorf("told are %s, all but the first %d because time went back", namesOf(a.said), told)
	}
	for _, in := range a.role.View().Incidents {
		if in.State == detect.Firing && in.Updated.Before(in.Opened) {
			t.Errorf("%s changed at %v, before it was opened at %v", in.ID, in.Updated, in.Opened)
		}
	}
}
