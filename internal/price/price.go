// Package price knows what an hour of a GPU costs on a node, from the
// configuration or a short built-in list, and what its energy costs and causes. It
// guesses nothing: a GPU that it does not know by its whole name has no price.
package price

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Kind is what a price is: how it came about.
type Kind uint8

// The kinds of prices.
const (
	List       Kind = iota // what anybody pays
	Contracted             // what was agreed on
	Effective              // what it costs after all: with discounts, or amortized
	Kinds                  // the number of kinds
)

var kindNames = [Kinds]string{"list", "contracted", "effective"}

// String returns the kind as the configuration spells it.
func (k Kind) String() string { return kindNames[k] }

// Rate is the price of an hour of one GPU, and who says so.
type Rate struct {
	Kind     Kind
	Nano     int64 // billionths of the currency for one GPU-hour
	Currency string
	Provider string
	Region   string
	Source   string
	AsOf     string // date: when a list was read, or from when an own price holds; empty: always
}

// Own is a price from the configuration.
type Own struct {
	Key      string            // where it stands there, for errors
	GPU      string            // glob on the model's name as NVML gives it
	Node     string            // glob on the node's name; empty: every node
	Labels   map[string]string // that the node must have
	PerHour  float64           // of one GPU, in Currency
	Currency string            // ISO 4217
	Kind     Kind
	From, To time.Time // first and last day in UTC; zero: open
	Source   string
}

// NoProvider leaves out the built-in list.
const NoProvider = "none"

// Config is what a book is made from.
type Config struct {
	Node     string            // the node's name
	Labels   map[string]string // the node's labels
	Provider string            // of the built-in list; empty: of each product the lowest price, NoProvider: none
	Region   string            // of that provider; empty: any
	Own      []Own             // the first that fits wins
	Energy   Energy
}

// Book is the prices that are in force on one node. It does not change.
type Book struct {
	builtIn  *builtIn
	cfg      Config
	own      []Own // that are of this node
	currency string
	energy   energy
}

// Mistake is what is wrong with a configuration.
type Mistake struct {
	Key  string // where it stands, such as prices.provider
	Text string // what was found and what is allowed
}

// Error returns key and text.
func (m *Mistake) Error() string { return m.Key + ": " + m.Text }

func mistake(key, format string, args ...any) error {
	return &Mistake{key, fmt.Sprintf(format, args...)}
}

// NewBook returns the book of one node. What is wrong with the configuration is a
// *Mistake.
func NewBook(cfg Config) (*Book, error) {
	built, err := load(productsCSV, pricesCSV)
	if err != nil {
		return nil, fmt.Errorf("read the built-in prices: %w", err)
	}
	b := &Book{builtIn: built, cfg: cfg}
	if b.energy, err = cfg.Energy.compile(); err != nil {
		return nil, err
	}
	if cfg.Provider != NoProvider {
		if err := b.checkProvider(); err != nil {
			return nil, err
		}
		b.currency = "USD"
	}
	for _, o := range cfg.Own {
		if !o.at(cfg.Node, cfg.Labels) {
			continue
		}
		if b.currency == "" {
			b.currency = o.Currency
		}
		if o.Currency != b.currency {
			return nil, mistake(o.Key+".currency", "found %s beside prices of this node in %s, allowed: one currency on a node; "+
				"prices.provider: none leaves out the built-in list, which is in USD", o.Currency, b.currency)
		}
		b.own = append(b.own, o)
	}
	if c := cfg.Energy.Currency; c != "" && b.currency != "" && c != b.currency {
		return nil, mistake("energy.currency", "found %s beside prices of this node in %s, allowed: one currency on a node", c, b.currency)
	}
	if b.currency == "" {
		b.currency = cfg.Energy.Currency
	}
	return b, nil
}

func (b *Book) checkProvider() error {
	if b.cfg.Provider == "" && b.cfg.Region == "" {
		return nil
	}
	var providers, regions []string
	for _, p := range b.builtIn.prices {
		if !slices.Contains(providers, p.Provider) {
			providers = append(providers, p.Provider)
		}
		if strings.EqualFold(p.Provider, b.cfg.Provider) && !slices.Contains(regions, p.Region) {
			regions = append(regions, p.Region)
		}
	}
	switch {
	case b.cfg.Provider == "":
		return mistake("prices.region", "found %.40q without prices.provider, allowed: a region of that provider", b.cfg.Region)
	case regions == nil:
		return mistake("prices.provider", "found %.40q, allowed: %s, %s, or nothing for the lowest of them", b.cfg.Provider, strings.Join(providers, ", "), NoProvider)
	case b.cfg.Region != "" && !slices.Contains(regions, b.cfg.Region):
		return mistake("prices.region", "found %.40q, allowed for %s: %s", b.cfg.Region, b.cfg.Provider, strings.Join(regions, ", "))
	}
	return nil
}

// at reports whether the price is one of the node.
func (o *Own) at(node string, labels map[string]string) bool {
	for k, v := range o.Labels {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return o.Node == "" || globs(o.Node, node)
}

// holds reports whether the price is in force at the time for a GPU of the model.
func (o *Own) holds(model string, at time.Time) bool {
	return globs(o.GPU, model) && (o.From.IsZero() || !at.Before(o.From)) && (o.To.IsZero() || at.Before(o.To.AddDate(0, 0, 1)))
}

// globs reports whether the pattern, in which * and ? also stand for a slash, fits
// the whole text.
func globs(pattern, text string) bool {
	slashless := strings.NewReplacer("/", "\x00")
	ok, err := path.Match(slashless.Replace(pattern), slashless.Replace(text))
	return ok && err == nil
}

// Currency returns the currency of all amounts of this node, ISO 4217; empty
// without any price.
func (b *Book) Currency() string { return b.currency }

// Rates is the price of each kind that a GPU has; nil: none. Of the Effective kind
// is what it costs after all: without a price of that kind the contracted one, else
// the list's.
type Rates [Kinds]*Rate

// Rates returns what an hour of a GPU of the model costs at the time.
func (b *Book) Rates(model string, at time.Time) Rates {
	var r Rates
	for i := range b.own {
		o := &b.own[i]
		if r[o.Kind] == nil && o.holds(model, at) {
			r[o.Kind] = o.rate()
		}
	}
	if r[List] == nil {
		r[List] = b.list(model)
	}
	for _, k := range []Kind{Contracted, List} {
		if r[Effective] == nil {
			r[Effective] = r[k]
		}
	}
	return r
}

func (o *Own) rate() *Rate {
	r := &Rate{Kind: o.Kind, Nano: nano(o.PerHour), Currency: o.Currency, Source: o.Source}
	if r.Source == "" {
		r.Source = "configuration"
	}
	if !o.From.IsZero() {
		r.AsOf = o.From.Format(time.DateOnly)
	}
	return r
}

// list returns the built-in price for a GPU with exactly this name: of several the
// lowest, so that what is said to be wasted is wasted at any rate.
func (b *Book) list(model string) *Rate {
	p, known := b.builtIn.products[model]
	if !known || b.cfg.Provider == NoProvider {
		return nil
	}
	var best *Rate
	for i := range b.builtIn.prices {
		l := &b.builtIn.prices[i]
		if l.product != p || b.cfg.Provider != "" && !strings.EqualFold(l.Provider, b.cfg.Provider) || b.cfg.Region != "" && l.Region != b.cfg.Region {
			continue
		}
		if best == nil || l.Nano < best.Nano {
			best = &l.Rate
		}
	}
	return best
}
