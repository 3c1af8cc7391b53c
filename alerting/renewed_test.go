package alerting_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/detect"
)

// renewable is a receiver with a secret.
type renewable struct {
	*receiver
	mu     sync.Mutex
	secret string
	err    error
}

func (r *renewable) Fingerprint() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return alerting.Fingerprint(r.secret, r.err)
}

func (r *renewable) set(secret string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret, r.err = secret, err
}

func TestAReplacedSecretIsUsedWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &renewable{receiver: b.said, secret: "xoxb-old"}
		b.to.Notifier = to
		b.start()
		revoked := &alerting.Refusal{Reason: "token_revoked"}
		b.said.answers(revoked, revoked)
		b.enqueue(incident("ticket", detect.Firing), page("page", detect.Firing))
		time.Sleep(5 * time.Minute)
		b.expect("both are tried once while the token is revoked", "ticket:firing", "page:firing")
		if s := b.status(); s.Waiting != 2 || s.OldestAge < 5*time.Minute {
			t.Errorf("two messages wait for a receiver that refuses us for five minutes, the metrics say %d for %s", s.Waiting, s.OldestAge)
		}
		to.set("", errors.New("the file is being written"))
		time.Sleep(time.Minute)
		b.expect("a token that cannot be read is no new one")
		to.set("xoxb-new", nil)
		time.Sleep(5 * time.Second)
		b.expect("five seconds after the token was replaced", "ticket:firing", "page:firing")
		if s := b.status(); s.Waiting != 0 || s.OldestAge != 0 {
			t.Errorf("all is sent, the metrics say that %d wait for %s", s.Waiting, s.OldestAge)
		}
		if strings.Contains(b.log.String(), "xoxb") {
			t.Errorf("the log holds the secret: %s", b.log)
		}
		b.end()
	})
}

func TestANewSecretThatIsRefusedTooIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &renewable{receiver: b.said, secret: "old"}
		b.to.Notifier = to
		b.start()
		b.said.answers(times(9, error(&alerting.Refusal{Reason: "invalid_auth"}))...)
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("with the old one", "a:firing")
		to.set("mistyped", nil)
		time.Sleep(time.Hour)
		b.expect("with one that is refused too", "a:firing")
		b.end()
	})
}

func TestAPauseAfterAFailureEndsWhenTheSecretIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &renewable{receiver: b.said, secret: "", err: errors.New("no such file")}
		b.to.Notifier = to
		b.start()
		b.said.answers(times(8, errDown)...)
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(2 * time.Minute)
		b.said.calls()
		b.said.answers()
		to.set("xoxb-new", nil)
		time.Sleep(3 * time.Second)
		b.expect("the file is there at last", "a:firing")
		b.end()
	})
}

func TestWhatIsRefusedForItsContentDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.said.answers(&alerting.Refusal{Reason: "invalid_blocks", Content: true})
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		if s := b.status(); s.Waiting != 0 || len(s.Refused) != 1 {
			t.Errorf("a message that no mending of the receiver delivers counts as %d that wait, refused are %+v", s.Waiting, s.Refused)
		}
		b.end()
	})
}

func TestMessagesOfARestartAreNotCalledNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.open()
		b.enqueue(incident("a", detect.Firing))
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		b.open()
		b.outbox, _ = alerting.NewOutbox(b.store, b.cfg) // as an agent begins: receivers follow
		if log := b.log.String(); strings.Contains(log, "not configured") {
			t.Errorf("before receivers are configured it is said that they are not: %s", log)
		}
		if err := b.outbox.Configure(b.cfg, b.to); err != nil {
			t.Fatal(err)
		}
		if log := b.log.String(); strings.Contains(log, "not configured") {
			t.Errorf("a receiver that is configured is called one that is not: %s", log)
		}
		if err := b.outbox.Configure(b.cfg); err != nil {
			t.Fatal(err)
		}
		if log := b.log.String(); !strings.Contains(log, "not configured") {
			t.Errorf("that messages wait for a receiver that is gone is not said: %s", log)
		}
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// slow is a receiver that is marked while it is told.
type slow struct {
	*receiver
	meanwhile func()
	marks     []bool
}

func (s *slow) Notify(ctx context.Context, m alerting.Message, ref string) (string, error) {
	s.marks = append(s.marks, m.Mark != nil)
	if s.meanwhile != nil {
		do := s.meanwhile
		s.meanwhile = nil
		do()
	}
	return s.receiver.Notify(ctx, m, ref)
}

func TestAMarkMadeWhileTheMessageIsOnItsWayIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		to := &slow{receiver: b.said}
		b.to.Notifier = to
		b.start()
		i := page("a", detect.Firing)
		to.meanwhile = func() {
			if err := b.outbox.Mark(i, &alerting.Mark{By: "ana", At: time.Now(), Severity: i.Severity}); err != nil {
				t.Error(err)
			}
		}
		b.enqueue(i)
		time.Sleep(time.Minute)
		b.end()
		if len(to.marks) != 2 || to.marks[0] || !to.marks[1] {
			t.Errorf("an incident that was acknowledged while its message was on its way was told %d times, with the mark: %v", len(to.marks), to.marks)
		}
	})
}
