package detect

import (
	"fmt"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// A role that is started anew knows what was usual of a job's GPUs, and finds the one that
// becomes slow as soon as one that has watched all the time.
func TestStragglerAmongNodesOverARestart(t *testing.T) {
	stage := func() *acrossStage {
		r := newRanks()
		r.gpus = 16
		r.compute = since(11, 3, 1, 1.2)
		return newAcrossStage(t, time.Minute, func(at time.Time) []*collector.Snapshot {
			all := &collector.Snapshot{Time: at}
			r.set(all)
			var out []*collector.Snapshot
			for n := range 2 {
				s := node(at, 0)
				s.Node.Name = nodeName(n)
				s.GPUs = all.GPUs[8*n : 8*n+8]
				for i := range s.GPUs {
					s.GPUs[i].Index, s.GPUs[i].UUID = i, fmt.Sprintf("GPU-%d-%d", n, i)
				}
				if n == 0 {
					s.Workloads = all.Workloads
				}
				out = append(out, s)
			}
			return out
		})
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
