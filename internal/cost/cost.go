// Package cost is what an hour of a GPU comes to, in whole numbers: the amounts
// that the ledger books, reports add up and the API hands out. All arithmetic on
// money, time and energy is here, so that parts always sum to what was paid.
package cost

import (
	"cmp"
	"time"

	"gpuvigil/collector"
)

// Amounts is what was booked of something, in integers that add up without
// rounding. Money is in billionths of the currency. But for Time and Unpriced zero is
// what is not known, and not written; of Effective, Priced tells.
type Amounts struct {
	Time       int64 `json:"time_ns"`                  // of GPUs, in nanoseconds
	Unpriced   int64 `json:"unpriced_time_ns"`         // the part of Time for which no price was known: it costs 0 here, and not in truth
	List       int64 `json:"list_nano,omitzero"`       // at list price, where there is one
	Contracted int64 `json:"contracted_nano,omitzero"` // at the contracted price, where there is one
	Effective  int64 `json:"effective_nano"`           // what it costs after all: at the effective price, else the contracted one, else the list's
	Electric   int64 `json:"electric_nano,omitzero"`   // of the energy, with what cooling and conversion take; in no other amount
	Energy     int64 `json:"energy_microjoule,omitzero"`
	Carbon     int64 `json:"carbon_nanogram,omitzero"` // with what cooling and conversion cause
}

// Columns is the number of amounts.
const Columns = 8

// Array returns the amounts in the order of the fields.
func (a Amounts) Array() [Columns]int64 {
	return [Columns]int64{a.Time, a.Unpriced, a.List, a.Contracted, a.Effective, a.Electric, a.Energy, a.Carbon}
}

// FromArray is the reverse of Array.
func FromArray(v [Columns]int64) Amounts {
	return Amounts{Time: v[0], Unpriced: v[1], List: v[2], Contracted: v[3], Effective: v[4], Electric: v[5], Energy: v[6], Carbon: v[7]}
}

// Plus returns the sum.
func (a Amounts) Plus(b Amounts) Amounts {
	x, y := a.Array(), b.Array()
	for i := range x {
		x[i] += y[i]
	}
	return FromArray(x)
}

// Minus returns the difference.
func (a Amounts) Minus(b Amounts) Amounts {
	x, y := a.Array(), b.Array()
	for i := range x {
		x[i] -= y[i]
	}
	return FromArray(x)
}

// Priced reports whether any of the time had a price.
func (a Amounts) Priced() bool { return a.Unpriced < a.Time }

// NoTeam stands for the team of owners who have none.
const NoTeam = "no team"

// Team returns the team that an owner's time is added up under: what is nobody's is
// there, too, so that teams sum to what was paid.
func Team(o collector.Owner) string {
	if o == (collector.Owner{}) {
		return o.String()
	}
	return cmp.Or(o.Team, NoTeam)
}

// Key says whose time on which GPU was in which state.
type Key struct {
	UUID  string
	Owner collector.Owner
	State State
}

// Account is what was booked under one key since the ledger began.
type Account struct {
	Key
	GPU      int // index on the node
	Model    string
	Currency string
	Amounts
}

// Row is what was booked under one key in one hour.
type Row struct {
	Hour     time.Time       `json:"hour"` // its beginning, in UTC
	GPU      int             `json:"gpu"`
	UUID     string          `json:"uuid"`
	Model    string          `json:"model"`
	Owner    collector.Owner `json:"owner"` // empty: unattributed
	State    State           `json:"state"`
	Currency string          `json:"currency"`
	Amounts
}

// Answer is what a source of costs says for a span of whole hours.
type Answer struct {
	Node      string    `json:"node"`
	Simulated bool      `json:"simulated"`
	Since     time.Time `json:"since"` // the span that the rows are of: whole hours in UTC, but for the first and the last; where something is known only from later on, from then
	Until     time.Time `json:"until"`
	Busy      string    `json:"busy"`   // what counts as busy
	Prices    []Price   `json:"prices"` // in force now, by GPU
	Rows      []Row     `json:"rows"`   // by hour, GPU, owner, state

	// Shared is what is known by owner and model only, not by GPU and state: from a
	// time-series database energy, its cost and carbon. Rows do not have it then.
	Shared []Shared `json:"shared,omitempty"`

	// Gaps is what is missing from the span: from a time-series database, time of GPUs
	// that is in no sample.
	Gaps []Gap `json:"gaps,omitempty"`

	Work []WorkRow `json:"work,omitempty"` // by hour, owner; of owners of whom any is known

	Step    time.Duration `json:"step_ns,omitempty"` // that a row is of, from its hour on; 0: an hour
	Budgets []Budget      `json:"budgets,omitempty"` // in force now
}

// Width is how long a time a row is of.
func (a *Answer) Width() time.Duration { return cmp.Or(a.Step, time.Hour) }

// Gap is time of a node's GPUs of which nothing is known, not even that it was not
// observed: no row has it.
type Gap struct {
	Node string    `json:"node"`
	GPUs int       `json:"gpus"` // whose time it is
	From time.Time `json:"from"` // about when
	To   time.Time `json:"to"`
	Time int64     `json:"time_ns"` // of all of these GPUs, in nanoseconds
}

// Shared is what an owner had of one model in one step.
type Shared struct {
	Hour     time.Time       `json:"hour"`
	Owner    collector.Owner `json:"owner"`
	Model    string          `json:"model"`
	Currency string          `json:"currency"`
	Amounts
}

// Price is what an hour of a GPU costs now, and who says so.
type Price struct {
	GPU      int    `json:"gpu"`
	UUID     string `json:"uuid"`
	Model    string `json:"model"`
	Kind     string `json:"kind"` // list, contracted, effective; empty: no price is known
	Nano     int64  `json:"nano_per_gpu_hour"`
	Currency string `json:"currency"`
	Provider string `json:"provider,omitempty"`
	Region   string `json:"region,omitempty"`
	Source   string `json:"source,omitempty"`
	AsOf     string `json:"as_of,omitempty"` // date
}

// OwnerEnergy is what one owner's work took on all GPUs of one model since the
// ledger began.
type OwnerEnergy struct {
	Owner    collector.Owner
	Model    string
	Currency string
	Amounts
}

// Export is what the scrape page shows. It does not change once it is handed out.
type Export struct {
	Accounts []Account     // by GPU, owner, state; those that changed within the last hour
	Owners   []OwnerEnergy // by owner, model; of the owners of these accounts
	Prices   []Price       // by GPU
	Budgets  []Budget
	Work     []OwnerWork // by owner; of those that did something within the last hour
	Months   []TeamMonth // by team
}

// Budget is what a team may spend in a month, in units of the currency.
type Budget struct {
	Team     string  `json:"team"`
	Currency string  `json:"currency"`
	PerMonth float64 `json:"per_month"`
}
