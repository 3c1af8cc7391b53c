package alerting

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// lookForSecret is how often it is looked whether a secret was replaced that a receiver
// does not take: who replaces it watches whether that helped.
const lookForSecret = 2 * time.Second

// Renewable is a Notifier whose secret can be replaced while it is used.
type Renewable interface {
	// Fingerprint returns what is another once the secret is, and tells nothing of the
	// secret; empty if that cannot be read.
	Fingerprint() string
}

// Fingerprint is that of a secret as it was read.
func Fingerprint(secret string, err error) string {
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// fingerprint is that of the queue's secret, empty if it has none.
func (q *queue) fingerprint() string {
	if r, ok := q.Notifier.(Renewable); ok {
		return r.Fingerprint()
	}
	return ""
}

// renewed reports whether the queue's secret was replaced since the last attempt.
func (q *queue) renewed() bool {
	now := q.fingerprint()
	return now != "" && now != q.secret
}

// forgiveRenewed tries anew what a receiver refused under a secret that was replaced. It
// is called by the queue's own goroutine.
func (o *Outbox) forgiveRenewed(q *queue, now time.Time) {
	o.mu.Lock()
	refusing := q.refusing
	o.mu.Unlock()
	if !refusing || !q.renewed() {
		return
	}
	q.secret = q.fingerprint()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log.Info("the secret of a receiver was replaced: what it refused is tried again", "receiver", q.Name)
	q.refusing = false
	for _, r := range q.records {
		r.again = 0
	}
	o.retryRefused(q, now)
}

// rest leaves the receiver alone for a while, after an attempt that ended so. A pause that
// it did not ask for ends when its secret is replaced.
func (o *Outbox) rest(ctx context.Context, q *queue, pause time.Duration, err error) {
	var wait *Wait
	if _, ok := q.Notifier.(Renewable); !ok || err == nil || errors.As(err, &wait) {
		sleep(ctx, pause)
		return
	}
	for ; pause > 0 && ctx.Err() == nil && !q.renewed(); pause -= lookForSecret {
		sleep(ctx, min(pause, lookForSecret))
	}
}
