package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gpuvigil/internal/config"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/price"
)

// ledgerConfig makes of the configuration what the ledger needs.
func ledgerConfig(cfg *config.Config, log *slog.Logger) (ledger.Config, error) {
	book, err := priceBook(cfg)
	if err != nil {
		return ledger.Config{}, err
	}
	out := ledger.Config{Node: cfg.Node, Prices: book, Retention: time.Duration(cfg.Ledger.Retention), Log: log.With("component", "ledger")}
	for _, b := range cfg.Budgets {
		out.Budgets = append(out.Budgets, cost.Budget{Team: b.Team, Currency: b.Currency, PerMonth: *b.PerMonth})
	}
	return out, nil
}

// priceBook makes the node's price book.
func priceBook(cfg *config.Config) (*price.Book, error) { return bookOf(cfg, cfg.Node) }

// bookOf makes the price book of a node.
func bookOf(cfg *config.Config, node string) (*price.Book, error) {
	p := price.Config{
		Node: node, Labels: cfg.Prices.NodeLabels, Provider: cfg.Prices.Provider, Region: cfg.Prices.Region,
		Energy: price.Energy{PerKWh: cfg.Energy.Prices(), Currency: cfg.Energy.Currency, PUE: cfg.Energy.PUE, Carbon: cfg.Energy.Carbons(), TimeZone: cfg.Energy.TimeZone},
	}
	kinds := map[string]price.Kind{}
	for k := range price.Kinds {
		kinds[k.String()] = k
	}
	for i, o := range cfg.Prices.Own {
		p.Own = append(p.Own, price.Own{Key: fmt.Sprintf("prices.own[%d]", i), GPU: o.GPU, Node: o.Node, Labels: o.Labels, PerHour: *o.PerGPUHour,
			Currency: o.Currency, Kind: kinds[o.Kind], From: o.From.Time(), To: o.To.Time(), Source: o.Source})
	}
	book, err := price.NewBook(p)
	if wrong, ok := errors.AsType[*price.Mistake](err); ok {
		return nil, fmt.Errorf("%s: %w", cfg.Place(wrong.Key), wrong)
	}
	return book, err
}
