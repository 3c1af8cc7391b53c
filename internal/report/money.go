package report

import (
	"cmp"
	"maps"
	"slices"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// paid is the money of accounts, by currency.
type paid map[account]map[string]*spending

// spending is by how much the cost of one account grew in one currency.
type spending struct {
	effective, list, contracted []int64
	seen                        []bool
}

func (q *query) money() (paid, error) {
	out := paid{}
	q.owners = map[collector.Owner]string{}
	at := func(g grown) (*spending, error) {
		k, err := accountOf(g.labels)
		if err != nil {
			return nil, err
		}
		currency := string(g.labels["currency"])
		if out[k] == nil {
			out[k] = map[string]*spending{}
		}
		if out[k][currency] == nil {
			none := make([]int64, len(q.steps))
			out[k][currency] = &spending{none, none, none, make([]bool, len(q.steps))}
		}
		if q.any == "" || currency < q.any {
			q.any = currency
		}
		q.owners[k.Owner] = cmp.Or(q.owners[k.Owner], currency)
		return out[k][currency], nil
	}
	effective, err := q.api.growth(q.ctx, metric.OwnerCost, 1e9, append(slices.Clone(byGPU), "currency"), q.steps)
	if err != nil {
		return nil, err
	}
	for _, g := range effective {
		c, err := at(g)
		if err != nil {
			return nil, err
		}
		c.effective, c.seen = g.by, g.seen
	}
	others, err := q.api.growth(q.ctx, metric.OwnerCostAt, 1e9, append(slices.Clone(byGPU), "currency", "price"), q.steps)
	if err != nil {
		return nil, err
	}
	for _, g := range others {
		c, err := at(g)
		if err != nil {
			return nil, err
		}
		if g.labels["price"] == "list" {
			c.list = g.by
		} else {
			c.contracted = g.by
		}
	}
	return out, nil
}

// at returns the money of one step, a row for each currency in which there is any,
// and always one: in the one that was seen last, else in the one given.
func (p paid) at(k account, i int, otherwise string) []cost.Row {
	var rows []cost.Row
	known := otherwise
	for _, currency := range slices.Sorted(maps.Keys(p[k])) {
		c := p[k][currency]
		if c.seen[i] {
			known = currency
		}
		r := cost.Row{Currency: currency, Amounts: cost.Amounts{Effective: c.effective[i], List: c.list[i], Contracted: c.contracted[i]}}
		if r.Amounts != (cost.Amounts{}) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		rows = []cost.Row{{Currency: known}}
	}
	return rows
}

func (p paid) seen(k account, i int) bool {
	for _, c := range p[k] {
		if c.seen[i] {
			return true
		}
	}
	return false
}
