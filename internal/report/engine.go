package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

const (
	day     = 24 * time.Hour
	hourly  = 8 * day   // up to so long, a report goes by hours
	history = 400 * day // how far back the first sample is looked for by default
)

// Engine reads costs of all nodes from the counters that agents export, in a
// time-series database.
type Engine struct{ api *api }

// NewEngine returns the source. The error says what of the configuration is wrong.
func NewEngine(cfg EngineConfig) (*Engine, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.History = cmp.Or(cfg.History, history)
	a, err := newAPI(cfg)
	if err != nil {
		return nil, err
	}
	return &Engine{a}, nil
}

// Costs returns what the counters grew by from since to until, in steps. It refuses
// a time before the first sample of them; a zero since is that of the sample.
func (e *Engine) Costs(ctx context.Context, since, until time.Time) (*cost.Answer, error) {
	until = cmp.Or(until, e.api.cfg.Now()).UTC().Truncate(time.Second)
	first, err := e.first(ctx, until)
	if err != nil {
		return nil, err
	}
	if first.IsZero() {
		return nil, fmt.Errorf("%s has no sample of %s within the %d days before %s: does it scrape the agents, and is it the right tenant?",
			e.api.base.Redacted(), e.api.of(metric.OwnerSeconds), int(e.api.cfg.History/day), until.Format(minute))
	}
	if begins := first.Add(-slack); !since.IsZero() && begins.After(since) {
		return nil, &TooEarlyError{Earliest: first, says: fmt.Sprintf("%s has nothing before %s, its first sample of %s: %s",
			e.api.base.Redacted(), first.Format(time.RFC3339), metric.OwnerSeconds, advice(first, until))}
	}
	since = cmp.Or(since, first).UTC().Truncate(time.Hour)
	step := e.api.cfg.Step
	if step == 0 {
		if step = day; until.Sub(since) <= hourly {
			step = time.Hour
		}
	}
	q := &query{api: e.api, ctx: ctx, steps: spans(since, until, step)}
	a := &cost.Answer{Since: later(since, first), Until: until, Step: step, Busy: e.api.cfg.Busy, Prices: []cost.Price{}, Rows: []cost.Row{}}
	for _, part := range []func(*query, *cost.Answer) error{nodes, models, times, shared, work, priced, budgets} {
		if err := part(q, a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// TooEarlyError says that a source has nothing of the time in which a report was to
// begin.
type TooEarlyError struct {
	Earliest time.Time // from which there is something
	says     string
}

func (e *TooEarlyError) Error() string { return e.says }

// first returns when the first sample was taken, to ten seconds; zero: there is none.
func (e *Engine) first(ctx context.Context, until time.Time) (time.Time, error) {
	search := func(from, to time.Time, step time.Duration) (time.Time, error) {
		m, err := e.api.span(ctx, "count("+e.api.of(metric.OwnerSeconds)+")", from, to, step)
		if err != nil || len(m) == 0 || len(m[0].Values) == 0 {
			return time.Time{}, err
		}
		return m[0].Values[0].Timestamp.Time().UTC(), nil
	}
	found, err := search(until.Add(-e.api.cfg.History), until, day)
	if err != nil {
		return found, err
	}
	if found.IsZero() { // what was there for less than a day
		if found, err = search(until.Add(-hourly), until, 10*time.Minute); err != nil {
			return found, err
		}
	}
	if found.IsZero() {
		found = until
	}
	finer, err := search(found.Add(-day), found, 5*time.Minute)
	if err != nil || finer.IsZero() {
		return finer, err
	}
	return search(finer.Add(-5*time.Minute), finer, 10*time.Second)
}

// query is what the parts of one answer share.
type query struct {
	api    *api
	ctx    context.Context
	steps  []span
	models map[string]string // by GPU

	nodes     map[string]string // by instance
	instances map[string]string // by GPU

	owners map[collector.Owner]string
	any    string // the first of the currencies
}

func (q *query) latest(d *metric.Def, steps []span, by ...string) ([]*series, error) {
	found, err := q.api.table(q.ctx, "max", "last_over_time", d, by, steps)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *series) int { return cmp.Compare(a.labels.String(), b.labels.String()) }), nil
}

func nodes(q *query, a *cost.Answer) error {
	found, err := q.latest(metric.NodeInfo, q.steps, "instance", "node", "simulated")
	names := map[model.LabelValue]bool{}
	q.nodes = map[string]string{}
	for _, s := range found {
		q.nodes[string(s.labels["instance"])] = string(s.labels["node"])
		names[s.labels["node"]] = true
		a.Simulated = a.Simulated || s.labels["simulated"] == "true"
	}
	a.Node = fmt.Sprintf("%d nodes", len(names))
	if len(names) == 1 {
		for n := range names {
			a.Node = string(n)
		}
	}
	return err
}

func models(q *query, _ *cost.Answer) error {
	found, err := q.latest(metric.GPUInfo, q.steps, "instance", "uuid", "model")
	q.models, q.instances = map[string]string{}, map[string]string{}
	for _, s := range found {
		q.instances[string(s.labels["uuid"])] = string(s.labels["instance"])
		q.models[string(s.labels["uuid"])] = string(s.labels["model"])
	}
	return err
}

// owner reads an owner's labels back.
func owner(m model.Metric) collector.Owner {
	if m["owner_kind"] == metric.Unattributed {
		return collector.Owner{Team: string(m["team"])}
	}
	return collector.Owner{Kind: string(m["owner_kind"]), ID: string(m["owner"]), Team: string(m["team"])}
}

// The labels by which accounts are told apart; those without a GPU by their agent, too.
var (
	byGPU   = []string{"gpu", "uuid", "owner_kind", "owner", "team", "state"}
	byModel = []string{"instance", "owner_kind", "owner", "team", "model"}
)

// account is a key of the ledger's, of one GPU of one node.
type account struct {
	gpu string
	cost.Key
}

func accountOf(m model.Metric) (account, error) {
	k := account{string(m["gpu"]), cost.Key{UUID: string(m["uuid"]), Owner: owner(m)}}
	return k, k.State.UnmarshalText([]byte(m["state"]))
}

// times adds the rows: GPU time, and what it cost.
func times(q *query, a *cost.Answer) error {
	spent, err := q.api.growth(q.ctx, metric.OwnerSeconds, 1e9, byGPU, q.steps)
	if err != nil {
		return err
	}
	money, err := q.money()
	if err != nil {
		return err
	}
	missing, err := q.latest(metric.PriceMissing, q.steps, "uuid")
	if err != nil {
		return err
	}
	noPrice := map[string]*series{}
	for _, s := range missing {
		noPrice[string(s.labels["uuid"])] = s
	}
	for i, step := range q.steps {
		for _, s := range spent {
			k, err := accountOf(s.labels)
			if err != nil {
				return err
			}
			rows := money.at(k, i, q.any)
			rows[0].Time = s.by[i]
			if rows[0].Effective == 0 && (!money.seen(k, i) || value(noPrice[k.UUID], i) == 1) {
				rows[0].Unpriced = s.by[i]
			}
			for _, r := range rows {
				if r.Amounts == (cost.Amounts{}) {
					continue
				}
				if _, err := fmt.Sscan(k.gpu, &r.GPU); err != nil {
					return fmt.Errorf("read the GPU's index %.20q of %s: %w", k.gpu, metric.OwnerSeconds, err)
				}
				r.Hour, r.UUID, r.Model, r.Owner, r.State = step.from, k.UUID, q.models[k.UUID], k.Owner, k.State
				a.Rows = append(a.Rows, r)
			}
		}
	}
	return gaps(q, a, spent)
}

// shared adds what is exported by owner and model: energy, its cost, carbon.
func shared(q *query, a *cost.Answer) error {
	for _, row := range []struct {
		def  *metric.Def
		unit float64
		by   []string
		into func(*cost.Amounts, int64)
	}{
		{metric.OwnerEnergy, 1e6, byModel, func(a *cost.Amounts, v int64) { a.Energy = v }},
		{metric.OwnerCarbon, 1e9, byModel, func(a *cost.Amounts, v int64) { a.Carbon = v }},
		{metric.OwnerEnergyCost, 1e9, append(slices.Clone(byModel), "currency"), func(a *cost.Amounts, v int64) { a.Electric = v }},
	} {
		found, err := q.api.growth(q.ctx, row.def, row.unit, row.by, q.steps)
		if err != nil {
			return err
		}
		for _, g := range found {
			o := owner(g.labels)
			for i, v := range g.by {
				if v == 0 {
					continue
				}
				s := cost.Shared{Hour: q.steps[i].from, Owner: o, Model: string(g.labels["model"]),
					Currency: cmp.Or(string(g.labels["currency"]), q.owners[o], q.any)}
				row.into(&s.Amounts, v)
				a.Shared = append(a.Shared, s)
			}
		}
	}
	return nil
}

// priced adds the prices that are in force at the end.
func priced(q *query, a *cost.Answer) error {
	last := []span{{a.Until.Add(-before), a.Until}}
	missing, err := q.latest(metric.PriceMissing, last, "gpu", "uuid")
	if err != nil {
		return err
	}
	costs, err := q.latest(metric.PricePerHour, last, "uuid", "currency")
	if err != nil {
		return err
	}
	says, err := q.latest(metric.PriceInfo, last, "uuid", "currency", "price", "provider", "region", "source", "as_of")
	if err != nil {
		return err
	}
	for _, m := range missing {
		p := cost.Price{UUID: string(m.labels["uuid"])}
		p.Model = q.models[p.UUID]
		if _, err := fmt.Sscan(string(m.labels["gpu"]), &p.GPU); err != nil {
			return fmt.Errorf("read the GPU's index %.20q of %s: %w", m.labels["gpu"], metric.PriceMissing, err)
		}
		for _, s := range says {
			if l := s.labels; string(l["uuid"]) == p.UUID && m.values[0] == 0 {
				p.Kind, p.Currency, p.Provider, p.Region = string(l["price"]), string(l["currency"]), string(l["provider"]), string(l["region"])
				p.Source, p.AsOf = string(l["source"]), string(l["as_of"])
			}
		}
		for _, c := range costs {
			if string(c.labels["uuid"]) == p.UUID && string(c.labels["currency"]) == p.Currency {
				p.Nano = int64(math.Round(c.values[0] * 1e9))
			}
		}
		a.Prices = append(a.Prices, p)
	}
	return nil
}

// budgets adds what teams may spend. Each agent says what its configuration has, and
// of a team the most counts.
func budgets(q *query, a *cost.Answer) error {
	found, err := q.latest(metric.TeamBudget, []span{{a.Until.Add(-before), a.Until}}, "team", "currency")
	for _, s := range found {
		a.Budgets = append(a.Budgets, cost.Budget{Team: string(s.labels["team"]), Currency: string(s.labels["currency"]), PerMonth: s.values[0]})
	}
	return err
}
