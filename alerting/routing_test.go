package alerting_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/alertmanager/matcher/parse"
	"github.com/prometheus/alertmanager/timeinterval"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// routingRoute is a route in Alertmanager's words.
func routingRoute(t *testing.T, receiver, matchers string, below ...*alerting.Route) *alerting.Route {
	t.Helper()
	ms, err := parse.Matchers(matchers)
	if err != nil {
		t.Fatal(err)
	}
	return &alerting.Route{Receiver: receiver, Matchers: ms, Routes: below}
}

// routingBench is a bench whose receiver notes whole messages, and whose engine is a map.
type routingBench struct {
	*bench
	mu   sync.Mutex
	now  map[string]detect.Incident
	seen []alerting.Message
}

func (b *routingBench) Notify(ctx context.Context, m alerting.Message, ref string) (string, error) {
	b.mu.Lock()
	b.seen = append(b.seen, m)
	b.mu.Unlock()
	return b.said.Notify(ctx, m, ref)
}

func newRoutingBench(t *testing.T) *routingBench {
	b := &routingBench{bench: newBench(t), now: map[string]detect.Incident{}}
	b.to.Notifier = b
	b.cfg.Current = func(id string) *detect.Incident {
		b.mu.Lock()
		defer b.mu.Unlock()
		if i, ok := b.now[id]; ok {
			return &i
		}
		return nil
	}
	return b
}

// tell lets the engine say incidents, and waits until they have been dealt with.
func (b *routingBench) tell(is ...detect.Incident) {
	b.t.Helper()
	b.mu.Lock()
	for _, i := range is {
		b.now[i.ID] = i
	}
	b.mu.Unlock()
	b.enqueue(is...)
	time.Sleep(30 * time.Second)
}

// messages returns what was sent since it was last called.
func (b *routingBench) messages() []alerting.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.seen
	b.seen = nil
	b.said.calls()
	return m
}

func (b *routingBench) only(what string) alerting.Message {
	b.t.Helper()
	m := b.messages()
	if len(m) != 1 {
		b.t.Fatalf("%s: %d messages, want one", what, len(m))
	}
	return m[0]
}

func (b *routingBench) nothing(what string) {
	b.t.Helper()
	for _, m := range b.messages() {
		b.t.Errorf("%s: %s was sent", what, alerting.Render(m).Headline)
	}
}

// routingOf gives an incident's findings an owner and a node.
func routingOf(i detect.Incident, node, team string) detect.Incident {
	f := i.Members[0]
	f.Node, f.Owner = node, collector.Owner{Kind: "job", ID: "slurm/1", Team: team}
	i.Members = append(i.Members[:len(i.Members):len(i.Members)], f)
	return i
}

func TestRoutesLeadWhereAlertmanagersDo(t *testing.T) {
	nlp, both := routingRoute(t, "nlp", `team="nlp"`), routingRoute(t, "both", `severity="page"`)
	both.Continue = true
	root := routingRoute(t, "all", "", both, nlp, routingRoute(t, "", `rule="idle_gpu",node=~"lab-.*"`))
	f := func(i detect.Incident, want ...string) {
		t.Helper()
		var got []string
		for k := range i.Members {
			for _, r := range root.Match(alerting.Labels(&i, &i.Members[k], "c1", "n")) {
				got = append(got, r.Receiver)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("receivers (-want +got):\n%s", diff)
		}
	}
	f(incident("a", detect.Firing), "all")
	f(page("a", detect.Firing), "both")
	f(routingOf(page("a", detect.Firing), "n", "nlp"), "both", "both", "nlp")
	lab := incident("a", detect.Firing)
	lab.Members[0].Node = "lab-7"
	f(lab, "")
}

func TestAnIncidentGoesWhereOneOfItsFindingsWould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.cfg.Route = routingRoute(t, "somebody", "", routingRoute(t, b.to.Name, `team="nlp"`))
		b.start()
		b.tell(incident("a", detect.Firing))
		b.nothing("no route leads to the receiver")
		grown := routingOf(incident("a", detect.Firing), "gpu-9", "nlp")
		b.tell(grown)
		b.only("a finding of the team joins the incident")
		over := incident("a", detect.Resolved)
		b.tell(over)
		if m := b.only("who heard that it began hears that it ended"); m.Incident.State != detect.Resolved {
			t.Errorf("the end of the incident is told as %s", m.Incident.State)
		}
		b.end()
	})
}

func TestMaintenanceDelaysAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		on117, err := parse.Matchers(`node="gpu-117"`)
		if err != nil {
			t.Fatal(err)
		}
		b.cfg.Maintenance = []alerting.Window{{Name: "roll-out", Matchers: on117, From: time.Now(), To: time.Now().Add(2 * time.Hour)}}
		b.start()
		b.tell(page("long", detect.Firing), page("short", detect.Firing))
		b.nothing("the node is maintained")
		if s := b.status(); s.Held != 2 || s.Waiting != 0 {
			t.Errorf("two incidents are kept back, the status says %d kept back and %d waiting", s.Held, s.Waiting)
		}
		b.tell(page("short", detect.Resolved))
		other := page("other", detect.Firing)
		other.Members[0].Node = "gpu-118"
		b.tell(other)
		if m := b.only("another node"); m.Incident.ID != "other" {
			t.Errorf("%s was sent", m.Incident.ID)
		}
		b.end()
		b.start() // what is kept back survives a restart
		time.Sleep(time.Hour)
		b.nothing("the maintenance goes on")
		time.Sleep(time.Hour)
		if m := b.only("the maintenance is over"); m.Incident.ID != "long" || m.Ring != "" {
			t.Errorf("%s (ring %q) was sent, want the incident that still fires, as a first message", m.Incident.ID, m.Ring)
		}
		if !strings.Contains(b.log.String(), "it was over before it was to be") {
			t.Error("nobody is told of what was never sent")
		}
		b.end()
	})
}

func TestAMutedRouteIsToldWhenItsTimeComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at midnight UTC, 1 January 2000
		b := newRoutingBench(t)
		day := routingRoute(t, b.to.Name, `severity!="page"`)
		day.Active = []string{"day"}
		b.cfg.Route = routingRoute(t, b.to.Name, "", day)
		b.cfg.Intervals = map[string][]timeinterval.TimeInterval{"day": {{Times: []timeinterval.TimeRange{{StartMinute: 8 * 60, EndMinute: 18 * 60}}}}}
		b.start()
		b.tell(incident("ticket", detect.Firing), page("page", detect.Firing))
		if m := b.only("at night"); m.Incident.ID != "page" {
			t.Errorf("at night %s was sent", m.Incident.ID)
		}
		time.Sleep(7 * time.Hour)
		b.nothing("before eight")
		time.Sleep(time.Hour)
		if m := b.only("after eight"); m.Incident.ID != "ticket" {
			t.Errorf("%s was sent", m.Incident.ID)
		}
		time.Sleep(12 * time.Hour)
		b.tell(incident("ticket", detect.Resolved))
		b.only("an edit of a message that is known rings nobody, also at night")
		b.end()
	})
}

func TestWhatGetsWorseCallsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.to.Mentions = []string{"S0123456789"}
		b.start()
		b.tell(incident("a", detect.Firing))
		if m := b.only("a ticket"); m.Mentions != nil || m.Ring != "" {
			t.Errorf("a ticket calls %v", m.Mentions)
		}
		b.tell(incident("a", detect.Firing))
		if m := b.only("a newer state"); m.Ring != "" {
			t.Errorf("an incident that is no worse rings: %s", m.Ring)
		}
		worse := incident("a", detect.Firing)
		worse.Severity = rules.Page
		b.tell(worse)
		if m := b.only("a rise to page"); m.Ring != "it got worse: page, was ticket" || len(m.Mentions) != 1 {
			t.Errorf("a rise to page rings %q and calls %v", m.Ring, m.Mentions)
		}
		worse = incident("a", detect.Firing)
		worse.Severity = rules.Page
		b.tell(worse)
		if m := b.only("the page goes on"); m.Ring != "" || m.Mentions != nil {
			t.Errorf("a page that is known rings %q and calls %v", m.Ring, m.Mentions)
		}
		b.end()
	})
}

func TestWhatNobodyAcknowledgesCallsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.cfg.Route = routingRoute(t, b.to.Name, "")
		b.cfg.Route.Repeat = 4 * time.Hour
		b.start()
		p := page("p", detect.Firing)
		b.tell(p)
		b.only("the page")
		time.Sleep(3 * time.Hour)
		b.nothing("before four hours")
		time.Sleep(time.Hour + time.Minute)
		if m := b.only("after four hours"); !strings.Contains(m.Ring, "nobody has acknowledged") {
			t.Errorf("it rings %q", m.Ring)
		}
		b.mark(p, &alerting.Mark{By: "ana <!channel>", At: time.Now(), Severity: rules.Page})
		m := b.only("the acknowledgement edits the message")
		if text := alerting.Render(m).String(); m.Ring != "" || !strings.Contains(text, "Marked: acknowledged by ana <!channel> ") {
			t.Errorf("it rings %q and says:\n%s", m.Ring, text)
		}
		b.end()
		b.start()
		time.Sleep(24 * time.Hour)
		b.nothing("it is acknowledged, also after a restart")
		if n := len(b.outbox.Marks()); n != 1 {
			t.Errorf("%d incidents are marked after a restart, 1 was", n)
		}
		b.mark(p, nil)
		if m := b.only("the acknowledgement is taken back"); !strings.Contains(m.Ring, "nobody has acknowledged") || m.Mark != nil {
			t.Errorf("it rings %q and shows %v", m.Ring, m.Mark)
		}
		b.tell(page("p", detect.Resolved))
		b.only("the end")
		time.Sleep(24 * time.Hour)
		b.nothing("it is over")
		b.end()
	})
}

func (b *routingBench) mark(i detect.Incident, m *alerting.Mark) {
	b.t.Helper()
	if err := b.outbox.Mark(i, m); err != nil {
		b.t.Error(err)
	}
	time.Sleep(30 * time.Second)
}

func TestASnoozeEndsOrBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.start()
		i := incident("a", detect.Firing)
		b.tell(i)
		b.only("the ticket")
		b.mark(i, &alerting.Mark{By: "ana", At: time.Now(), Until: time.Now().Add(2 * time.Hour), Severity: rules.Ticket})
		b.only("the snooze edits the message")
		if b.outbox.Allow(b.to.Name, rules.Ticket, &i) {
			t.Error("a sender without an outbox may send what is snoozed")
		}
		time.Sleep(3 * time.Hour)
		if m := b.only("the snooze is over"); m.Ring != "the snooze is over and it still fires" || m.Mark != nil {
			t.Errorf("it rings %q and shows %v", m.Ring, m.Mark)
		}
		b.mark(i, &alerting.Mark{By: "ana", At: time.Now(), Until: time.Now().Add(2 * time.Hour), Severity: rules.Ticket})
		b.only("snoozed once more")
		worse := incident("a", detect.Firing)
		worse.Severity = rules.Page
		b.tell(worse)
		if m := b.only("it got worse"); !strings.HasPrefix(m.Ring, "it got worse") {
			t.Errorf("a page does not break the snooze of a ticket: it rings %q", m.Ring)
		}
		if err := b.outbox.Mark(worse, &alerting.Mark{By: "ana", Until: time.Now().AddDate(1, 0, 0)}); err == nil {
			t.Error("an incident can be snoozed for a year")
		}
		if err := b.outbox.Mark(incident("a", detect.Resolved), &alerting.Mark{By: "ana"}); err == nil {
			t.Error("what has ended can be acknowledged")
		}
		b.end()
	})
}

// routingHalf is a receiver whose first delivery succeeds in part.
type routingHalf struct {
	*routingBench
	failed bool
}

func (h *routingHalf) Notify(ctx context.Context, m alerting.Message, ref string) (string, error) {
	got, err := h.routingBench.Notify(ctx, m, ref)
	if !h.failed {
		h.failed, err = true, errDown
	}
	return got, err
}

func TestWhatWasDeliveredInPartStillCallsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.to.Notifier = &routingHalf{routingBench: b}
		b.start()
		b.tell(incident("a", detect.Firing))
		if m := b.messages(); len(m) != 2 {
			t.Fatalf("a message that failed in part was tried %d times, want 2", len(m))
		}
		worse := incident("a", detect.Firing)
		worse.Severity = rules.Page
		b.tell(worse)
		if m := b.only("a rise to page"); m.Ring == "" || m.Rung != 1 {
			t.Errorf("it rings %q as the %d. time", m.Ring, m.Rung)
		}
		b.end()
	})
}

func TestNobodysNameMentionsAnybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.start()
		p := routingOf(page("p", detect.Firing), "<!channel>", "<@U0123456789>")
		p.Members[0] = p.Members[1]
		b.tell(p)
		if m := b.only("a page"); len(m.Mentions) != 0 {
			t.Errorf("names of others call %v", m.Mentions)
		}
		b.end()
	})
}
