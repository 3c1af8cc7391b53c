package trial

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"gpuvigil/internal/backtest"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
	"gpuvigil/internal/synth"
)

// agent is what runs on a node: the engine, and the ledger whose money it is told.
type agent struct {
	options Options
	watch   *backtest.Watch
	ledger  *ledger.Ledger
	config  ledger.Config
	store   *store.Store
	dir     string
	planned bool // a budget is declared
}

func (o Options) newAgent() (*agent, error) {
	book, err := price.NewBook(price.Config{Provider: price.NoProvider, Own: []price.Own{{Key: "synthetic", GPU: "*", PerHour: synth.PriceOfGPU, Currency: "USD", Kind: price.Effective}}})
	if err != nil {
		return nil, err
	}
	a := &agent{options: o, watch: backtest.NewWatch(o.engine()), config: ledger.Config{Prices: book, Log: slog.New(slog.DiscardHandler)}}
	if a.dir, err = os.MkdirTemp("", "gpuvigil-trial"); err != nil {
		return nil, fmt.Errorf("make a directory for the ledger: %w", err)
	}
	if a.store, err = store.Open(filepath.Join(a.dir, "state.db"), time.Second, a.config.Log); err != nil {
		return nil, errors.Join(err, os.RemoveAll(a.dir))
	}
	if a.ledger, err = ledger.New(a.store, a.config); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *agent) close() error { return errors.Join(a.store.Close(), os.RemoveAll(a.dir)) }

// plan declares a team's budget of a month.
func (a *agent) plan(team string, budget float64) {
	a.config.Budgets = []cost.Budget{{Team: team, Currency: "USD", PerMonth: budget}}
	a.ledger.Configure(a.config)
	a.planned = true
}

// observe takes one step of the node, with a new agent where the old one has ended.
func (a *agent) observe(n *synth.Node) error {
	s := n.Next()
	if s == nil {
		return nil
	}
	if n.Restarted() {
		if err := a.restart(); err != nil {
			return err
		}
	}
	seen := *s
	seen.Money = a.ledger.Money()
	a.watch.Observe(&seen)
	a.ledger.Observe(s)
	return nil
}

// restart ends the agent and begins it anew from what it has written.
func (a *agent) restart() error {
	state, err := a.watch.Engine.Save()
	if err != nil {
		return err
	}
	if err := a.store.Update(a.ledger.WriteTx); err != nil {
		return err
	}
	a.watch.Engine = a.options.engine()
	if err := a.watch.Engine.Restore(state); err != nil {
		return err
	}
	a.ledger, err = ledger.New(a.store, a.config)
	return err
}
