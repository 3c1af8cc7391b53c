package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
)

var nobody collector.Owner

// TestStatesByTheirEvidence holds what a second of one GPU is, by what the snapshot
// says of it.
func TestStatesByTheirEvidence(t *testing.T) {
	nan := collector.NewReadings(metric.GPU).Value(metric.Utilization)
	type want = map[owned]float64
	one := func(o collector.Owner, s cost.State) want { return want{{o, s}: 1} }
	given := func(n node, o ...collector.Owner) {
		for _, o := range o {
			n.GPUs[0].Allocations = append(n.GPUs[0].Allocations, collector.Allocation{UUID: n.GPUs[0].UUID, Owner: o})
		}
	}
	set := func(n node, row *metric.Def, v float64) { n.GPUs[0].Set(row, v) }
	// asked is a source of owners that says what it can, and that something fails.
	asked := func(n node) {
		n.Sources = append(n.Sources, collector.SourceState{Name: "owner", Interval: time.Second, Err: "a file cannot be read"})
	}
	for name, c := range map[string]struct {
		change func(n node)
		want   want
	}{
		"nobody on it":            {func(node) {}, one(nobody, cost.Free)},
		"SM activity of 5 %":      {func(n node) { n.process(0, "", train, 0.9, 1); set(n, metric.SMActivity, 0.05) }, one(train, cost.Busy)},
		"SM activity below 5 %":   {func(n node) { n.process(0, "", train, 0.9, 1); set(n, metric.SMActivity, 0.049) }, one(train, cost.IdleHeld)},
		"spinning by utilization": {func(n node) { n.process(0, "", train, 1, 1); set(n, metric.Utilization, 1) }, one(train, cost.IdleHeld)},
		"works, nobody is listed": {func(n node) { set(n, metric.SMActivity, 1) }, one(nobody, cost.Busy)},
		"works, given and hidden": {func(n node) { set(n, metric.SMActivity, 1); given(n, chat) }, one(chat, cost.Busy)},
		"somebody else on it":     {func(n node) { n.process(0, "", train, 1, 1); given(n, chat); set(n, metric.SMActivity, 1) }, one(train, cost.Busy)},
		"process of nobody":       {func(n node) { n.process(0, "", nobody, 1, 1); set(n, metric.SMActivity, 1) }, one(nobody, cost.Busy)},
		"shared, by SM time": {func(n node) {
			n.process(0, "", train, 0.6, 1)
			n.process(0, "", chat, 0.2, 9)
			set(n, metric.SMActivity, 0.8)
		}, want{{train, cost.Busy}: 0.75, {chat, cost.Busy}: 0.25}},
		"shared, one does not say": {func(n node) {
			n.process(0, "", train, nan, 1)
			n.process(0, "", chat, 0.2, 3)
			set(n, metric.SMActivity, 0.8)
		}, want{{train, cost.Busy}: 0.25, {chat, cost.Busy}: 0.75}},
		"shared and idle, by memory": {func(n node) { n.process(0, "", train, 0.01, 1); n.process(0, "", chat, 0, 4) },
			want{{train, cost.IdleHeld}: 0.2, {chat, cost.IdleHeld}: 0.8}},
		"shared, nothing is told": {func(n node) { n.process(0, "", train, nan, nan); n.process(0, "", chat, nan, nan) }, want{{train, cost.IdleHeld}: 0.5, {chat, cost.IdleHeld}: 0.5}},
		"given, no process":       {func(n node) { given(n, chat) }, one(chat, cost.HeldWithoutProcess)},
		"given in shares":         {func(n node) { given(n, chat, chat, chat, train) }, want{{chat, cost.HeldWithoutProcess}: 0.75, {train, cost.HeldWithoutProcess}: 0.25}},
		"named by its source":     {func(n node) { n.GPUs[0].Owners = []collector.Owner{chat} }, one(chat, cost.HeldWithoutProcess)},
		"a service alone": {func(n node) {
			n.process(0, "", chat, 0, 1)
			n.Processes[0].Name = "nv-hostengine"
			n.GPUs[0].Owners = []collector.Owner{chat}
		}, one(nobody, cost.Free)},
		"a count without names": {func(n node) { set(n, metric.ProcessCount, 2); given(n, chat) }, one(chat, cost.IdleHeld)},
		"lost":                  {func(n node) { set(n, metric.GPUPresent, 0); given(n, chat) }, one(nobody, cost.Unavailable)},
		"not on the exporter's page": {func(n node) {
			n.Pages = []collector.Page{{GPUs: true}}
			set(n, metric.GPUPresent, 0)
			given(n, chat)
		}, one(nobody, cost.Unobserved)},
		"a page that tells of no processes": {func(n node) {
			n.Pages = []collector.Page{{GPUs: true}}
			set(n, metric.ProcessCount, nan)
			set(n, metric.Utilization, 0)
			given(n, chat)
		}, one(nobody, cost.Unobserved)},
		"a page of a GPU that works": {func(n node) {
			n.Pages = []collector.Page{{GPUs: true}}
			set(n, metric.ProcessCount, nan)
			set(n, metric.SMActivity, 0.97)
			given(n, chat)
		}, one(chat, cost.Busy)},
		"hung":        {func(n node) { n.GPUs[0].Hung = true }, one(nobody, cost.Unavailable)},
		"to be reset": {func(n node) { set(n, metric.RecoveryAction, 1); given(n, chat) }, one(nobody, cost.Unavailable)},
		"to be reset, and works": {func(n node) {
			set(n, metric.RecoveryAction, 1)
			n.process(0, "", train, 1, 1)
			set(n, metric.SMActivity, 1)
		}, one(train, cost.Busy)},
		"peers to be drained":                        {func(n node) { set(n, metric.RecoveryAction, 3) }, one(nobody, cost.Free)},
		"rows cannot be replaced":                    {func(n node) { set(n, metric.RemapFailed, 1) }, one(nobody, cost.Unavailable)},
		"drained":                                    {func(n node) { n.Node.Set(metric.Drained, 1) }, one(nobody, cost.Unavailable)},
		"drained and occupied":                       {func(n node) { n.Node.Set(metric.Drained, 1); n.process(0, "", train, 0, 1) }, one(train, cost.IdleHeld)},
		"not drained":                                {func(n node) { n.Node.Set(metric.Drained, 0) }, one(nobody, cost.Free)},
		"nobody answers":                             {func(n node) { set(n, metric.GPUPresent, nan) }, one(nobody, cost.Unobserved)},
		"no list of processes":                       {func(n node) { set(n, metric.ProcessCount, nan) }, one(nobody, cost.Unobserved)},
		"no list, and works":                         {func(n node) { set(n, metric.ProcessCount, nan); set(n, metric.SMActivity, 0.5); given(n, chat) }, one(chat, cost.Busy)},
		"owners are asked, and have never been told": {func(n node) { asked(n) }, one(nobody, cost.Unobserved)},
		"the kubelet does not answer": {func(n node) {
			asked(n)
			n.Node.Set(metric.AllocationsKnown, 0)
		}, one(nobody, cost.Unobserved)},
		"the kubelet does not answer, Slurm tells": {func(n node) {
			asked(n)
			n.Node.Set(metric.AllocationsKnown, 0)
			given(n, train)
		}, one(train, cost.HeldWithoutProcess)},
		"nobody was given it, but a name cannot be read": {func(n node) {
			asked(n)
			n.Node.Set(metric.AllocationsKnown, 1)
		}, one(nobody, cost.Free)},
		"owners are not known, a process is": {func(n node) {
			asked(n)
			n.process(0, "", nobody, 0, 1)
		}, one(nobody, cost.IdleHeld)},
		"held, and nothing tells of work": {func(n node) {
			n.process(0, "", train, 0, 1)
			for _, row := range []*metric.Def{metric.SMActivity, metric.Utilization, metric.PowerDraw} {
				set(n, row, nan)
			}
		}, one(nobody, cost.Unobserved)},
		"no SM activity, utilization": {func(n node) {
			n.process(0, "", train, 1, 1)
			set(n, metric.SMActivity, nan)
			set(n, metric.Utilization, 0.05)
		}, one(train, cost.Busy)},
		"no SM activity nor utilization, much power": {func(n node) {
			n.process(0, "", train, 1, 1)
			set(n, metric.SMActivity, nan)
			set(n, metric.Utilization, nan)
			set(n, metric.PowerDraw, 281)
		}, one(train, cost.Busy)},
		"no SM activity nor utilization, little power": {func(n node) {
			n.process(0, "", train, 1, 1)
			set(n, metric.SMActivity, nan)
			set(n, metric.Utilization, nan)
			set(n, metric.PowerDraw, 279)
		}, one(train, cost.IdleHeld)},
		"instances": {func(n node) {
			n.instance(0, 1, "3g.40gb", 0.9)
			n.instance(0, 2, "1g.10gb", 0, chat)
			n.instance(0, 3, "1c.2g.20gb", 0)
			n.process(0, "1/0", train, nan, 5)
			n.Instances[0].Set(metric.MIGProcesses, 1)
		}, want{{train, cost.Busy}: 3. / 7, {chat, cost.HeldWithoutProcess}: 1. / 7, {nobody, cost.Free}: 3. / 7}},
		"an instance of which nothing is listed": {func(n node) {
			n.instance(0, 1, "7g.80gb", nan)
			n.Instances[0].Set(metric.MIGProcesses, nan)
		}, one(nobody, cost.Unobserved)},
		"instances without activity, the GPU draws power": {func(n node) {
			n.instance(0, 1, "4g.40gb", nan)
			n.instance(0, 2, "3g.40gb", nan)
			n.process(0, "1/0", train, nan, 5)
			set(n, metric.SMActivity, nan)
			set(n, metric.Utilization, nan)
			set(n, metric.PowerDraw, 400)
		}, want{{train, cost.Busy}: 4. / 7, {nobody, cost.Free}: 3. / 7}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, price.Config{})
			b.Observe(at(start, 1).Snapshot)
			n := at(start.Add(time.Second), 1)
			c.change(n)
			b.Observe(n.Snapshot)
			got := b.sums()
			for k := range got {
				got[k] = float64(int64(got[k]*1e8+0.5)) / 1e8
			}
			for k := range c.want {
				c.want[k] = float64(int64(c.want[k]*1e8+0.5)) / 1e8
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(owned{})); diff != "" {
				t.Errorf("a second of the GPU is booked otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPowerAtRestIsLearned holds that a GPU without SM activity, once it has rested
// with a context open, works when it draws a tenth of its limit more.
func TestPowerAtRestIsLearned(t *testing.T) {
	b := newBench(t, price.Config{})
	when := start
	second := func(power, util float64) {
		when = when.Add(time.Second)
		n := at(when, 1)
		n.process(0, "", train, 0, 1)
		n.GPUs[0].Set(metric.SMActivity, collector.NewReadings(metric.GPU).Value(metric.SMActivity))
		n.GPUs[0].Set(metric.PowerDraw, power)
		n.GPUs[0].Set(metric.Utilization, util)
		b.Observe(n.Snapshot)
	}
	second(118, 0)
	for range 600 {
		second(118, 0)
	}
	b.write()
	b.restart() // what was learned survives
	second(118, 0)
	before := b.sums()
	for range 100 {
		second(150, 1) // spins on a dead collective
	}
	for range 50 {
		second(300, 1)
	}
	after := b.sums()
	idle, busy := owned{train, cost.IdleHeld}, owned{train, cost.Busy}
	if after[idle]-before[idle] != 100 || after[busy]-before[busy] != 50 {
		t.Errorf("at 150 W of 700 a GPU that rests at 118 W is idle for %v of 100 s; at 300 W busy for %v of 50 s",
			after[idle]-before[idle], after[busy]-before[busy])
	}
}

func TestSlicesOfProfiles(t *testing.T) {
	for profile, want := range map[string]uint64{"1g.10gb": 1, "7g.80gb": 7, "1c.3g.40gb": 1, "2c.4g.40gb": 2, "1g.10gb+me": 1, "": 1, "whole": 1, "0g.1gb": 1, "12g.1gb": 1} {
		if got := slicesOf(profile); got != want {
			t.Errorf("an instance of profile %q has %d slices, want %d", profile, got, want)
		}
	}
	if slicesIn("NVIDIA A30") != 4 || slicesIn(h100) != 7 {
		t.Error("a GPU is cut into another number of slices")
	}
}
