package alerting

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/store"
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
	Seq      uint64           `json:"seq"`              // place in the queue
	Queued   time.Time        `json:"queued,omitzero"`  // since when something waits
	Touched  time.Time        `json:"touched,omitzero"` // when the record last changed

	Ref       string       `json:"ref,omitempty"`       // what the notifier returned
	Said      time.Time    `json:"said,omitzero"`       // Updated of the state that was said last
	SaidAs    detect.State `json:"said_as,omitempty"`   // and its State
	Ended     time.Time    `json:"ended,omitzero"`      // when the end of the incident was said
	Shadowed  bool         `json:"shadowed,omitempty"`  // kept back in the first week
	Refused   *Refusal     `json:"refused,omitempty"`   // the receiver does not take Incident
	RefusedAt time.Time    `json:"refused_at,omitzero"` // when it last did not

	key    string
	gen    uint64    // raised by each change
	stored uint64    // the gen that is on disk
	at     time.Time // of the last change, by the monotonic clock
	again  int       // how often it was tried again after a refusal
	doubt  bool      // an attempt has gone out whose outcome is not known
	gone   bool      // to be deleted
}

// waits reports whether something is to be said and may be.
func (r *record) waits() bool { return r.Incident != nil && r.Refused == nil }

// told reports whether the receiver knows of the incident or is about to.
func (r *record) told() bool { return r.Ref != "" || r.Incident != nil || !r.Said.IsZero() }

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
	case r.waits():
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
	r.at, r.Touched = now, now
	o.dirty[r] = true
}

// write puts what is not on disk into the transaction.
func (o *Outbox) write(tx *store.Tx) error {
	type change struct {
		r     *record
		gen   uint64
		gone  bool
		value []byte
	}
	var changes []change
	o.mu.Lock()
	for r := range o.dirty {
		value, err := json.Marshal(r)
		if err != nil {
			// Not even a full disk's worth of patience helps: it is said from memory.
			o.log.Error("an unsent message cannot be stored, a restart would lose it", "key", r.key, "err", err)
			delete(o.dirty, r)
			continue
		}
		changes = append(changes, change{r, r.gen, r.gone, value})
	}
	o.mu.Unlock()
	for _, c := range changes {
		var err error
		if c.gone {
			err = tx.Delete(store.Outbox, c.r.key)
		} else {
			err = tx.Put(store.Outbox, c.r.key, c.value)
		}
		if err != nil {
			return err
		}
	}
	tx.OnCommit(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, c := range changes {
			c.r.stored = max(c.r.stored, c.gen)
			if c.r.stored == c.r.gen {
				delete(o.dirty, c.r)
			}
		}
		o.wakeAll()
	})
	return nil
}

// flush writes what is not on disk.
func (o *Outbox) flush() error {
	o.mu.Lock()
	clean := len(o.dirty) == 0
	o.mu.Unlock()
	if clean {
		return nil
	}
	return o.store.Update(o.write)
}

// load reads what the outbox of an earlier run left. What waits there may have
// been delivered just before that run ended. What was refused is tried once more:
// a start is a person's doing, who may have mended the cause.
func (o *Outbox) load(now time.Time) error {
	byName := map[string]*queue{}
	for _, q := range o.queues {
		byName[q.Name] = q
	}
	foreign := 0
	err := o.store.View(func(tx *store.Tx) error {
		tx.Range(store.Outbox, "", func(k string, v []byte) bool {
			r := &record{key: k}
			name, id, _ := strings.Cut(k, keySep)
			if err := json.Unmarshal(v, r); err != nil {
				o.log.Error("a message in the state file cannot be read; it stays there and is not sent", "receiver", name, "incident", id, "err", err)
				return true
			}
			if q := byName[name]; q != nil {
				o.adopt(q, id, r, now)
				return true
			}
			foreign++
			if now.Sub(r.Touched) > keepRef {
				r.gone = true
				o.change(r, now)
			}
			return true
		})
		return nil
	})
	if foreign > 0 {
		o.log.Warn("the state file has messages for receivers that are not configured; they are kept for 30 days", "messages", foreign)
	}
	return err
}

// adopt takes up a record of an earlier run.
func (o *Outbox) adopt(q *queue, id string, r *record, now time.Time) {
	q.records[id] = r
	o.seq = max(o.seq, r.Seq)
	r.doubt = r.Incident != nil && r.Ref == ""
	o.forgive(r, now)
	if r.expired(now) {
		o.drop(q, r, now)
	} else if r.waits() {
		q.put(r)
	}
}

// forgive lets a refused message be tried again, unless it was for its content.
// A message that was refused again and again while others passed stays refused
// until the agent is restarted.
func (o *Outbox) forgive(r *record, now time.Time) {
	if r.Refused != nil && !r.Refused.Content && r.again < maxAgain {
		r.Refused = nil
		r.again++
		o.change(r, now)
	}
}

// drop forgets a record.
func (o *Outbox) drop(q *queue, r *record, now time.Time) {
	_, id, _ := strings.Cut(r.key, keySep)
	delete(q.records, id)
	r.gone = true
	o.change(r, now)
}

// sweep forgets what nobody needs any more.
func (o *Outbox) sweep(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.queues {
		for _, r := range q.records {
			if r.expired(now) {
				o.drop(q, r, now)
			}
		}
	}
}

// put adds r to the messages that wait, in the order of their places.
func (q *queue) put(r *record) {
	i, _ := slices.BinarySearchFunc(q.waiting, r.Seq, func(w *record, seq uint64) int {
		if w.Seq < seq {
			return -1
		}
		return 1
	})
	q.waiting = slices.Insert(q.waiting, i, r)
}

// remove takes r from the messages that wait.
func (q *queue) remove(r *record) {
	if i := slices.Index(q.waiting, r); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}
