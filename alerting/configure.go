package alerting

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
	"gpuvigil/internal/store"
)

const firstStart = "first_start"

// NewOutbox returns an outbox that goes on where the one before it stopped. Only
// one may use the store at a time; it lives as long as the agent.
func NewOutbox(st *store.Store, cfg OutboxConfig, receivers ...Receiver) (*Outbox, error) {
	o := &Outbox{
		store: st, log: cfg.Log, save: make(chan struct{}, 1), gate: &Gate{marks: map[string]*Mark{}, begun: map[string]*Begun{}},
		parked: map[string]map[string]*record{}, dirty: map[string]*record{}, drills: map[string]*drill{},
	}
	o.extras = map[string]*extra{marksKey: {text: o.gate.marksText}, drillsKey: {text: o.drillsText}, windowsKey: {text: o.gate.windowsText}}
	if err := check(receivers); err != nil {
		return nil, err
	}
	now := time.Now()
	if err := o.started(now); err != nil {
		return nil, err
	}
	if err := errors.Join(o.load(now), o.loadMarks(), o.loadDrills(), o.loadWindows()); err != nil {
		return nil, fmt.Errorf("read what is to be said: %w", err)
	}
	o.configure(cfg, receivers, now)
	if len(receivers) > 0 { // else they are yet to be configured
		o.warnOfParked()
	}
	return o, nil
}

// Configure replaces the configuration and the receivers between two calls of
// Run. A receiver is known by its name. What waits for one that is not there any
// more is kept, in memory and on disk, and is delivered if it comes back within
// 30 days. On an error nothing has changed.
func (o *Outbox) Configure(cfg OutboxConfig, receivers ...Receiver) error {
	if err := check(receivers); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running {
		return errors.New("configure the outbox: it runs; end Run first")
	}
	for _, q := range o.queues {
		o.parked[q.Name] = q.records
	}
	o.configure(cfg, receivers, time.Now())
	o.warnOfParked()
	return nil
}

func check(receivers []Receiver) error {
	seen := map[string]bool{}
	for _, r := range receivers {
		if r.Name == "" || strings.Contains(r.Name, keySep) || seen[r.Name] {
			return fmt.Errorf("receiver %q: each needs a name of its own", r.Name)
		}
		if r.Notifier == nil {
			return fmt.Errorf("receiver %q: nothing to notify", r.Name)
		}
		seen[r.Name] = true
	}
	return nil
}

// configure makes the queues anew, each with the records that are parked under
// its name. The caller holds o.mu or is the only one to know o.
func (o *Outbox) configure(cfg OutboxConfig, receivers []Receiver, now time.Time) {
	cfg.Pause = or(cfg.Pause, 1200*time.Millisecond)
	cfg.Backoff = or(cfg.Backoff, time.Second)
	cfg.MaxBackoff = or(cfg.MaxBackoff, time.Minute)
	o.cfg, o.log, o.queues = cfg, cfg.Log, nil
	o.gate.set(cfg.GateConfig, o.first)
	for _, r := range receivers {
		q := newQueue(r)
		for id, r := range o.parked[r.Name] {
			o.adopt(q, id, r, now)
		}
		delete(o.parked, r.Name)
		o.queues = append(o.queues, q)
	}
	for _, records := range o.parked {
		for id, r := range records {
			if now.Sub(r.Touched) > keepRef {
				o.drop(records, id, now)
			}
		}
	}
}

// warnOfParked says for whom messages wait who is not configured. The caller holds o.mu or
// is the only one to know o.
func (o *Outbox) warnOfParked() {
	for name, records := range o.parked {
		waiting := 0
		for _, r := range records {
			if r.Incident != nil {
				waiting++
			}
		}
		if waiting > 0 {
			o.log.Warn("messages wait for a receiver that is not configured; they are kept for 30 days, in case it comes back",
				"receiver", name, "messages", waiting)
		}
	}
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

func newQueue(r Receiver) *queue {
	counter := func(result string) *vm.Counter {
		return vm.GetOrCreateCounter(metric.NotificationsSent.Series(r.Name, result))
	}
	return &queue{
		Receiver: r, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), records: map[string]*record{},
		sent: counter("sent"), retried: counter("retried"), refused: counter("refused"), shadowed: counter("shadowed"),
		held: counter("held"), merged: counter("merged"),
	}
}

// started finds out when the agent was first started, which is now if it never
// was. A first start in the future is the work of a clock that was wrong. One that cannot
// be read was long ago: another week of silence would be worse.
func (o *Outbox) started(now time.Time) error {
	var damage error
	lost := false
	err := o.store.View(func(tx *store.Tx) error {
		if v := tx.Get(store.Meta, firstStart); v != nil {
			damage = json.Unmarshal(v, &o.first)
		} else {
			lost = tx.Get(store.Damaged, store.Meta+"/"+firstStart) != nil
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the time of the first start: %w", err)
	}
	if damage != nil {
		o.store.SetAside(store.Meta, firstStart, damage)
	}
	if damage != nil || lost {
		o.first, o.unnoted = time.Unix(0, 0), true
	}
	if o.first.IsZero() || o.first.After(now) {
		o.first, o.unnoted = now, true
	}
	return nil
}
