package config

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Prices is what GPUs cost.
type Prices struct {
	Provider   string            `yaml:"provider"`    // of the built-in list; empty: the lowest of them, none: no list
	Region     string            `yaml:"region"`      // of that provider; empty: any
	NodeLabels map[string]string `yaml:"node_labels"` // of this node, for prices that ask for labels
	Own        []Price           `yaml:"own"`         // the first that fits wins
}

// Price is what an hour of one GPU costs.
type Price struct {
	GPU        string            `yaml:"gpu"`                                                // glob on the model's name
	Node       string            `yaml:"node"`                                               // glob on the node's name; empty: every node
	Labels     map[string]string `yaml:"labels"`                                             // that the node must have
	PerGPUHour *float64          `yaml:"per_gpu_hour" in:"0.000000001..1000000" zero:"free"` // in the currency
	Currency   string            `yaml:"currency"`                                           // ISO 4217
	Kind       string            `yaml:"kind"`                                               // list, contracted or effective
	From       Date              `yaml:"from"`                                               // first day; empty: always
	To         Date              `yaml:"to"`                                                 // last day; empty: for ever
	Source     string            `yaml:"source"`                                             // who says so
}

// Energy is what a kilowatt-hour costs and causes. Of a value and its list for each
// hour of the day, one may be given.
type Energy struct {
	PerKWh       *float64  `yaml:"price_per_kwh" in:"0.000000001..1000000" zero:"free"`
	PerKWhByHour []float64 `yaml:"price_per_kwh_by_hour" in:"0.000000001..1000000" zero:"free"`
	Currency     string    `yaml:"currency"`
	PUE          float64   `yaml:"pue" in:"1..5"`                                       // energy of the data centre over that of its computers
	Carbon       *float64  `yaml:"carbon_g_per_kwh" in:"0.000000001..5000" zero:"none"` // CO2 equivalent
	CarbonByHour []float64 `yaml:"carbon_g_per_kwh_by_hour" in:"0.000000001..5000" zero:"none"`
	TimeZone     string    `yaml:"time_zone"` // of the hours
}

// Ledger is how long the node keeps what it has booked.
type Ledger struct {
	Retention Duration `yaml:"retention" in:"1d..400d"`
}

// Budget is what a team may spend on GPUs in a month.
type Budget struct {
	Team     string   `yaml:"team"`
	PerMonth *float64 `yaml:"per_month" in:"0.000000001..1000000000" zero:"nothing"`
	Currency string   `yaml:"currency"`
}

// Date is a day in UTC, written 2026-01-31; empty: none.
type Date string

// UnmarshalText reads a day.
func (d *Date) UnmarshalText(text []byte) error {
	if _, err := time.Parse(time.DateOnly, string(text)); err != nil && len(text) > 0 {
		return fmt.Errorf("found %q, allowed: a day such as 2026-01-31", clean(string(text)))
	}
	*d = Date(text)
	return nil
}

// Time returns the beginning of the day; zero for none.
func (d Date) Time() time.Time {
	t, err := time.Parse(time.DateOnly, string(d))
	if err != nil {
		return time.Time{} // there is no other: it was read by UnmarshalText
	}
	return t
}

// values returns the one value, or those for each hour of the day.
func values(one *float64, byHour []float64) []float64 {
	if one != nil {
		return []float64{*one}
	}
	return byHour
}

// Prices returns the price of a kWh: none, one for all hours of the day, or 24.
func (e *Energy) Prices() []float64 { return values(e.PerKWh, e.PerKWhByHour) }

// Carbons returns the grams of CO2 equivalent of a kWh: none, one for all hours of
// the day, or 24.
func (e *Energy) Carbons() []float64 { return values(e.Carbon, e.CarbonByHour) }

// noProvider stands for no list of any provider.
const noProvider = "none"

// priceKinds are the kinds of prices.
var priceKinds = []string{"list", "contracted", "effective"}

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

type failer func(key, format string, args ...any)

func (c *Config) checkMoney(fail failer) {
	for i, p := range c.Prices.Own {
		p.check(fmt.Sprintf("prices.own[%d]", i), fail)
	}
	if p := &c.Prices; strings.EqualFold(p.Provider, noProvider) && p.Region != "" {
		fail("prices.region", "found %q with prices.provider: %s, allowed: nothing, as there is no list to look in", clean(p.Region), noProvider)
	}
	c.Energy.check(fail)
	seen := map[string]bool{}
	for i, b := range c.Budgets {
		key := fmt.Sprintf("budgets[%d]", i)
		switch {
		case b.Team == "" || !plainName(b.Team):
			fail(key+".team", "found %q, allowed: the name of a team", clean(b.Team))
		case seen[b.Team]:
			fail(key+".team", "found %q a second time, allowed: one budget for each team", clean(b.Team))
		}
		seen[b.Team] = true
		checkMoney(b.PerMonth, key+".per_month", fail)
		checkCurrency(b.Currency, key+".currency", fail)
	}
}

func (p *Price) check(key string, fail failer) {
	for name, glob := range map[string]string{"gpu": p.GPU, "node": p.Node} {
		if _, err := path.Match(glob, ""); err != nil || name == "gpu" && glob == "" {
			fail(key+"."+name, "found %q, allowed: a name in which * and ? stand for others, such as NVIDIA H100*", clean(glob))
		}
	}
	checkMoney(p.PerGPUHour, key+".per_gpu_hour", fail)
	checkCurrency(p.Currency, key+".currency", fail)
	if !slices.Contains(priceKinds, p.Kind) {
		fail(key+".kind", "found %q, allowed: %s", clean(p.Kind), strings.Join(priceKinds, ", "))
	}
	if p.To != "" && p.To < p.From {
		fail(key+".to", "found %s, allowed: %s, its first day, or later", p.To, p.From)
	}
	if !plainName(p.Source) {
		fail(key+".source", "found control characters or more than %d letters, allowed: a plain text", maxName)
	}
}

func (e *Energy) check(fail failer) {
	for key, v := range map[string]struct {
		one    *float64
		byHour []float64
	}{
		"energy.price_per_kwh": {e.PerKWh, e.PerKWhByHour}, "energy.carbon_g_per_kwh": {e.Carbon, e.CarbonByHour},
	} {
		if v.one != nil && len(v.byHour) > 0 {
			fail(key, "found beside %s_by_hour, allowed: one of them", key)
		}
		if n := len(v.byHour); n != 0 && n != 24 {
			fail(key+"_by_hour", "found %d values, allowed: 24, one for each hour of the day", n)
		}
	}
	if len(e.Prices()) > 0 || e.Currency != "" {
		checkCurrency(e.Currency, "energy.currency", fail)
	}
	if _, err := time.LoadLocation(e.TimeZone); err != nil {
		fail("energy.time_zone", "found %q, allowed: a name of the time zone database, such as Europe/Berlin", clean(e.TimeZone))
	}
}

func checkMoney(v *float64, key string, fail failer) {
	if v == nil {
		fail(key, "is missing, allowed: a number of 0 or more")
	}
}

func checkCurrency(code, key string, fail failer) {
	if !currencyCode.MatchString(code) {
		fail(key, "found %q, allowed: a code of ISO 4217, such as USD or EUR", clean(code))
	}
}
