package report

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/text"
)

// charge is what one row of FOCUS is of.
type charge struct {
	from     time.Time
	owner    collector.Owner
	model    string
	state    cost.State
	currency string
}

// provider is in FOCUS whoever offers the service, publishes it and sends the
// invoice: were they not the same, nothing could be billed.
const provider = "gpuvigil"

// noCurrency is ISO 4217's code where none is known: nothing has a price then.
const noCurrency = "XXX"

// focusColumns are the mandatory columns of FOCUS 1.2, those of consumption, the sub
// account and tags, and the state in a column of our own.
var focusColumns = []struct {
	name string
	of   func(a *cost.Answer, c charge, v cost.Amounts) string
}{
	{"BilledCost", func(_ *cost.Answer, _ charge, v cost.Amounts) string { return nano(v.Effective) }},
	{"BillingAccountId", fixed(provider)},
	{"BillingAccountName", func(a *cost.Answer, _ charge, _ cost.Amounts) string { return text.Clean("GPUs of "+a.Node, maxKey) }},
	{"BillingCurrency", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return cmp.Or(c.currency, noCurrency) }},
	{"BillingPeriodEnd", func(_ *cost.Answer, c charge, _ cost.Amounts) string {
		return focusTime(monthOf(c.from).AddDate(0, 1, 0))
	}},
	{"BillingPeriodStart", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return focusTime(monthOf(c.from)) }},
	{"ChargeCategory", fixed("Usage")},
	{"ChargeClass", fixed("")},
	{"ChargeDescription", func(_ *cost.Answer, c charge, _ cost.Amounts) string {
		return text.Clean(fmt.Sprintf("%s, %s: %s", modelName(c.model), strings.ReplaceAll(c.state.String(), "_", " "), c.owner), 2*maxKey)
	}},
	{"ChargeFrequency", fixed("Usage-Based")},
	{"ChargePeriodEnd", func(a *cost.Answer, c charge, _ cost.Amounts) string {
		return focusTime(stepEnd(c.from, a.Width(), a.Until))
	}},
	{"ChargePeriodStart", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return focusTime(c.from) }},
	{"ConsumedQuantity", func(_ *cost.Answer, _ charge, v cost.Amounts) string { return gpuHours(v.Time) }},
	{"ConsumedUnit", fixed("Hours")},
	{"ContractedCost", func(_ *cost.Answer, _ charge, v cost.Amounts) string { return nano(cmp.Or(v.Contracted, v.Effective)) }},
	{"EffectiveCost", func(_ *cost.Answer, _ charge, v cost.Amounts) string { return nano(v.Effective) }},
	{"InvoiceIssuerName", fixed(provider)},
	{"ListCost", func(_ *cost.Answer, _ charge, v cost.Amounts) string { return nano(cmp.Or(v.List, v.Effective)) }},
	{"PricingQuantity", func(_ *cost.Answer, _ charge, v cost.Amounts) string { return gpuHours(v.Time) }},
	{"PricingUnit", fixed("Hours")},
	{"ProviderName", fixed(provider)},
	{"PublisherName", fixed(provider)},
	{"ServiceCategory", fixed("Compute")},
	{"ServiceName", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return modelName(c.model) }},
	{"ServiceSubcategory", fixed("Other (Compute)")},
	{"SubAccountId", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return text.Clean(c.owner.Team, maxKey) }},
	{"SubAccountName", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return text.Clean(c.owner.Team, maxKey) }},
	{"Tags", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return tags(c.owner) }},
	{"x_GpuState", func(_ *cost.Answer, c charge, _ cost.Amounts) string { return c.state.String() }},
	{"x_HoursWithoutPrice", func(_ *cost.Answer, _ charge, v cost.Amounts) string { return gpuHours(v.Unpriced) }},
}

func fixed(s string) func(*cost.Answer, charge, cost.Amounts) string {
	return func(*cost.Answer, charge, cost.Amounts) string { return s }
}

func nano(v int64) string { return decimal(v, 9, 2) }

func focusTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func monthOf(t time.Time) time.Time {
	y, m, _ := t.UTC().Date()
	return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
}

func modelName(model string) string { return text.Clean(cmp.Or(model, "unknown model"), maxKey) }

// gpuHours writes nanoseconds as hours, to the billionth.
func gpuHours(ns int64) string {
	const billionth = cost.PerHour / 1e9
	return decimal((ns+billionth/2)/billionth, 9, 0)
}

func tags(o collector.Owner) string {
	t := map[string]string{"owner_kind": cmp.Or(o.Kind, o.String())}
	if o.ID != "" {
		t["owner"] = text.Clean(o.ID, 2*maxKey)
	}
	out, err := json.Marshal(t)
	if err != nil {
		panic("BUG: strings cannot be written as JSON: " + err.Error())
	}
	return string(out)
}

// focus writes the costs as FOCUS 1.2 has them: one row for each owner, model and state
// in each step.
func focus(w io.Writer, a *cost.Answer) error {
	charges := map[charge]cost.Amounts{}
	for _, r := range a.Rows {
		c := charge{r.Hour, r.Owner, r.Model, r.State, r.Currency}
		charges[c] = charges[c].Plus(r.Amounts)
	}
	keys := make([]charge, 0, len(charges))
	for c := range charges {
		keys = append(keys, c)
	}
	slices.SortFunc(keys, func(a, b charge) int {
		return cmp.Or(a.from.Compare(b.from), cmp.Compare(a.owner.String(), b.owner.String()), cmp.Compare(a.owner.Team, b.owner.Team),
			cmp.Compare(a.model, b.model), cmp.Compare(a.state, b.state), cmp.Compare(a.currency, b.currency))
	})
	c := csv.NewWriter(w)
	line := make([]string, len(focusColumns))
	for i, column := range focusColumns {
		line[i] = column.name
	}
	if err := c.Write(line); err != nil {
		return err
	}
	for _, k := range keys {
		for i, column := range focusColumns {
			line[i] = column.of(a, k, charges[k])
		}
		if err := c.Write(line); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
