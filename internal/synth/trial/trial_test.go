package trial

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/backtest"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/synth"
	"gpuvigil/rules"
)

var (
	fleetWeeks = flag.Float64("fleet.gpu-weeks", 4, "how many GPU-weeks of healthy synthetic nodes to watch, beside more than 50 of faults and look-alikes")
	times      = flag.Int("fleet.times", 1, "how often to try each fault and each look-alike")
	seed       = flag.Uint64("fleet.seed", 20261130, "of the synthetic nodes; nothing was chosen by it")
)

// fleet is how a node of a fleet of 2,000 GPUs is watched.
func fleet() Options { return Options{Seed: *seed, GPUs: 2000} }

// cases are all; where the race detector looks on, one for each rule that finds one soon.
func cases() []*synth.Case {
	seen := map[rules.ID]bool{}
	return slices.DeleteFunc(synth.Cases(), func(c *synth.Case) bool {
		if !raced {
			return false
		}
		if c.Healthy() || seen[c.Rules[0]] || c.Warm+c.Lasts > 4*time.Hour {
			return true
		}
		seen[c.Rules[0]] = true
		return false
	})
}

// TestFaultsAreFound is the judgement: every fault of a stated size, every look-alike.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	results, err := fleet().Cases(cases(), *times)
	if err != nil {
		t.Fatal(err)
	}
	r := Sum(results)
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Found < row.Truths {
			t.Errorf("%s (%s) was missed in %d of %d trials; told by %q", row.Case.Name, row.Case.Effect, row.Truths-row.Found, row.Truths, row.told())
		}
		for _, seen := range row.Seen {
			t.Errorf("%s (%s): people were told of what was nothing: %s", row.Case.Name, row.Case.Effect, seen)
		}
	}
	for truth, told := range r.Verdicts {
		if right := r.Right(truth); right < 0.9 {
			t.Errorf("GPUs that are %s are called so in %.0f %% of the time: %v", truth, 100*right, told)
		}
	}
	if f1 := r.All.F1(); !(f1 >= 0.95) {
		t.Errorf("F1 over all synthetic faults and look-alikes is %.3f, want 0.95", f1)
	}
	var page strings.Builder
	fmt.Fprintf(&page, head, *seed)
	if err := r.Write(&page); err != nil {
		t.Fatal(err)
	}
	if *times == 1 && !raced {
		golden.Check(t, "../../../docs/synthetic.md", page.String(), "docs/synthetic.md does not say what the detectors find now")
		return
	}
	t.Log(page.String())
}

const head = `# What the detectors find: synthetic faults

Made by a test; do not edit. Every figure here is **synthetic**: nodes, work and faults come
from a generator (internal/synth says what its figures follow), here with the seed %d. One
trial of each case with the defaults, snapshots of 60 s, an alert budget divided over 2,000
GPUs, and an agent that knows nothing before the trial but the hours that lead up to it.
Where something must be declared to be wrong, such as an objective, a budget or a pool on
which not everybody may do what he likes, it is. A trial is found if one of the rules that
are right for it fires on
what it is about while it lasts. How to judge by recordings of your own is in
[backtest.md](backtest.md).

`

// TestFleetIsQuiet watches healthy nodes on which work comes and goes.
func TestFleetIsQuiet(t *testing.T) {
	t.Parallel()
	weeks := *fleetWeeks
	if raced {
		weeks /= 10
	}
	nodes := max(8, int(weeks/8/4))
	lasts := time.Duration(weeks / 8 / float64(nodes) * float64(7*24*time.Hour))
	f, told, err := fleet().Fleet(nodes, lasts)
	if err != nil {
		t.Fatal(err)
	}
	pages, tickets := f.Rate(rules.Page), f.Rate(rules.Ticket)
	t.Logf("%.0f GPU-weeks of %d synthetic nodes: %d false pages (at most %.4f a GPU-week), %d false tickets (at most %.4f), %d of information",
		pages.Exposure, nodes, pages.Count, pages.AtMost(), tickets.Count, tickets.AtMost(), f.False[rules.Info])
	for i, in := range told {
		if in.Incident.Severity == rules.Info {
			continue
		}
		m := &in.Incident.Members[0]
		if i < 40 {
			t.Errorf("%s of nothing: %s/%s on %s of %s at %s: %s", in.Incident.Severity, m.Rule, m.Cause, m.Subject, m.Node, in.First.UTC().Format(time.DateTime), m.Evidence.Seen)
		}
	}
}

// TestEachRuleIsNeeded: without any one rule TestFaultsAreFound fails, as there is a fault
// that only this rule finds.
func TestEachRuleIsNeeded(t *testing.T) {
	all := synth.Cases()
	for _, rule := range rules.All() {
		if !slices.ContainsFunc(all, func(c *synth.Case) bool { return len(c.Rules) == 1 && c.Rules[0] == rule.ID }) {
			t.Errorf("no synthetic fault needs rule %s: if its detector found nothing at all, no test would fail", rule.ID)
		}
	}
}

// TestADisabledRuleIsMissed: what a rule alone finds is not put down to another.
func TestADisabledRuleIsMissed(t *testing.T) {
	t.Parallel()
	all := synth.Cases()
	i := slices.IndexFunc(all, func(c *synth.Case) bool { return c.Name == "port down" })
	o := fleet()
	for _, disabled := range []bool{false, true} {
		o.Settings = map[rules.ID]detect.Setting{rules.IDNetworkPort: {Disabled: disabled}}
		r, err := o.Run(all[i], i)
		if err != nil {
			t.Fatal(err)
		}
		if by := r.Found[0].Rule; (by == rules.IDNetworkPort) == disabled || disabled && by != "" {
			t.Errorf("the port is found to be down by %q, with its rule disabled: %v", by, disabled)
		}
	}
}

func TestRates(t *testing.T) {
	// Garwood's exact limits: 3.00 for none, 4.74 for one, 9.15 for four.
	for count, want := range map[int]float64{0: 2.9957, 1: 4.7439, 4: 9.1535} {
		if got := (backtest.Incidence{Count: count, Exposure: 2}).AtMost(); got < (want-0.001)/2 || got > (want+0.001)/2 {
			t.Errorf("%d in 2 GPU-weeks are at most %.4f a GPU-week, want %.4f", count, got, want/2)
		}
	}
}
