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
	DigestOf    string         // the configured name of a receiver that this one brings digests to, and nothing else; empty: it is told incidents
	Mentions    []string       // ids of users and groups that a page calls, where no route says other ones
}

// OutboxConfig is how an outbox works. Log is required.
type OutboxConfig struct {
	GateConfig
	Log *slog.Logger

	// Burst is how many new messages that are no pages a receiver gets within a minute;
	// the rest is told in one that counts them. Zero is no limit.
	Burst int

	// Current returns an incident as it is now, nil if there is none. It must know at
	// least what Take was given. Without it nothing is told a second time.
	Current func(id string) *detect.Incident

	// Links returns where to go on from an incident; nil for nowhere.
	Links func(*detect.Incident) []Link

	// Context returns how far an incident reaches and what it costs; nil for not known. It
	// is called when the incident changes, by whom Take is called, and must not call
	// the outbox.
	Context func(*detect.Incident) Context

	// Chart returns a picture of the last hours, or nil; nil for never. It is called by
	// notifiers that send one.
	Chart func(*detect.Incident) *Chart

	Digest *DigestConfig // nil: there is none

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

	gate *Gate

	mu      sync.Mutex // guards what follows, the queues and all records
	cfg     OutboxConfig
	log     *slog.Logger
	queues  []*queue
	parked  map[string]map[string]*record // of receivers that are not configured, by receiver and incident
	first   time.Time                     // when the agent was first started
	unnoted bool                          // that is not on disk
	extras  map[string]*extra             // what people said and rehearse, by its key
	drills  map[string]*drill             // that go on, by the incident's id
	seq     uint64
	newest  time.Time          // of the states that Take was given
	dirty   map[string]*record // by key; those that are not on disk as they are
	writing *write             // one of our own that the disk has not answered yet
	running bool
}

// queue is what one receiver has got and is to get.
type queue struct {
	Receiver
	sent, retried, refused, shadowed, held, merged *vm.Counter

	turn     chan struct{}      // has room for the one that talks to the notifier
	wake     chan struct{}      // something may be ready to be sent
	looked   time.Time          // when it was last seen what may be told now
	begun    []time.Time        // when new messages that are no pages were, in the last minute
	records  map[string]*record // by incident
	waiting  []*record          // by place
	letOther bool               // the first one has just failed once more: another one may try
	failures int                // since the last success
	lastErr  string             // of the last attempt
	lastSent time.Time
	refusing bool // the last answer was a refusal of us, not of a message

	secret string // fingerprint of the secret of the last attempt; of the goroutine that delivers
}

// Take takes incidents that opened, changed or resolved into memory. It waits for
// nobody: they are delivered soon, once they are on disk or, if the disk does not
// take them, two seconds later. The incidents must not be modified afterwards.
func (o *Outbox) Take(incidents []detect.Incident) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range incidents {
		if at := incidents[i].Updated; at.After(o.newest) {
			o.newest = at
		}
		if o.gate.follow(&incidents[i], now) {
			o.extras[marksKey].gen++
		}
		for _, q := range o.queues {
			o.take(q, &incidents[i], now)
		}
		for _, records := range o.parked {
			// Who comes back is not to hear what is no longer true.
			if r := records[incidents[i].ID]; r != nil && r.Merged == "" && (r.told() || r.Held != "") && !r.says(&incidents[i]) {
				o.renew(r, &incidents[i], now)
			}
		}
	}
	o.wakeAll()
}

// Gate returns what decides who is told, for senders that need no outbox. It obeys the
// configuration of the outbox.
func (o *Outbox) Gate() *Gate { return o.gate }

// WriteTx writes what is not on disk into the transaction that also stores the
// engine's state. If the transaction fails or is never answered, memory remains
// the truth and the next one writes it again.
func (o *Outbox) WriteTx(tx *store.Tx) error { return o.write(tx) }

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
