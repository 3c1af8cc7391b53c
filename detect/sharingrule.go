package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// decay is how far a mean with the half-life moves to a value that stood for dt.
func decay(dt, halfLife time.Duration) float64 {
	return 1 - math.Exp2(-dt.Seconds()/halfLife.Seconds())
}

// positive is the value, or 0 if it is absent.
func positive(v float64) float64 {
	if v > 0 {
		return v
	}
	return 0
}

// judge reports the causes on one device. Where it cannot be judged nothing is said.
func (d *Sharing) judge(s *collector.Snapshot, g *collector.GPU, key deviceKey, dev *device, report func(Observation)) {
	given := givenOn(s, g, key)
	var pair [2]*tenant
	var outsider *tenant
	for _, t := range dev.tenants {
		if t.since.IsZero() || dev.at.Sub(t.last) > sampleGap {
			continue
		}
		if wasGiven(given, t.owner) {
			t.given = s.Time
		}
		if outsider == nil && d.outside(s, g, given, t) {
			outsider = t
		}
		for _, o := range dev.tenants {
			if pair[0] == nil && o != t && !o.since.IsZero() && dev.at.Sub(o.last) <= sampleGap && d.hidden(s, given, dev, t, o) {
				pair = [2]*tenant{o, t}
			}
		}
	}
	d.tell(s, g, key, dev, twoOwners, pair[1], pair[0], report)
	d.tell(s, g, key, dev, outsideAllocation, outsider, dev.biggest(outsider), report)
	if key.mig == "" {
		d.tellDead(s, g, dev, report)
	}
}

// givenOn returns who was given the device, or the whole GPU that it is a part of.
func givenOn(s *collector.Snapshot, g *collector.GPU, key deviceKey) []collector.Allocation {
	if key.mig == "" {
		return g.Allocations
	}
	for i := range s.Instances {
		if m := &s.Instances[i]; m.UUID == key.uuid && m.MIG() == key.mig && len(m.Allocations) > 0 {
			return m.Allocations
		}
	}
	return g.Allocations
}

func wasGiven(given []collector.Allocation, o collector.Owner) bool {
	return slices.ContainsFunc(given, func(a collector.Allocation) bool { return a.Owner.Kind == o.Kind && a.Owner.ID == o.ID })
}

// allotted reports whether it is known who was given the devices of this node.
func (d *Sharing) allotted(s *collector.Snapshot) bool {
	return s.Node.Value(metric.AllocationsKnown) == 1 && !(s.Node.Value(metric.AllocationsUnresolved) > 0)
}

// outside reports whether somebody uses a device that a scheduler of the node has given
// to somebody else.
func (d *Sharing) outside(s *collector.Snapshot, g *collector.GPU, given []collector.Allocation, t *tenant) bool {
	if len(given) == 0 || !d.allotted(s) || wasGiven(given, t.owner) {
		return false // a device that was given to nobody is no business of this rule
	}
	if given := giver(t.owner.Kind); given != "other" && d.givers[given].IsZero() {
		return false // Slurm jobs beside Kubernetes, or the other way: nobody tells what that one gives
	}
	ofJob := func(a collector.Allocation) bool { return a.Owner.Kind == "job" }
	switch t.owner.Kind {
	case "pod":
		return strings.Contains(t.owner.ID, "/") // else it is known by a uid, which the kubelet does not tell of a gift
	case "container":
		return !slices.ContainsFunc(given, ofJob) // what a job starts through Docker's daemon is not in the job's cgroup
	}
	return true
}

// hidden reports whether two owners share a device that nobody has declared shared. Who
// is outside of their allocation is told as that.
func (d *Sharing) hidden(s *collector.Snapshot, given []collector.Allocation, dev *device, a, b *tenant) bool {
	switch {
	case dev.mps && a.mps && b.mps, sameRay(s, a.owner, b.owner):
		return false
	case len(given) > 0 && d.allotted(s):
		return false // both were given it, or one is outside
	case len(d.givers) > 0 && d.allotted(s):
		return false // it was given to nobody: use of it is unallocated
	}
	// A scheduler gives devices to owners of one kind, perhaps in shares. What it gave
	// is not known here.
	kinds := []string{a.owner.Kind, b.owner.Kind}
	if slices.Contains(kinds, "job") && slices.Contains(kinds, "container") {
		return false // the job may have started it
	}
	return kinds[0] != kinds[1] || giver(kinds[0]) == "other"
}

