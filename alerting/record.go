package alerting

import (
	"encoding/json"
	"strings"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

const (
	keepRef   = 30 * 24 * time.Hour // after the end of an incident
	keepStale = 90 * 24 * time.Hour // of an incident whose end was never seen
)

// record is what is known of one incident at one receiver: what is still to be
// said of it, and where it was said before. Its JSON form is in the state file.
type record struct {
	// Incident is the state that is to be said, or that was refused; nil once all
	// is said. It is replaced, never changed.
	Incident *detect.Incident `json:"incident,omitempty"`
	Context  *Context         `json:"context,omitempty"` // of it; nil: nothing is known
	Seq      uint64           `json:"seq"`               // place in the queue
	Queued   time.Time        `json:"queued,omitzero"`   // since when something waits
	Touched  time.Time        `json:"touched,omitzero"`  // when the record last changed

	Ref       string       `json:"ref,omitempty"`       // what the notifier returned
	Said      time.Time    `json:"said,omitzero"`       // Updated of the state that was said last
	SaidAs    detect.State `json:"said_as,omitempty"`   // and its State
	Ended     time.Time    `json:"ended,omitzero"`      // when the end of the incident was said
	Shadowed  bool         `json:"shadowed,omitempty"`  // kept back in the first week
	Held      string       `json:"held,omitempty"`      // why Incident is kept back for now
	Kept      *keptBack    `json:"kept,omitempty"`      // what was kept back and never sent
	Missed    bool         `json:"missed,omitempty"`    // it was over before it was to be sent
	Refused   *Refusal     `json:"refused,omitempty"`   // the receiver does not take Incident
	RefusedAt time.Time    `json:"refused_at,omitzero"` // when it last did not

	Rang   time.Time       `json:"rang,omitzero"`     // when a person was last called: by the first message, or again
	RangAs *rules.Severity `json:"rang_as,omitempty"` // and as what

	Rung   int             `json:"rung,omitempty"`   // how often it has called again
	Merged string          `json:"merged,omitempty"` // the message of many incidents that this one is told in
	Begun  time.Time       `json:"begun,omitzero"`   // of such a message: when it was begun
	Parts  map[string]part `json:"parts,omitempty"`  // and its incidents
	Words  *Text           `json:"words,omitempty"`  // said in place of the incident's own

	key      string
	gen      uint64    // raised by each change
	stored   uint64    // the gen that is on disk
	taken    time.Time // since when something waits, by the monotonic clock
	tries    int       // failures in a row
	again    int       // how often it was tried again after a refusal
	patience time.Time // when a refused page is tried again, by the monotonic clock
	doubt    bool      // an attempt has gone out whose outcome is not known
	gone     bool      // to be deleted
}

// waits reports whether something is to be said and may be.
func (r *record) waits() bool { return r.Incident != nil && r.Refused == nil && r.Held == "" }

// incident returns the id of the record's incident.
func (r *record) incident() string {
	_, id, _ := strings.Cut(r.key, keySep)
	return id
}

// told reports whether the receiver knows of the incident or is about to.
func (r *record) told() bool {
	return r.Ref != "" || r.Incident != nil && r.Held == "" || !r.Said.IsZero()
}

// says reports whether the record has said, or is about to say, just this state.
func (r *record) says(i *detect.Incident) bool {
	if r.Incident != nil {
		return r.Incident.Updated.Equal(i.Updated) && r.Incident.State == i.State
	}
	return r.Said.Equal(i.Updated) && r.SaidAs == i.State
}

// expired reports whether nobody needs the record any more.
func (r *record) expired(now time.Time) bool {
	switch {
	case r.waits(), r.Held != "" && now.Sub(r.Touched) < keepStale:
		return false
	case !r.Ended.IsZero():
		return now.Sub(r.Ended) > keepRef
	case r.Refused != nil:
		return now.Sub(r.Touched) > keepRef
	default:
		return now.Sub(r.Touched) > keepStale
	}
}

// change notes that r is to be written. The caller holds o.mu.
func (o *Outbox) change(r *record, now time.Time) {
	r.gen++
	r.Touched = now
	o.dirty[r.key] = r
}

// load reads what the outbox of an earlier run left, as if no receiver were
// configured yet. What waits there may have been delivered just before that run
// ended, and of what was delivered last the disk may know nothing.
func (o *Outbox) load(now time.Time) error {
	return o.store.View(func(tx *store.Tx) error {
		tx.Range(store.Outbox, "", func(k string, v []byte) bool {
			r := &record{key: k}
			name, id, _ := strings.Cut(k, keySep)
			if err := json.Unmarshal(v, r); err != nil {
				o.log.Error("a message in the state file cannot be read; it stays there and is not sent", "receiver", name, "incident", id, "err", err)
				return true
			}
			if o.parked[name] == nil {
				o.parked[name] = map[string]*record{}
			}
			o.parked[name][id] = r
			o.seq = max(o.seq, r.Seq)
			r.doubt = true
			if r.Rang.IsZero() {
				r.Rang = r.Said // an older release did not note it
			}
			return true
		})
		return nil
	})
}

// adopt takes up a record for a queue that was made anew. What was refused is
// tried once more: a start and a new configuration are a person's doing, who may
// have mended the cause.
func (o *Outbox) adopt(q *queue, id string, r *record, now time.Time) {
	q.records[id] = r
	r.again = 0
	o.forgive(r, now)
	if r.expired(now) {
		o.drop(q.records, id, now)
	} else if r.waits() {
		q.put(r)
	}
}

// forgive lets a refused message be tried again, unless it was for its content.
// A message that was refused again and again while others passed stays refused
// until the agent is restarted or configured anew.
func (o *Outbox) forgive(r *record, now time.Time) {
	if r.Refused != nil && !r.Refused.Content && r.again < maxAgain {
		r.Refused = nil
		r.again++
		o.change(r, now)
	}
}

// drop forgets a record.
func (o *Outbox) drop(records map[string]*record, id string, now time.Time) {
	r := records[id]
	delete(records, id)
	r.gone = true
	o.change(r, now)
}

// sweep forgets what nobody needs any more.
func (o *Outbox) sweep(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gate.sweep(now) {
		o.extras[marksKey].gen++
	}
	if o.gate.sweepWindows(now) {
		o.extras[windowsKey].gen++
	}
	for _, q := range o.queues {
		for id, r := range q.records {
			if r.expired(now) {
				o.drop(q.records, id, now)
			}
		}
	}
	for _, records := range o.parked {
		for id, r := range records {
			if now.Sub(r.Touched) > keepRef {
				o.drop(records, id, now)
			}
		}
	}
}
