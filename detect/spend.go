package detect

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// SpendConfig is what the detector of spending can be told. The zero value works.
type SpendConfig struct {
	// CapLabel names the label of a pod that says what the pod may cost on one node, as a
	// number in the node's currency; empty: nobody says.
	CapLabel string

	// Across says that the money is that of all nodes of a cluster. What is said of a
	// budget then has nothing to do with how many GPUs there are, and no share of the
	// alert budget: how likely an overrun has to be is the threshold.
	Across bool
}

// where is what the money is of.
func (c *SpendConfig) where() string {
	if c.Across {
		return "on all nodes"
	}
	return "on this node"
}

const (
	overrunSure = 0.9 // likely enough that the month's budget does not last
	burnAbove   = 1.2 // times the even pace, over three days
	runawayOver = 3   // times the usual spending of the hour of the day
	maxTeams    = 256
	monthDays   = 30
)

// The causes of rule spend.
const (
	budgetBurn    = "budget_burn"
	spendRunaway  = "runaway"
	overCap       = "over_cap"
	withoutOutput = "without_output"
)

// Spend watches what GPUs cost, beside what was planned and what comes of it. Of money it
// knows what the snapshot tells.
type Spend struct {
	cfg       SpendConfig
	teams     map[string]*teamSpend
	owners    map[collector.Owner]*output
	endpoints map[collector.EndpointKey]*answers
	moneyAt   time.Time // of the newest money
	now       time.Time
}

// NewSpend returns the detector of rule spend.
func NewSpend(cfg SpendConfig) *Spend {
	return &Spend{cfg: cfg, teams: map[string]*teamSpend{}, owners: map[collector.Owner]*output{}, endpoints: map[collector.EndpointKey]*answers{}}
}

// Rule returns spend.
func (d *Spend) Rule() *rules.Rule { return rules.Get(rules.IDSpend) }

// Observe judges the teams and the owners of GPUs.
func (d *Spend) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	if m := s.Money; m != nil {
		fresh := m.At.After(d.moneyAt)
		d.moneyAt = m.At
		for i := range m.Teams {
			d.team(m, &m.Teams[i], fresh, report)
		}
	}
	for i := range s.Endpoints {
		d.serve(&s.Endpoints[i], s.Time, report)
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.Kind == "" {
			continue
		}
		d.cap(s, w, report)
		d.work(s, w, report)
	}
}

func (d *Spend) team(m *collector.Money, t *collector.TeamMoney, fresh bool, report func(Observation)) {
	st := d.teams[t.Team]
	if st == nil {
		if !room(d.teams, maxTeams, monthDays*24*time.Hour, func(st *teamSpend) time.Time { return st.Seen }, m.At) {
			return
		}
		st = &teamSpend{}
		d.teams[t.Team] = st
	}
	if fresh {
		st.add(m.At, t)
		st.judge(m, t, &d.cfg)
	}
	report(st.burn)
	report(st.ran)
}

// judge finds what is to be told of a team, until there is money anew.
func (st *teamSpend) judge(m *collector.Money, t *collector.TeamMoney, cfg *SpendConfig) {
	subject := Subject{"team", t.Team}
	st.burn = Observation{Subject: subject, Cause: budgetBurn, Severity: rules.Ticket}
	st.ran = Observation{Subject: subject, Cause: spendRunaway, Severity: rules.Ticket}
	if !(t.Budget > 0) {
		return
	}
	from, to := monthOf(m.At)
	days := to.Sub(from).Hours() / 24
	even := t.Budget / days
	pace := t.ThreeDays / (3 * even)
	switch {
	case t.Spent >= t.Budget: // whatever was likely
		st.burn.Score = t.Spent / t.Budget
	case !math.IsNaN(t.Overrun) && !math.IsNaN(pace):
		st.burn.Score = min(t.Overrun/overrunSure, pace/burnAbove)
		st.burn.Surprise = surpriseOf((1 - t.Overrun) * 7 / days)
	}
	if st.burn.Score >= 1 {
		st.burn.Evidence = burnEvidence(m, t, pace, cfg.where())
	}
	if st.burn.Score < 1 || cfg.Across {
		st.burn.Surprise = 0
	}
	st.judgeRunaway(m, t, to)
}

