package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/internal/config"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/price"
	"gpuvigil/internal/report"
)

// fleetPrices knows what GPUs cost on nodes whose agents do not say it.
type fleetPrices struct {
	cfg *config.Config
	log *slog.Logger

	mu    sync.Mutex
	books map[string]*price.Book // by node
}

// maxBooks is more than a cluster has nodes.
const maxBooks = 20_000

// newFleetPrices returns the configuration's prices; an error says what is wrong with them.
func newFleetPrices(cfg *config.Config, log *slog.Logger) (*fleetPrices, error) {
	p := &fleetPrices{cfg: cfg, log: log, books: map[string]*price.Book{}}
	_, err := bookOf(cfg, "")
	return p, err
}

// of is what an hour of a GPU of the model costs on the node, NaN if nobody knows.
func (p *fleetPrices) of(node, model string) (perHour float64, currency string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	book, known := p.books[node]
	if !known {
		if len(p.books) >= maxBooks {
			clear(p.books)
		}
		var err error
		if book, err = bookOf(p.cfg, node); err != nil {
			p.log.Error("A node's GPUs have no price: the configuration's prices do not fit together there.", "node", node, "err", err)
		}
		p.books[node] = book
	}
	if book == nil {
		return math.NaN(), ""
	}
	rate := book.Rates(model, time.Now())[price.Effective]
	if rate == nil {
		return math.NaN(), ""
	}
	return float64(rate.Nano) / 1e9, rate.Currency
}

func fleetBudgets(cfg *config.Config) []fleet.Budget {
	var out []fleet.Budget
	for _, b := range cfg.Budgets {
		out = append(out, fleet.Budget{Team: b.Team, Currency: b.Currency, PerMonth: *b.PerMonth})
	}
	return out
}

// costReader returns what reads the agents' accounts from the server that the nodes are
// read from.
func costReader(p *config.FleetPrometheus) (*report.Engine, error) {
	at, with := address(p.Page), headers(p)
	client, err := at.Client(costsLimit)
	if err != nil {
		return nil, err
	}
	return report.NewEngine(report.EngineConfig{
		URL: p.URL, Match: p.Match, Busy: ledger.BusyMeans(), Client: client,
		Authorize: func(r *http.Request) error {
			if err := at.Authorize(r); err != nil {
				return err
			}
			for _, h := range with {
				v, err := h.Value()
				if err != nil {
					return fmt.Errorf("read the header %s: %w", h.Name, err)
				}
				r.Header.Set(h.Name, v)
			}
			return nil
		},
	})
}

// costsLimit is for all that one digest asks.
const costsLimit = 2 * time.Minute

// prime tells the role what teams had spent this month before it looked.
func prime(ctx context.Context, costs *report.Engine, role *fleet.Fleet, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, costsLimit)
	defer cancel()
	now := time.Now()
	days, err := costs.TeamDays(ctx, now)
	if err != nil {
		log.Warn("What teams had spent this month is not to be had: budgets are judged once three whole days are known.", "err", err)
		return
	}
	var past []fleet.TeamPast
	for _, d := range days {
		past = append(past, fleet.TeamPast(d))
	}
	role.Prime(now, past)
}

// fleetMoneyLines say what all GPUs cost, from the agents' accounts.
func fleetMoneyLines(costs *report.Engine, from, to time.Time, log *slog.Logger) []alerting.Line {
	ctx, cancel := context.WithTimeout(context.Background(), costsLimit)
	defer cancel()
	answer, err := costs.Costs(ctx, from, to)
	if early, ok := errors.AsType[*report.TooEarlyError](err); ok && early.Earliest.Before(to) {
		answer, err = costs.Costs(ctx, early.Earliest, to)
	}
	if err != nil {
		log.Error("The digest is without what the GPUs cost.", "err", err)
		return []alerting.Line{{Label: "Cost", Text: "not known: what the agents booked cannot be read, see the role's log"}}
	}
	return moneyLines(answer)
}
