package detect

import (
	"testing"
	"time"

	"gpuvigil/rules"
)

// A role that is started anew knows what was usual of a job's GPUs, and finds the one that
// becomes slow as soon as one that has watched all the time.
func TestStragglerAmongNodesOverARestart(t *testing.T) {
	stage := func() *acrossStage {
		r := newRanks()
		r.compute = since(11, 3, 1, 1.2)
		return ranksOfTwoNodes(t, r)
	}
	// restarted watches for three hours and then goes on as a new role.
	restarted := func(remembers bool) *acrossStage {
		before, after := stage(), stage()
		before.run(3 * time.Hour)
		after.now = before.now
		if remembers {
			state, err := before.engine.Save()
			if err == nil {
				err = after.engine.Restore(state)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return after
	}
	until := func(a *acrossStage) time.Duration {
		for d := time.Duration(0); d < 3*time.Hour; d += time.Minute {
			if a.run(time.Minute); a.fires(rules.IDStraggler) != nil {
				return d
			}
		}
		return 3 * time.Hour
	}
	whole := stage()
	whole.run(3 * time.Hour)
	want, got, blind := until(whole), until(restarted(true)), until(restarted(false))
	if (got-want).Abs() > 5*time.Minute || blind < 2*time.Hour {
		t.Errorf("a GPU that becomes slow is found after %v, after a restart %v, and without memory after %v: the memory is of no use", want, got, blind)
	}
	a := restarted(true)
	a.run(time.Hour)
	if f := a.fires(rules.IDStraggler); f == nil || f.Node != "gpu-001" {
		t.Errorf("after a restart it names %+v, want the GPU of gpu-001", f)
	}
}
