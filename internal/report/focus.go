package report

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/text"
)

// charge is what one row of FOCUS is of: time on GPUs, or the energy that they took.
type charge struct {
	from, to time.Time
	billed   time.Time // the month in whose bill it is
	class    string    // Correction: of what was billed before; else empty
	owner    collector.Owner
	model    string
	state    string // of the time; empty for energy
	currency string
	energy   bool
}

// charges are what there is to write rows of.
type charges map[charge]cost.Amounts

// add adds what was booked under a key: time by its state, energy in one row for all.
func (c charges) add(k charge, v cost.Amounts) {
	took := cost.Amounts{Electric: v.Electric, Energy: v.Energy, Carbon: v.Carbon}
	if spent := v.Minus(took); spent != (cost.Amounts{}) {
		c[k] = c[k].Plus(spent)
	}
	if took != (cost.Amounts{}) {
		k.state, k.energy = "", true
		c[k] = c[k].Plus(took)
	}
}

// provider is in FOCUS whoever offers the service, publishes it and sends the
// invoice: were they not the same, nothing could be billed.
const provider = "gpuvigil"

// noCurrency is ISO 4217's code where none is known: nothing has a price then.
const noCurrency = "XXX"

// focusColumns are the mandatory columns of FOCUS 1.2, those of consumption, the sub
// account and tags, and what FOCUS has no name for in columns of our own. The price of
// a GPU may hold its energy already, so what that cost is in none of FOCUS' costs.
var focusColumns = []struct {
	name string
	of   func(node string, c charge, v cost.Amounts) string
}{
	{"BilledCost", func(_ string, _ charge, v cost.Amounts) string { return nano(v.Effective) }},
	{"BillingAccountId", fixed(provider)},
	{"BillingAccountName", func(node string, _ charge, _ cost.Amounts) string { return text.Clean("GPUs of "+node, maxKey) }},
	{"BillingCurrency", func(_ string, c charge, _ cost.Amounts) string { return cmp.Or(c.currency, noCurrency) }},
	{"BillingPeriodEnd", func(_ string, c charge, _ cost.Amounts) string { return focusTime(c.billed.AddDate(0, 1, 0)) }},
	{"BillingPeriodStart", func(_ string, c charge, _ cost.Amounts) string { return focusTime(c.billed) }},
	{"ChargeCategory", fixed("Usage")},
	{"ChargeClass", func(_ string, c charge, _ cost.Amounts) string { return c.class }},
	{"ChargeDescription", func(_ string, c charge, _ cost.Amounts) string { return c.says() }},
	{"ChargeFrequency", fixed("Usage-Based")},
	{"ChargePeriodEnd", func(_ string, c charge, _ cost.Amounts) string { return focusTime(c.to) }},
	{"ChargePeriodStart", func(_ string, c charge, _ cost.Amounts) string { return focusTime(c.from) }},
	{"ConsumedQuantity", quantity},
	{"ConsumedUnit", either("Hours", "kWh")},
	{"ContractedCost", func(_ string, _ charge, v cost.Amounts) string { return nano(cmp.Or(v.Contracted, v.Effective)) }},
	{"EffectiveCost", func(_ string, _ charge, v cost.Amounts) string { return nano(v.Effective) }},
	{"InvoiceIssuerName", fixed(provider)},
	{"ListCost", func(_ string, _ charge, v cost.Amounts) string { return nano(cmp.Or(v.List, v.Effective)) }},
	{"PricingQuantity", quantity},
	{"PricingUnit", either("Hours", "kWh")},
	{"ProviderName", fixed(provider)},
	{"PublisherName", fixed(provider)},
	{"ServiceCategory", either("Compute", "Other")},
	{"ServiceName", func(_ string, c charge, _ cost.Amounts) string {
		if c.energy {
			return "Electricity"
		}
		return modelName(c.model)
	}},
	{"ServiceSubcategory", either("Other (Compute)", "Other (Other)")},
	{"SubAccountId", func(_ string, c charge, _ cost.Amounts) string { return text.Clean(c.owner.Team, maxKey) }},
	{"SubAccountName", func(_ string, c charge, _ cost.Amounts) string { return text.Clean(c.owner.Team, maxKey) }},
	{"Tags", func(_ string, c charge, _ cost.Amounts) string { return tags(c.owner) }},
	{"x_GpuState", func(_ string, c charge, _ cost.Amounts) string { return c.state }},
	{"x_HoursWithoutPrice", func(_ string, _ charge, v cost.Amounts) string { return gpuHours(v.Unpriced) }},
	{"x_ElectricityCost", func(_ string, _ charge, v cost.Amounts) string { return known(v.Electric, 9, 2) }},
	{"x_CarbonGrams", func(_ string, _ charge, v cost.Amounts) string { return known(v.Carbon, 9, 0) }},
}

