package alerting_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

var errDown = errors.New("the server has an internal error")

func page(id string, state detect.State) detect.Incident {
	i := incident(id, state)
	i.Rule, i.Severity = rules.IDXid, rules.Page
	return i
}

// soon waits, in real time, for what is sure to come.
func (b *bench) soon(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("after half a minute it is not so that %s\n%s", what, b.log)
		}
	}
}

// hang holds the state file's one writer back, as an fsync that does not return
// does, until the function that it returns is called.
func (b *bench) hang() (release func()) {
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- b.store.Update(func(*store.Tx) error {
			close(began)
			<-end
			return nil
		})
	}()
	<-began
	return func() {
		close(end)
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
}

func TestADiskThatDoesNotAnswerDelaysMessagesByTwoSeconds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cfg.Pause = time.Millisecond
	b.start()
	b.enqueue(incident("before", detect.Firing))
	b.soon("the first message is stored", func() bool { return b.status().Unsaved == 0 && b.status().Waiting == 0 })
	b.said.calls()
	release := b.hang()
	start := time.Now()
	b.outbox.Take([]detect.Incident{incident("a", detect.Firing), incident("b", detect.Firing)})
	var told []call
	b.soon("both are delivered, though a changes all the time", func() bool {
		b.outbox.Take([]detect.Incident{incident("a", detect.Firing)})
		told = append(told, b.said.calls()...)
		return len(told) > 0 && told[len(told)-1].What == "b:firing"
	})
	if first := told[0].At - start.Sub(b.said.start); first < 1900*time.Millisecond {
		t.Errorf("the disk had only %v to take the message", first)
	}
	b.stop() // with the disk still hung: Run must end, and without an error
	if n := strings.Count(b.log.String(), "is not stored"); n != 1 {
		t.Errorf("what could not be stored was said %d times:\n%s", n, b.log)
	}
	b.run()
	b.outbox.Take([]detect.Incident{incident("c", detect.Firing)})
	b.soon("the next Run delivers too", func() bool {
		c := b.said.calls()
		return len(c) > 0 && c[len(c)-1].What == "c:firing"
	})
	release()
	b.soon("all is stored once the disk answers", func() bool { return b.status().Unsaved == 0 })
	b.end()
}

// TestAReloadWithAFullDiskLosesNothing closes the state file, so that each write
// fails as on a full disk.
func TestAReloadWithAFullDiskLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.said.answers(times(3, errDown)...)
		b.start()
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		b.outbox.Take([]detect.Incident{incident("a", detect.Firing)})
		time.Sleep(5 * time.Second)
		errorsBefore := vm.GetOrCreateCounter(metric.StateWriteErrors.Series()).Get()
		b.stop()
		if n := vm.GetOrCreateCounter(metric.StateWriteErrors.Series()).Get() - errorsBefore; n != 1 {
			t.Errorf("the write at the end, which failed, is counted %d times", n)
		}
		if n := strings.Count(b.log.String(), "is not stored"); n != 1 {
			t.Errorf("a full disk is told %d times:\n%s", n, b.log)
		}
		b.said.calls()
		b.said.answers()
		if err := b.outbox.Configure(b.cfg, b.to); err != nil {
			t.Fatal(err)
		}
		b.run()
		time.Sleep(time.Minute)
		b.expect("what only memory knew, after the reload", "a:firing")
		b.outbox.Take([]detect.Incident{incident("a", detect.Resolved)})
		time.Sleep(time.Minute)
		if c := b.said.calls(); len(c) != 1 || c[0].Ref != "ref-a" {
			t.Errorf("the end of a does not edit its message: %+v", c)
		}
		b.stop()
	})
}

