package alerting_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// receiver is a Notifier that notes what it is told and answers as scripted.
type receiver struct {
	mu     sync.Mutex
	noted  []call
	next   []error // answers to the next calls; nil and none left: delivered
	poison string  // the incident that always fails
	start  time.Time
}

type call struct {
	At    time.Duration // since the receiver was made
	What  string        // incident:state
	Ref   string
	Doubt bool
}

func (r *receiver) Notify(_ context.Context, m alerting.Message, ref string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted = append(r.noted, call{time.Since(r.start).Round(time.Millisecond), m.Incident.ID + ":" + string(m.Incident.State), ref, m.Doubt})
	if m.Incident.ID == r.poison {
		return "", errDown
	}
	if len(r.next) == 0 {
		return "ref-" + m.Incident.ID, nil
	}
	err := r.next[0]
	r.next = r.next[1:]
	if err != nil {
		return "", err
	}
	return "ref-" + m.Incident.ID, nil
}

// calls returns what the receiver was told, and forgets it.
func (r *receiver) calls() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.noted
	r.noted = nil
	return c
}

// answers sets the answers to the next calls.
func (r *receiver) answers(errs ...error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = errs
}

// setPoison makes each message of one incident fail.
func (r *receiver) setPoison(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.poison = id
}

func times(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// journal is a log that may be read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// bench is an outbox with one receiver over a state file.
type bench struct {
	t    *testing.T
	path string
	log  *journal
	cfg  alerting.OutboxConfig
	to   alerting.Receiver
	said *receiver

	store  *store.Store
	outbox *alerting.Outbox
	stop   func()
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "state.db"), log: &journal{}, said: &receiver{start: time.Now()}}
	b.cfg = alerting.OutboxConfig{GateConfig: alerting.GateConfig{Node: "gpu-117"}, Log: slog.New(slog.NewTextHandler(b.log, nil))}
	b.to = alerting.Receiver{Name: t.Name(), Notifier: b.said, MinSeverity: rules.Ticket}
	return b
}

// open opens the state file and makes the outbox; run starts it.
func (b *bench) open() {
	b.t.Helper()
	var err error
	if b.store, err = store.Open(b.path, time.Second, b.cfg.Log); err != nil {
		b.t.Fatal(err)
	}
	if b.outbox, err = alerting.NewOutbox(b.store, b.cfg, b.to); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.outbox.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the outbox ended with: %v", err)
		}
	}
}

func (b *bench) start() { b.t.Helper(); b.open(); b.run() }

func (b *bench) end() {
	b.t.Helper()
	b.stop()
	if err := b.store.Close(); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) enqueue(is ...detect.Incident) {
	b.t.Helper()
	b.outbox.Take(is)
	if err := b.store.Update(b.outbox.WriteTx); err != nil {
		b.t.Errorf("enqueue: %v", err)
	}
}

func (b *bench) status() alerting.Status { return b.outbox.Status()[0] }

func (b *bench) counted(result string) uint64 {
	return vm.GetOrCreateCounter(metric.NotificationsSent.Series(b.to.Name, result)).Get()
}

func (b *bench) expect(what string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, whats(b.said.calls())); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func whats(calls []call) (what []string) {
	for _, c := range calls {
		what = append(what, c.What)
	}
	return what
}

var tick int

// incident returns an incident; each call is a newer state.
func incident(id string, state detect.State) detect.Incident {
	tick++
	at := time.Date(2026, 3, 14, 3, 0, tick, 0, time.UTC)
	i := detect.Incident{ID: id, Rule: rules.IDIdleGPU, Severity: rules.Ticket, State: state, Opened: at, Updated: at}
	if state == detect.Resolved {
		i.Resolved = at
	}
	i.Members = []detect.Finding{{Rule: i.Rule, Node: "gpu-117", GPUIndex: -1, State: state, Since: at}}
	return i
}

func TestMessagesGoOutInOrderAndTheNewestStateTakesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.open()
		b.enqueue(incident("a", detect.Firing), incident("b", detect.Firing))
		b.enqueue(incident("c", detect.Firing), incident("a", detect.Firing))
		b.enqueue(incident("a", detect.Resolved))
		if n := b.status().Waiting; n != 3 {
			t.Errorf("%d messages wait for 3 incidents", n)
		}
		b.run()
		time.Sleep(time.Minute)
		b.expect("one message for each incident, in the order in which they came", "a:resolved", "b:firing", "c:firing")
		b.enqueue(incident("b", detect.Resolved))
		time.Sleep(time.Minute)
		if c := b.said.calls(); len(c) != 1 || c[0].Ref != "ref-b" {
			t.Errorf("the end of b does not edit its message: %+v", c)
		}
		if got := b.counted("sent"); got != 4 {
			t.Errorf("%d messages are counted as sent, 4 were", got)
		}
		b.end()
	})
}

func TestTheSameStateIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		i := incident("a", detect.Firing)
		b.enqueue(i)
		time.Sleep(time.Minute)
		b.enqueue(i)
		b.end()
		b.start()
		b.enqueue(i)
		time.Sleep(time.Minute)
		b.expect("the engine says a again after a restart", "a:firing")
		b.end()
	})
}

func TestMessagesToOneReceiverAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.enqueue(incident("a", detect.Firing), incident("b", detect.Firing), incident("c", detect.Firing))
		time.Sleep(time.Minute)
		calls := b.said.calls()
		for k, c := range calls[1:] {
			if gap := c.At - calls[k].At; gap < time.Second {
				t.Errorf("two messages within %v: Slack takes one a second", gap)
			}
		}
		b.end()
	})
}

func TestAWishToWaitIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.said.answers(fmt.Errorf("post: %w", &alerting.Wait{For: 37 * time.Second}))
		b.start()
		b.enqueue(incident("a", detect.Firing), incident("b", detect.Firing))
		time.Sleep(2 * time.Minute)
		calls := b.said.calls()
		var at []time.Duration
		for _, c := range calls {
			at = append(at, c.At)
			if c.Doubt {
				t.Error("a message that was rate limited cannot have arrived")
			}
		}
		if len(at) != 3 || at[1]-at[0] < 37*time.Second || at[1]-at[0] > 40*time.Second {
			t.Errorf("asked to wait 37 s, it tried at %v", at)
		}
		if diff := cmp.Diff([]string{"a:firing", "a:firing", "b:firing"}, whats(calls)); diff != "" {
			t.Errorf("a is not tried again before b:\n%s", diff)
		}
		b.end()
	})
}

func TestFailuresAreRetriedWithGrowingPausesAndTheOrderIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.said.answers(times(12, errors.New("connection reset"))...)
		b.start()
		b.enqueue(incident("a", detect.Firing), incident("b", detect.Firing))
		time.Sleep(5 * time.Minute)
		if s := b.status(); s.Waiting != 2 || s.OldestAge < 4*time.Minute || s.LastError != "connection reset" || s.Failures == 0 {
			t.Errorf("after 5 minutes of failures the status is %+v", s)
		}
		b.enqueue(incident("a", detect.Resolved))
		time.Sleep(time.Hour)
		calls := b.said.calls()
		for k, c := range calls[:12] {
			gap := calls[k+1].At - c.At
			if gap > 72*time.Second || k > 0 && c.What == "a:firing" && !c.Doubt {
				t.Errorf("attempt %d: %+v, the next after %v", k, c, gap)
			}
		}
		if diff := cmp.Diff([]string{"a:resolved", "b:firing"}, whats(calls[12:])); diff != "" {
			t.Errorf("after the failures (-want +got):\n%s", diff)
		}
		if r, s := b.counted("retried"), b.counted("sent"); r != 12 || s != 2 {
			t.Errorf("counted %d retried and %d sent, want 12 and 2", r, s)
		}
		b.end()
	})
}

func TestARefusalIsNotRetriedButShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.said.answers(fmt.Errorf("post: %w", &alerting.Refusal{Reason: "too_odd", Hint: "be less odd", Content: true}))
		b.start()
		b.enqueue(incident("a", detect.Firing), incident("b", detect.Firing))
		time.Sleep(24 * time.Hour)
		b.expect("a was refused for what it says", "a:firing", "b:firing")
		s := b.status()
		if len(s.Refused) != 1 || s.Refused[0].Incident != "a" || s.Refused[0].Reason != "too_odd" || !strings.Contains(s.Refused[0].Headline, "TICKET gpu-117") {
			t.Errorf("the refused message is not shown: %+v", s.Refused)
		}
		if b.counted("refused") != 1 || !strings.Contains(b.log.String(), "level=ERROR") || !strings.Contains(b.log.String(), "be less odd") {
			t.Errorf("the refusal is not counted or not logged:\n%s", b.log)
		}
		b.enqueue(incident("a", detect.Resolved))
		time.Sleep(time.Minute)
		b.expect("a newer state is another message", "a:resolved")
		b.end()
	})
}