// says describes a charge.
func (c charge) says() string {
	what := strings.ReplaceAll(c.state, "_", " ")
	if c.energy {
		what = "energy"
	}
	return text.Clean(fmt.Sprintf("%s, %s: %s", modelName(c.model), what, c.owner), 2*maxKey)
}

// quantity is in hours of GPUs, or in kilowatt-hours.
func quantity(_ string, c charge, v cost.Amounts) string {
	if !c.energy {
		return gpuHours(v.Time)
	}
	const billionth = 3600 // microjoules of a kilowatt-hour, which has 3.6 million joules
	return decimal(round(v.Energy, billionth), 9, 0)
}

// round divides, and rounds half away from zero.
func round(v, by int64) int64 {
	if v < 0 {
		return -round(-v, by)
	}
	return (v + by/2) / by
}

func either(time, energy string) func(string, charge, cost.Amounts) string {
	return func(_ string, c charge, _ cost.Amounts) string {
		if c.energy {
			return energy
		}
		return time
	}
}

func fixed(s string) func(string, charge, cost.Amounts) string {
	return func(string, charge, cost.Amounts) string { return s }
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
	return decimal(round(ns, cost.PerHour/1e9), 9, 0)
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
// in each step, and one for the energy.
func focus(w io.Writer, a *cost.Answer) error {
	all := charges{}
	for _, r := range a.Rows {
		all.add(charge{from: r.Hour, to: stepEnd(r.Hour, a.Width(), a.Until), billed: monthOf(r.Hour),
			owner: r.Owner, model: r.Model, state: r.State.String(), currency: r.Currency}, r.Amounts)
	}
	for _, s := range a.Shared {
		all.add(charge{from: s.Hour, to: stepEnd(s.Hour, a.Width(), a.Until), billed: monthOf(s.Hour),
			owner: s.Owner, model: s.Model, state: anyState, currency: s.Currency}, s.Amounts)
	}
	return all.write(w, a.Node)
}

// focusEntries writes entries of a closed month. What corrects it is in the bill of the
// month in which it was found.
func focusEntries(w io.Writer, node string, month time.Time, list []Entry) error {
	all := charges{}
	for _, e := range list {
		c := charge{from: month, to: month.AddDate(0, 1, 0), billed: month, owner: e.Owner, model: e.Model, state: e.State, currency: e.Currency}
		if !e.Corrected.IsZero() {
			c.billed, c.class = monthOf(e.Corrected), "Correction"
		}
		all.add(c, e.Amounts)
	}
	return all.write(w, node)
}

func (c charges) write(w io.Writer, node string) error {
	keys := slices.SortedFunc(maps.Keys(c), func(a, b charge) int {
		return cmp.Or(a.from.Compare(b.from), a.billed.Compare(b.billed), cmp.Compare(a.owner.String(), b.owner.String()), cmp.Compare(a.owner.Team, b.owner.Team),
			cmp.Compare(a.model, b.model), cmp.Compare(place(a), place(b)), cmp.Compare(a.currency, b.currency))
	})
	out := csv.NewWriter(w)
	line := make([]string, len(focusColumns))
	for i, column := range focusColumns {
		line[i] = column.name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for _, k := range keys {
		for i, column := range focusColumns {
			line[i] = column.of(node, k, c[k])
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// place orders rows that are alike: by state as reports have it, energy last.
func place(c charge) int {
	for s := range cost.States {
		if s.String() == c.state {
			return int(s)
		}
	}
	return int(cost.States)
}