func TestAReceiverThatComesBackHearsWhatIsTrueThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		other := &receiver{start: time.Now()}
		to := alerting.Receiver{Name: t.Name() + "-other", Notifier: other, MinSeverity: rules.Ticket}
		b.start()
		b.enqueue(incident("said", detect.Firing))
		time.Sleep(time.Minute)
		b.said.answers(times(100, errDown)...)
		b.enqueue(incident("waits", detect.Firing), incident("over", detect.Firing))
		time.Sleep(time.Minute)
		b.said.calls()
		b.said.answers()
		b.stop()
		if err := b.outbox.Configure(b.cfg, to); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.log.String(), "messages=2") {
			t.Errorf("nobody is told that two messages wait for a receiver that is gone:\n%s", b.log)
		}
		b.run()
		b.enqueue(incident("over", detect.Resolved), incident("said", detect.Resolved), incident("new", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("nobody is told what it was told when it is not configured")
		b.end() // the state file has to remember all of it
		mine := b.to
		b.to = to
		b.start()
		time.Sleep(time.Minute)
		b.end()
		b.to = mine
		b.start()
		time.Sleep(time.Minute)
		b.expect("back again", "waits:firing", "over:resolved", "said:resolved")
		b.end()
	})
}

func TestWhatDoesNotFitIsRefusedAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		time.Sleep(time.Second)
		if err := b.outbox.Configure(b.cfg, b.to); err == nil {
			t.Error("the outbox is configured while it runs")
		}
		if err := b.outbox.Run(t.Context()); err == nil {
			t.Error("the outbox runs twice")
		}
		b.stop()
		if err := b.outbox.Configure(b.cfg, b.to, b.to); err == nil {
			t.Error("two receivers have one name")
		}
		b.run()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("after a configuration that was refused", "a:firing")
		b.end()
	})
}

func TestAShadowThatIsConfiguredAwayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Shadow = 7 * 24 * time.Hour
		b.start()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		b.stop()
		b.cfg.Shadow = 0
		if err := b.outbox.Configure(b.cfg, b.to); err != nil {
			t.Fatal(err)
		}
		b.run()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("without a shadow", "a:firing")
		b.end()
	})
}

func TestAPageThatIsRefusedIsTriedAgainSlowlyWhileItFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.said.answers(times(5, &alerting.Refusal{Reason: "invalid_auth", Hint: "replace the token"})...)
		b.start()
		b.enqueue(page("p", detect.Firing), incident("t", detect.Firing))
		time.Sleep(9 * time.Minute)
		b.expect("a refusal is not retried at once", "p:firing", "t:firing")
		time.Sleep(22 * time.Minute)
		b.expect("the page alone is tried every ten minutes", "p:firing", "p:firing", "p:firing")
		if s := b.status(); len(s.Refused) != 2 || s.Waiting != 2 {
			t.Errorf("between two tries the refused messages are not shown, or not counted: %+v", s)
		}
		time.Sleep(10 * time.Minute) // by now the token is good
		b.expect("a good token delivers all without new traffic", "p:firing", "t:firing")

		b.said.answers(times(2, &alerting.Refusal{Reason: "invalid_auth", Hint: "replace the token"})...)
		b.enqueue(page("q", detect.Firing))
		time.Sleep(time.Minute)
		b.enqueue(page("q", detect.Resolved))
		time.Sleep(time.Hour)
		b.expect("what is over is not insisted on", "q:firing", "q:resolved")
		b.end()
	})
}

func TestAMessageThatIsNeverTakenDoesNotHoldUpThoseBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.said.setPoison("bad")
		b.start()
		b.enqueue(incident("bad", detect.Firing), incident("t1", detect.Firing), incident("t2", detect.Firing))
		b.enqueue(page("p1", detect.Firing), page("p2", detect.Firing))
		time.Sleep(5 * time.Minute)
		var taken []string
		for _, c := range b.said.calls() {
			if c.What != "bad:firing" {
				taken = append(taken, c.What)
			}
		}
		if got := strings.Join(taken, " "); got != "p1:firing p2:firing t1:firing t2:firing" {
			t.Errorf("behind a message that always fails, %q arrived; want the pages and then the rest", got)
		}
		b.enqueue(page("p3", detect.Firing))
		time.Sleep(2 * time.Minute)
		if s := b.status(); s.Waiting != 1 {
			t.Errorf("%d messages wait, want the one that fails: it must neither be lost nor hold up a new page", s.Waiting)
		}
		b.said.setPoison("")
		time.Sleep(2 * time.Minute)
		if s := b.status(); s.Waiting != 0 || b.counted("sent") != 6 {
			t.Errorf("once it is taken, %d wait and %d of 6 were sent", s.Waiting, b.counted("sent"))
		}
		b.end()
	})
}