func TestWhatWasRefusedForTheTokenIsSentOnceTheTokenIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		bad := &alerting.Refusal{Reason: "invalid_auth", Hint: "replace the token"}
		b.said.answers(bad, bad)
		b.start()
		b.enqueue(incident("a", detect.Firing), incident("b", detect.Firing))
		time.Sleep(time.Hour)
		b.expect("refused", "a:firing", "b:firing")
		b.enqueue(incident("c", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("the first success shows that the token is good", "c:firing", "a:firing", "b:firing")

		b.said.answers(bad)
		b.enqueue(incident("a", detect.Resolved))
		time.Sleep(time.Minute)
		b.end()
		b.start()
		time.Sleep(time.Minute)
		b.expect("a restart tries again", "a:resolved", "a:resolved")
		b.end()
	})
}

func TestAKillLosesNothingAndLeavesDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.open()
		b.enqueue(incident("a", detect.Firing), incident("b", detect.Firing))
		if err := b.store.Close(); err != nil { // never ran: killed before the first delivery
			t.Fatal(err)
		}
		b.start()
		time.Sleep(time.Minute)
		if c := b.said.calls(); len(c) != 2 || c[0].What != "a:firing" || c[1].What != "b:firing" || !c[0].Doubt || c[0].Ref != "" {
			t.Errorf("after a kill: %+v, want both messages, in doubt", c)
		}
		b.said.calls()
		b.end()
		b.start()
		time.Sleep(time.Minute)
		b.expect("what was delivered is not delivered again")
		b.enqueue(incident("b", detect.Resolved))
		time.Sleep(time.Minute)
		if c := b.said.calls(); len(c) != 1 || c[0].Ref != "ref-b" || !c[0].Doubt {
			t.Errorf("the reference did not survive, or what was delivered last is not in doubt: %+v", c)
		}
		b.end()
	})
}

func TestADiskThatTakesNothingDelaysNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		full := errors.New("no space left on device")
		b.outbox.Take([]detect.Incident{incident("a", detect.Firing)})
		err := b.store.Update(func(tx *store.Tx) error { return errors.Join(b.outbox.WriteTx(tx), full) })
		if !errors.Is(err, full) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		b.expect("delivered from memory", "a:firing")
		b.end()
		b.start()
		b.enqueue(incident("a", detect.Resolved))
		time.Sleep(time.Minute)
		if c := b.said.calls(); len(c) != 1 || c[0].Ref != "ref-a" {
			t.Errorf("what was sent is not written once the disk takes it: %+v", c)
		}
		b.end()
	})
}

func TestInTheFirstWeekOnlyCertainFaultsAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Shadow = 7 * 24 * time.Hour
		b.start()
		page := incident("page", detect.Firing)
		page.Rule, page.Severity = rules.IDXid, rules.Page
		mild := incident("mild", detect.Firing)
		mild.Rule = rules.IDXid
		b.enqueue(page, mild, incident("idle", detect.Firing), incident("long", detect.Firing))
		time.Sleep(24 * time.Hour)
		b.enqueue(incident("idle", detect.Firing))
		b.enqueue(incident("idle", detect.Resolved))
		time.Sleep(time.Minute)
		b.expect("in the first week", "page:firing")
		if n := b.counted("shadowed"); n != 3 {
			t.Errorf("%d messages are counted as shadowed, 3 incidents were", n)
		}
		if !strings.Contains(b.log.String(), "would have been sent") || b.status().ShadowUntil.IsZero() {
			t.Errorf("nobody is told of the shadow week:\n%s", b.log)
		}
		b.end()
		time.Sleep(6 * 24 * time.Hour)
		b.start()
		synctest.Wait() // for the sum of the week, which is due
		b.enqueue(incident("long", detect.Firing), incident("new", detect.Firing), incident("mild", detect.Resolved))
		time.Sleep(time.Minute)
		b.expect("after the week, counted from the first start", "first_week:firing", "long:firing", "new:firing")
		b.end()
	})
}

func TestWhatIsNotSevereEnoughIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		at := func(s rules.Severity, state detect.State) detect.Incident {
			i := incident("a", state)
			i.Severity = s
			return i
		}
		b.enqueue(at(rules.Info, detect.Firing))
		time.Sleep(time.Minute)
		b.expect("an info finding")
		b.enqueue(at(rules.Ticket, detect.Firing))
		time.Sleep(time.Minute)
		b.enqueue(at(rules.Info, detect.Resolved))
		time.Sleep(time.Minute)
		b.expect("who heard that it got worse hears that it ended", "a:firing", "a:resolved")
		b.end()
	})
}

func TestClocksThatWereWrongDoNotStallAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Shadow = time.Hour
		b.open()
		future := time.Now().AddDate(60, 0, 0).Format(time.RFC3339)
		err := b.store.Update(func(tx *store.Tx) error {
			record := fmt.Sprintf(`{"incident":{"id":"x","rule":"xid","severity":"page","state":"firing","members":[]},"seq":5,"queued":%q,"touched":%q}`, future, future)
			return errors.Join(tx.Put(store.Meta, "first_start", []byte(`"`+future+`"`)), tx.Put(store.Outbox, b.to.Name+"\x00x", []byte(record)))
		})
		if err := errors.Join(err, b.store.Close()); err != nil {
			t.Fatal(err)
		}
		b.start()
		if age := b.status().OldestAge; age != 0 {
			t.Errorf("a message of the future is %v old", age)
		}
		time.Sleep(time.Minute)
		b.expect("a message from a clock that was sixty years ahead", "x:firing")
		time.Sleep(time.Hour)
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("the shadow time counts from when the clock was put right", "a:firing")
		b.end()
	})
}

func TestADamagedOutboxCostsTheRecordAndNoWeekOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Shadow = time.Hour
		b.open()
		err := b.store.Update(func(tx *store.Tx) error {
			whole := `{"incident":{"id":"x","rule":"xid","severity":"page","state":"firing","members":[]},"seq":5}`
			return errors.Join(tx.Put(store.Meta, "first_start", []byte(`"2026-`)),
				tx.Put(store.Outbox, b.to.Name+"\x00w", []byte(whole[:40])), tx.Put(store.Outbox, b.to.Name+"\x00x", []byte(whole)))
		})
		if err := errors.Join(err, b.store.Close()); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("the record that is intact, and what is found then", "x:firing", "a:firing")
		b.end()
	})
}

func TestTheReferenceIsForgottenThirtyDaysAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.enqueue(incident("ended", detect.Firing), incident("goes on", detect.Firing))
		time.Sleep(time.Minute)
		b.enqueue(incident("ended", detect.Resolved))
		time.Sleep(time.Minute)
		b.end()
		keys := func() (keys []string) {
			_ = b.store.View(func(tx *store.Tx) error {
				tx.Range(store.Outbox, "", func(k string, _ []byte) bool {
					keys = append(keys, strings.TrimPrefix(k, b.to.Name+"\x00"))
					return true
				})
				return nil
			})
			return keys
		}
		check := func(later time.Duration, want ...string) {
			time.Sleep(later)
			b.start()
			time.Sleep(time.Minute)
			if diff := cmp.Diff(want, keys()); diff != "" {
				t.Errorf("%v later (-want +got):\n%s", later, diff)
			}
			b.end()
		}
		const day = 24 * time.Hour
		check(29*day, "ended", "goes on")
		check(2*day, "goes on")
		check(60 * day)
	})
}

func TestTheOutboxShowsItselfInTheMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.said.answers(times(6, errors.New("down"))...)
		b.start()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(30 * time.Second)
		var page bytes.Buffer
		vm.WritePrometheus(&page, false)
		for _, want := range []string{
			metric.OutboxLength.Series(b.to.Name) + " 1\n",
			metric.OutboxAge.Series(b.to.Name) + " 30\n",
			metric.NotificationsSent.Series(b.to.Name, "sent") + " 0\n",
			metric.NotificationsSent.Series(b.to.Name, "refused") + " 0\n",
			metric.NotificationsSent.Series(b.to.Name, "shadowed") + " 0\n",
		} {
			if !strings.Contains(page.String(), want) {
				t.Errorf("no line %q", want)
			}
		}
		b.end()
		page.Reset()
		vm.WritePrometheus(&page, false)
		if strings.Contains(page.String(), metric.OutboxLength.Series(b.to.Name)) {
			t.Error("an outbox that does not run any more still shows its length")
		}
	})
}

func TestReceiversNeedNamesOfTheirOwn(t *testing.T) {
	b := newBench(t)
	b.open()
	defer b.store.Close()
	for name, rs := range map[string][]alerting.Receiver{
		"twice":       {b.to, b.to},
		"none":        {{Notifier: b.said}},
		"no notifier": {{Name: "x"}},
	} {
		if _, err := alerting.NewOutbox(b.store, b.cfg, rs...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