func burnEvidence(m *collector.Money, t *collector.TeamMoney, pace float64, where string) Evidence {
	budget := t.Budget
	e := Evidence{
		Observed: t.Spent, Want: &budget, Title: "Budget is used up", Confidence: Certain,
		Seen:     fmt.Sprintf("%s spent %s of a month's %s", amount(t.Spent, m.Currency), where, amount(budget, m.Currency)),
		Expected: "a budget that lasts for the month",
		Why:      "added up by the ledger",
	}
	if t.Spent < budget {
		e.Title, e.Observed, e.Confidence = "Budget will not last", t.Expected, Likely
		e.Seen += fmt.Sprintf(", %s by its end; the last three days went %s times as fast as the budget allows", amount(t.Expected, m.Currency), significant(pace, 2))
		e.Why = fmt.Sprintf("an overrun is %s likely if the days to come are like those of this month", percentOf(min(t.Overrun, 0.99)))
	}
	return e
}

// amount writes money: "1234 USD", "9.50 USD".
func amount(x float64, currency string) string {
	if math.Abs(x) >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64) + " " + currency
	}
	return strconv.FormatFloat(x, 'f', 2, 64) + " " + currency
}

// monthOf returns where the calendar month (UTC) begins and ends.
func monthOf(t time.Time) (from, to time.Time) {
	y, m, _ := t.UTC().Date()
	from = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	return from, from.AddDate(0, 1, 0)
}

// cap holds what a workload has cost against what was declared for it.
func (d *Spend) cap(s *collector.Snapshot, w *collector.Workload, report func(Observation)) {
	if d.cfg.CapLabel == "" {
		return
	}
	for i := range w.Labels {
		if w.Labels[i].Name != d.cfg.CapLabel {
			continue
		}
		limit, err := strconv.ParseFloat(w.Labels[i].Value, 64)
		spent := s.Money.SpentBy(w.Owner)
		if err != nil || !(limit > 0) || math.IsInf(limit, 0) || math.IsNaN(spent) {
			return // what is declared is no amount, or nothing is known of money
		}
		o := Observation{Subject: Subject{w.Kind, w.ID}, Cause: overCap, Owner: w.Owner, Severity: rules.Ticket, Score: spent / limit}
		if o.Score >= 1 {
			want := limit
			o.Evidence = Evidence{
				Seen:     fmt.Sprintf("cost %s on this node so far", amount(spent, s.Money.Currency)),
				Expected: fmt.Sprintf("at most %s, as its label %s declares", amount(limit, s.Money.Currency), d.cfg.CapLabel),
				Observed: spent, Want: &want, Confidence: Certain, Why: "added up by the ledger", Title: "Costs more than was declared",
			}
		}
		report(o)
		return
	}
}

// work holds GPU time against what comes of it.
func (d *Spend) work(s *collector.Snapshot, w *collector.Workload, report func(Observation)) {
	st := d.owners[w.Owner]
	if !tellsProgress(w) {
		return // of one that never told anything nothing is known, and one that ceased to is not judged
	}
	if st == nil {
		if st = d.newOutput(w.Owner); st == nil {
			return
		}
	}
	if at := w.SampledAt(metric.Slow); at.After(st.At) {
		st.read(w, float64(heldBy(s, w.Owner)), at)
	}
	o := Observation{Subject: Subject{w.Kind, w.ID}, Cause: withoutOutput, Owner: w.Owner, Severity: rules.Ticket, Score: st.score(s.Time)}
	if o.Score >= 1 {
		o.At, o.Surprise = st.began(s.Time), st.surprise()
		if st.toldAt.IsZero() || s.Time.Sub(st.toldAt) >= time.Minute {
			st.told, st.toldAt = st.evidence(s, w), s.Time
		}
		o.Evidence = st.told
	}
	report(o)
}

func (d *Spend) newOutput(o collector.Owner) *output {
	if !room(d.owners, maxHolders, 24*time.Hour, func(st *output) time.Time { return st.At }, d.now) {
		return nil
	}
	st := newOutput()
	d.owners[o] = st
	return st
}

func tellsProgress(w *collector.Workload) bool {
	return w.Has(metric.WorkloadProgress) && w.Value(metric.WorkloadFinished) != 1
}

// heldBy is how many GPUs an owner is the first holder of.
func heldBy(s *collector.Snapshot, o collector.Owner) (n int) {
	for i := range s.GPUs {
		if holder(&s.GPUs[i]) == o {
			n++
		}
	}
	return n
}
