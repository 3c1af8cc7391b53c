package server

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// costs has what the ledger has booked, and the prices it goes by.
func (e *exposition) costs(x *cost.Export) {
	for i := range x.Accounts {
		e.account(&x.Accounts[i])
	}
	for _, o := range x.Owners {
		kind, id, team := e.ownerLabels(o.Owner)
		labels := []string{kind, id, team, o.Model}
		e.one(metric.OwnerEnergy, float64(o.Energy)/1e6, labels...)
		if o.Carbon > 0 {
			e.one(metric.OwnerCarbon, float64(o.Carbon)/1e9, labels...)
		}
		if o.Electric > 0 {
			e.one(metric.OwnerEnergyCost, float64(o.Electric)/1e9, append(labels, o.Currency)...)
		}
	}
	for _, p := range x.Prices {
		gpu := strconv.Itoa(p.GPU)
		e.one(metric.PriceMissing, number(p.Kind == ""), gpu, p.UUID)
		if p.Kind != "" {
			e.one(metric.PriceInfo, 1, gpu, p.UUID, p.Kind, p.Currency, p.Provider, p.Region, p.Source, p.AsOf)
			e.one(metric.PricePerHour, float64(p.Nano)/1e9, gpu, p.UUID, p.Currency)
		}
	}
	for i := range x.Work {
		e.work(&x.Work[i])
	}
	for _, m := range x.Months {
		e.one(metric.TeamSpent, m.Spent, m.Team, m.Currency)
		if p := m.End; p != nil {
			e.one(metric.TeamProjection, p.Expected, m.Team, m.Currency, "expected")
			e.one(metric.TeamProjection, p.Low, m.Team, m.Currency, "low")
			e.one(metric.TeamProjection, p.High, m.Team, m.Currency, "high")
		}
	}
	for _, b := range x.Budgets {
		e.one(metric.TeamBudget, b.PerMonth, b.Team, b.Currency)
	}
}

// work has what an owner did, and what that came to.
func (e *exposition) work(w *cost.OwnerWork) {
	kind, id, team := e.ownerLabels(w.Owner)
	owner := []string{kind, id, team}
	with := func(more ...string) []string { return append(owner[:3:3], more...) }
	for i, n := range w.Units {
		if n > 0 {
			e.one(metric.OwnerWork, float64(n), with(metric.WorkUnit.Values[i])...)
		}
		e.one(metric.OwnerUnitCost, w.UnitCost[i], with(metric.FigureUnit[i], w.Currency)...)
		e.one(metric.OwnerUnitEnergy, w.UnitEnergy[i], with(metric.FigureUnit[i])...)
	}
	if !w.Tells {
		return
	}
	e.one(metric.OwnerGoodput, time.Duration(w.Kept).Seconds(), with(metric.Outcome.Values[0])...)
	e.one(metric.OwnerGoodput, time.Duration(w.Lost).Seconds(), with(metric.Outcome.Values[1])...)
	e.one(metric.OwnerGoodputOpen, time.Duration(w.Open).Seconds(), owner...)
	e.one(metric.OwnerInterruptions, float64(w.Interruptions), owner...)
	if w.Currency != "" && (w.LostCost > 0 || w.Lost == 0) { // else it has no price
		e.one(metric.OwnerLostCost, float64(w.LostCost)/1e9, with(w.Currency)...)
	}
}

func (e *exposition) account(a *cost.Account) {
	kind, id, team := e.ownerLabels(a.Owner)
	labels := []string{strconv.Itoa(a.GPU), a.UUID, kind, id, team, a.State.String()}
	e.one(metric.OwnerSeconds, time.Duration(a.Time).Seconds(), labels...)
	if !a.Priced() {
		return
	}
	labels = append(labels, a.Currency)
	e.one(metric.OwnerCost, float64(a.Effective)/1e9, labels...)
	if !e.shows(metric.OwnerCostAt) {
		return
	}
	for i, v := range []int64{a.List, a.Contracted} {
		if v > 0 {
			e.one(metric.OwnerCostAt, float64(v)/1e9, append(labels[:len(labels):len(labels)], metric.PriceKind.Values[i])...)
		}
	}
}

// apiCosts answers GET /api/v1/costs?since=RFC3339&until=RFC3339 with what was
// booked in these hours; without until up to now.
func (s *Server) apiCosts(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Costs == nil {
		http.Error(w, "this agent keeps no ledger", http.StatusNotFound)
		return
	}
	since, err := instant(r, "since", time.Time{})
	until, err2 := instant(r, "until", time.Now())
	if err == nil {
		err = err2
	}
	if err == nil && !since.Before(until) {
		err = fmt.Errorf("since=%s is not before until=%s", since.Format(time.RFC3339), until.Format(time.RFC3339))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := s.cfg.Costs(since, until)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.reply(w, answer)
}

func instant(r *http.Request, name string, absent time.Time) (time.Time, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%s=%.40q is no time: write it as 2026-01-31T15:00:00Z", name, text)
	}
	return t, nil
}
