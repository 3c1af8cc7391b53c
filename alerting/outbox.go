package alerting

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

const (
	keySep     = "\x00" // between receiver and incident in the state file's keys
	firstStart = "first_start"
)

// Receiver is one place that messages go to.
type Receiver struct {
	Name        string         // label value, and key in the state file
	Notifier    Notifier       // called by one goroutine, never twice at once
	MinSeverity rules.Severity // what is below is not sent
}

// OutboxConfig is how an outbox works. Log is required.
type OutboxConfig struct {
	Node string // for incidents whose members name none
	Log  *slog.Logger

	// Shadow is for how long after the agent's first start only pages of rules
	// that may page are sent. Zero sends everything from the start.
	Shadow time.Duration

	// Links returns where to go on from an incident; nil for nowhere.
	Links func(*detect.Incident) []Link

	Pause      time.Duration // between two messages to one receiver; 0 means 1.2 s
	Backoff    time.Duration // after the first failure, doubled with each further one; 0 means 1 s
	MaxBackoff time.Duration // 0 means one minute
}

// Outbox delivers incidents to receivers: in order for each receiver, at least
// once, over restarts and while a receiver or the disk is out of order. For each
// incident and receiver at most one message waits: a newer state takes the place
// of the older one.
//
// Memory is what it works from; the state file is what it starts from. A message
// is delivered even if it could not be written.
type Outbox struct {
	cfg    OutboxConfig
	store  *store.Store
	log    *slog.Logger
	queues []*queue
	first  time.Time     // when the agent was first started
	save   chan struct{} // something is to be written now

	mu    sync.Mutex // guards what follows, the queues and all records
	seq   uint64
	dirty map[*record]bool // records that are not on disk as they are
}

// queue is what one receiver has got and is to get.
type queue struct {
	Receiver
	sent, retried, refused, shadowed *vm.Counter

	wake     chan struct{}      // something may be ready to be sent
	records  map[string]*record // by incident
	waiting  []*record          // by place
	failures int                // since the last success
	lastErr  string             // of the last attempt
	lastSent time.Time
	refusing bool // the last answer was a refusal of us, not of a message
}

// NewOutbox returns an outbox that goes on where the one before it stopped. Only
// one may use the store at a time.
func NewOutbox(st *store.Store, cfg OutboxConfig, receivers ...Receiver) (*Outbox, error) {
	cfg.Pause = or(cfg.Pause, 1200*time.Millisecond)
	cfg.Backoff = or(cfg.Backoff, time.Second)
	cfg.MaxBackoff = or(cfg.MaxBackoff, time.Minute)
	o := &Outbox{cfg: cfg, store: st, log: cfg.Log, save: make(chan struct{}, 1), dirty: map[*record]bool{}}
	seen := map[string]bool{}
	for _, r := range receivers {
		if r.Name == "" || strings.Contains(r.Name, keySep) || seen[r.Name] {
			return nil, fmt.Errorf("receiver %q: each needs a name of its own", r.Name)
		}
		if r.Notifier == nil {
			return nil, fmt.Errorf("receiver %q: nothing to notify", r.Name)
		}
		seen[r.Name] = true
		o.queues = append(o.queues, newQueue(r))
	}
	now := time.Now()
	if err := o.started(now); err != nil {
		return nil, err
	}
	return o, o.load(now)
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
		Receiver: r, wake: make(chan struct{}, 1), records: map[string]*record{},
		sent: counter("sent"), retried: counter("retried"), refused: counter("refused"), shadowed: counter("shadowed"),
	}
}

// started finds out when the agent was first started, which is now if it never
// was. A first start in the future is the work of a clock that was wrong.
func (o *Outbox) started(now time.Time) error {
	err := o.store.View(func(tx *store.Tx) error {
		if v := tx.Get(store.Meta, firstStart); v != nil {
			return json.Unmarshal(v, &o.first)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the time of the first start: %w", err)
	}
	if !o.first.IsZero() && !o.first.After(now) {
		return nil
	}
	o.first = now
	err = o.store.Update(func(tx *store.Tx) error {
		v, err := json.Marshal(now)
		return errors.Join(err, tx.Put(store.Meta, firstStart, v))
	})
	if err != nil {
		o.log.Error("the time of the first start is not stored: the next start counts as the first", "err", err)
	}
	return nil
}

// EnqueueTx takes incidents that opened, changed or resolved, in the transaction
// that also stores the engine's state. They are delivered once the transaction is
// on disk; if it fails they are delivered all the same and written later. The
// incidents must not be modified afterwards.
func (o *Outbox) EnqueueTx(tx *store.Tx, incidents []detect.Incident) error {
	now := time.Now()
	o.mu.Lock()
	for i := range incidents {
		for _, q := range o.queues {
			o.take(q, &incidents[i], now)
		}
	}
	clean := len(o.dirty) == 0
	o.wakeAll()
	o.mu.Unlock()
	if clean {
		return nil
	}
	return o.write(tx)
}

// take puts an incident's state in the place of the one that waits, if one does,
// or at the end of the queue.
func (o *Outbox) take(q *queue, i *detect.Incident, now time.Time) {
	r := q.records[i.ID]
	if r != nil && r.says(i) {
		return
	}
	if r == nil || !r.told() {
		if r = o.introduce(q, i, r, now); r == nil {
			return
		}
	}
	if !r.waits() {
		o.seq++
		r.Seq, r.Queued = o.seq, now
		q.put(r)
	}
	incident := *i
	r.Incident, r.Refused, r.again = &incident, nil, 0
	o.change(r, now)
}

// introduce decides whether a receiver is to hear of an incident that it does not
// know, and returns its record if so.
func (o *Outbox) introduce(q *queue, i *detect.Incident, r *record, now time.Time) *record {
	if i.State == detect.Resolved || i.Severity < q.MinSeverity {
		return nil
	}
	shadow := o.inShadow(i, now)
	if shadow && r != nil {
		return nil
	}
	if r == nil {
		r = &record{key: q.Name + keySep + i.ID}
		q.records[i.ID] = r
	}
	r.Shadowed = shadow
	if !shadow {
		return r
	}
	q.shadowed.Inc()
	o.change(r, now)
	o.log.Info("would have been sent: in the first days only certain faults are", "receiver", q.Name,
		"incident", i.ID, "rule", i.Rule, "severity", i.Severity, "until", o.first.Add(o.cfg.Shadow))
	return nil
}

// inShadow reports whether the incident is kept back because the agent is new.
func (o *Outbox) inShadow(i *detect.Incident, now time.Time) bool {
	if now.Sub(o.first) >= o.cfg.Shadow {
		return false
	}
	rule := rules.Get(i.Rule)
	return rule == nil || !rule.Pages || i.Severity < rules.Page
}

func (o *Outbox) wakeAll() {
	for _, q := range o.queues {
		poke(q.wake)
	}
}

// poke leaves one signal in the channel.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