// sameRay reports whether two pods are of one Ray cluster, as their labels say.
func sameRay(s *collector.Snapshot, a, b collector.Owner) bool {
	of := func(o collector.Owner) string {
		if w := s.WorkloadOf(o); w != nil {
			for _, l := range w.Labels {
				if l.Name == "ray.io/cluster" {
					return l.Value
				}
			}
		}
		return ""
	}
	cluster := of(a)
	return cluster != "" && cluster == of(b)
}

// biggest returns the tenant beside the one who has the most memory, nil if there is
// none.
func (dev *device) biggest(but *tenant) *tenant {
	var most *tenant
	for _, t := range dev.tenants {
		if t != but && t.listed && (most == nil || t.memory > most.memory) {
			most = t
		}
	}
	return most
}

func (d *Sharing) tell(s *collector.Snapshot, g *collector.GPU, key deviceKey, dev *device, cause string, t, beside *tenant, report func(Observation)) {
	o := Observation{Subject: gpuSubject(g.UUID), Cause: cause, GPU: g}
	if t == nil {
		report(o)
		return
	}
	since := t.since
	switch {
	case cause == outsideAllocation:
		since = later(since, t.given) // who gives a device back is listed for a moment longer
	case beside.since.After(since):
		since, t, beside = beside.since, beside, t // who came last is the one that is told of
	}
	o.Owner, o.At, o.Severity = t.owner, since, rules.Ticket
	o.Score = s.Time.Sub(since).Seconds() / shareAfter.Seconds()
	i := slices.Index([]string{twoOwners, outsideAllocation}, cause)
	if o.Score >= 1 && (s.Time.Sub(dev.toldAt[i]) >= time.Minute || dev.toldAt[i].Before(since)) {
		dev.told[i], dev.toldAt[i] = d.evidence(s, g, key, cause, t, beside, since), s.Time
	}
	o.Evidence = dev.told[i]
	report(o)
}

func (d *Sharing) evidence(s *collector.Snapshot, g *collector.GPU, key deviceKey, cause string, t, beside *tenant, since time.Time) Evidence {
	on := fmt.Sprintf("GPU %d", g.Index)
	if key.mig != "" {
		on += " instance " + key.mig
	}
	ev := Evidence{Observed: 1, Confidence: Certain, Why: "processes and their owners are listed by the driver and the kernel"}
	want := 0.0
	switch cause {
	case twoOwners:
		ev.Observed, want = 2, 1
		ev.Title, ev.Expected = "GPU shared by two owners without anybody having said so", "one owner, or sharing that a scheduler declares"
	case outsideAllocation:
		ev.Title, ev.Expected = "GPU used by somebody who was not given it", "only owners whom a scheduler gave the GPU"
	}
	ev.Want = &want
	ev.Seen = t.words() + " on " + on
	if beside != nil {
		ev.Observed = 2
		ev.Seen += " beside " + beside.words()
		if beside.alone > beside.sm+0.05 {
			ev.Seen += fmt.Sprintf(", which had %s before", percentOf(beside.alone))
		}
		if a, b := sensitivityOf(s, t.owner), sensitivityOf(s, beside.owner); a != "" && b != "" && a != b {
			ev.Title = strings.Replace(ev.Title, "GPU", fmt.Sprintf("GPU with data of classes %s and %s", b, a), 1)
		}
	}
	if busy := g.Value(metric.Utilization); key.mig == "" && busy >= 0 {
		ev.Seen += fmt.Sprintf("; the GPU is %s busy", percentOf(busy))
		for _, reason := range []string{"sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"} {
			if g.ValueAt(metric.ClockEvent, metric.ClockReason.Index(reason)) == 1 {
				ev.Seen += ", its clocks held down by " + reason
			}
		}
	}
	ev.Seen += ", for " + span(s.Time.Sub(since))
	return ev
}

// words names a tenant with what it uses.
func (t *tenant) words() string {
	uses := gibibytes(t.memory)
	if t.memory < 1<<30 {
		uses = fmt.Sprintf("%.0f MiB", t.memory/(1<<20))
	}
	return fmt.Sprintf("%s (%s, %s of the SMs)", ownerWords(t.owner), uses, percentOf(t.sm))
}

func sensitivityOf(s *collector.Snapshot, o collector.Owner) string {
	if w := s.WorkloadOf(o); w != nil {
		return w.Sensitivity
	}
	return ""
}
