package fleet

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Jobs wait longer than their queue declares and no GPU is free: what is held idle is said,
// and by whom.
func TestJobsWaitWhileGPUsAreHeldIdle(t *testing.T) {
	a := newAgents(t, 10)
	c := &Cluster{}
	a.role = clusterRole(t, Config{
		Schedulers: []Scheduler{{Name: "slurm", Latest: func() *Cluster { c.Time = a.now; return c }}},
		Detect:     detect.FleetConfig{Waiting: detect.WaitingConfig{SLO: time.Hour}},
	})
	a.owner["gpu-003"] = collector.Owner{Kind: "job", ID: "slurm/7", Team: "nlp"}
	a.run(20 * time.Minute)
	for i := range 8 {
		a.says("gpu-003", "idle_gpu", "info", "gpu:GPU-gpu-003-"+string(rune('0'+i)), "held")
	}
	a.says("gpu-004", "idle_gpu", "info", "gpu:GPU-gpu-004-0", "held")
	c.Work = []Work{{Queue: "gpu", State: "waiting", Jobs: 3, GPUs: 8, PerNode: 8, Since: a.now.Add(-3 * time.Hour)}}
	a.run(10 * time.Minute)
	var f *detect.Finding
	for _, in := range a.open() {
		if in.Rule == rules.IDWaitingJobs {
			f = &in.Members[0]
		}
	}
	if f == nil {
		t.Fatalf("three jobs wait for three hours, open is %s", namesOf(a.open()))
	}
	for _, want := range []string{"no GPU is free that is right for them", "9 of the cluster's 80 GPUs are held idle, 8 of them by job slurm/7"} {
		if !strings.Contains(f.Evidence.Seen, want) {
			t.Errorf("it does not say %q: %s", want, f.Evidence.Seen)
		}
	}
	if !strings.HasPrefix(f.Action(), "Have the GPUs released") {
		t.Errorf("what to do is %q", f.Action())
	}
}
