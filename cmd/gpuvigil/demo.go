package main

import (
	"fmt"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/sim"
)

// preludeStep is how finely the demo's past is replayed: two hours in a second or two.
const preludeStep = 5 * time.Second

// demoNode is the name of a node that is not there.
const demoNode = "demo-gpu-01"

// demo puts a simulated node in the place of the real sources. A reload of the
// configuration goes on with the same node.
type demo struct {
	scenario string
	seed     uint64
	node     *sim.Sim
	replayed bool
	last     *collector.Snapshot // of the past; nil before that was replayed
}

// start makes the simulated node.
func (d *demo) start(cfg *config.Config) error {
	if d.node != nil {
		return nil
	}
	scenario, err := sim.ScenarioByName(d.scenario)
	if err != nil {
		return wrongUsage{fmt.Errorf("--demo.scenario: %w", err)}
	}
	d.node, err = sim.New(sim.Config{Seed: d.seed, Start: time.Now(), Scenario: scenario, Node: cfg.Node, Tiers: tiers(cfg.Sampling),
		Histograms: cfg.Metrics.NativeHistograms})
	if err != nil {
		return fmt.Errorf("start the demo: %w", err)
	}
	return nil
}

// furnish makes up what the configuration leaves open about money, so that nothing of
// the demo stays empty.
func (d *demo) furnish(cfg *config.Config) {
	currency := "USD"
	if len(cfg.Prices.Own) > 0 {
		currency = cfg.Prices.Own[0].Currency
	}
	if e := &cfg.Energy; len(e.Prices()) == 0 && len(e.Carbons()) == 0 && e.Currency == "" {
		price, carbon := 0.21, 380.0
		e.PerKWh, e.Carbon, e.Currency, e.PUE = &price, &carbon, currency, 1.3
	}
	if len(cfg.Budgets) == 0 {
		month := 12000.0
		cfg.Budgets = []config.Budget{{Team: "nlp", PerMonth: &month, Currency: currency}}
	}
}

// replay puts the scenario's past through the engine, so that findings, habits
// and the page are full at once. Of the incidents only those that are still open
// are told: what came and went in the past is nobody's business. Of that past the ledger
// books what an earlier demo in the same state directory has not booked.
func (d *demo) replay(p *pipeline) {
	d.replayed = true
	steps := tiers(p.cfg.Sampling)
	for t := range steps {
		steps[t] = max(steps[t], preludeStep)
	}
	past := collector.NewReplay(collector.SamplerConfig{Node: p.cfg.Node, Tiers: steps, Log: p.log}, sim.SourceName)
	booked := p.ledger.Renew()
	var last *collector.Snapshot
	for part := range d.node.Prelude(preludeStep) {
		last = past.Snapshot(part)
		p.engine.Observe(p.withMoney(last))
		if last.Time.After(booked) {
			p.ledger.Observe(last)
		}
	}
	if last != nil {
		p.sampler.Know(last.Known())
		d.last = last
	}
	var open []detect.Incident
	for _, i := range p.engine.View().Incidents {
		if i.State == detect.Firing {
			open = append(open, i)
		}
	}
	p.outbox.Take(open)
	if last != nil {
		p.record(last) // the scrape page shows of costs what is written
	}
}
