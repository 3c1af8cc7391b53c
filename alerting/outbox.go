package alerting

import (
	"log/slog"
	"sync"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

const keySep = "\x00" // between receiver and incident in the state file's keys

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
	// that may page are sent, and what Promoted says. The rest is summed up once when it
	// is over. Zero sends everything from the start.
	Shadow time.Duration

	// Promoted are rules that the user wants to hear of at once.
	Promoted map[rules.ID]bool

	// Links returns where to go on from an incident; nil for nowhere.
	Links func(*detect.Incident) []Link

	// Context returns how far an incident reaches and what it costs; nil for not known. It
	// is called when the incident changes, by whom Take is called, and must not call
	// the outbox.
	Context func(*detect.Incident) Context

	// Chart returns a picture of the last hours, or nil; nil for never. It is called by
	// notifiers that send one.
	Chart func(*detect.Incident) *Chart

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
// that the disk does not take, or does not answer for, is delivered all the same
// after a short wait.
//
// The order has one exception. A message that failed several times in a row lets
// another one try between its own tries, a page before others: so a message that
// the receiver cannot digest does not hold up what is behind it, and when a
// receiver comes back after an outage at most one message is out of its place.
//
// What a receiver refuses is not tried again at once. It is tried again when
// another message passes, when the agent is started or its configuration is read
// anew, and, if it is a page that still fires, every ten minutes: a token that
// was mended delivers it though nothing else happens. What was refused for its
// content stays refused until the incident changes.
type Outbox struct {
	store *store.Store
	save  chan struct{} // something is to be written now

	mu      sync.Mutex // guards what follows, the queues and all records
	cfg     OutboxConfig
	log     *slog.Logger
	queues  []*queue
	parked  map[string]map[string]*record // of receivers that are not configured, by receiver and incident
	first   time.Time                     // when the agent was first started
	unnoted bool                          // that is not on disk
	seq     uint64
	dirty   map[string]*record // by key; those that are not on disk as they are
	writing *write             // one of our own that the disk has not answered yet
	running bool
}

// queue is what one receiver has got and is to get.
type queue struct {
	Receiver
	sent, retried, refused, shadowed *vm.Counter

	wake     chan struct{}      // something may be ready to be sent
	records  map[string]*record // by incident
	waiting  []*record          // by place
	letOther bool               // the first one has just failed once more: another one may try
	failures int                // since the last success
	lastErr  string             // of the last attempt
	lastSent time.Time
	refusing bool // the last answer was a refusal of us, not of a message
}

// Take takes incidents that opened, changed or resolved into memory. It waits for
// nobody: they are delivered soon, once they are on disk or, if the disk does not
// take them, two seconds later. The incidents must not be modified afterwards.
func (o *Outbox) Take(incidents []detect.Incident) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range incidents {
		for _, q := range o.queues {
			o.take(q, &incidents[i], now)
		}
		for _, records := range o.parked {
			// Who comes back is not to hear what is no longer true.
			if r := records[incidents[i].ID]; r != nil && r.told() && !r.says(&incidents[i]) {
				o.renew(r, &incidents[i], now)
			}
		}
	}
	o.wakeAll()
}

// WriteTx writes what is not on disk into the transaction that also stores the
// engine's state. If the transaction fails or is never answered, memory remains
// the truth and the next one writes it again.
func (o *Outbox) WriteTx(tx *store.Tx) error { return o.write(tx) }

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
	waited := r.waits()
	o.renew(r, i, now)
	if !waited {
		q.put(r)
	}
}

// renew makes the incident's state what is to be said.
func (o *Outbox) renew(r *record, i *detect.Incident, now time.Time) {
	if !r.waits() {
		o.seq++
		r.Seq, r.Queued, r.taken = o.seq, now, now
	}
	incident := *i
	r.Incident, r.Refused, r.again = &incident, nil, 0
	if o.cfg.Context != nil {
		known := o.cfg.Context(&incident).Following(r.Context)
		r.Context = &known
	}
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
	r.Kept = keepBack(i)
	q.shadowed.Inc()
	o.change(r, now)
	o.log.Info("would have been sent: in the first days only certain faults are", "receiver", q.Name,
		"incident", i.ID, "rule", i.Rule, "severity", i.Severity, "until", o.first.Add(o.cfg.Shadow))
	return nil
}

// inShadow reports whether the incident is kept back because the agent is new.
func (o *Outbox) inShadow(i *detect.Incident, now time.Time) bool {
	if now.Sub(o.first) >= o.cfg.Shadow || o.cfg.Promoted[i.Rule] {
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
