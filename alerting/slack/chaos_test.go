package slack_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

var seeds = flag.Uint64("seeds", 4, "how many orders of failures TestChaos tries")

// TestChaos lets everything go wrong in an order that the seed decides and then
// compares what the channel shows with what the engine said: one message for each
// incident, in its last state.
func TestChaos(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			newChaos(t, seed).play()
		})
	}
}

type chaos struct {
	t      *testing.T
	rnd    *rand.Rand
	slack  *slacktest.Server
	log    *journal
	path   string
	store  *store.Store
	outbox *alerting.Outbox
	cancel context.CancelFunc
	done   chan error
	said   map[string]detect.Incident // by id, as the engine said it last
	clock  time.Time
}

func newChaos(t *testing.T, seed uint64) *chaos {
	return &chaos{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), slack: standIn(t), log: &journal{},
		path: filepath.Join(t.TempDir(), "state.db"), said: map[string]detect.Incident{}, clock: example.Start,
	}
}

func (c *chaos) play() {
	c.start()
	for step := range 150 {
		c.say(fmt.Sprint("i", c.rnd.IntN(12)))
		if c.rnd.IntN(3) == 0 {
			c.breakOne(step)
		}
		time.Sleep(time.Duration(c.rnd.IntN(8)) * time.Millisecond)
	}
	c.slack.Recover()
	// Something new must be delivered before what was refused is tried again.
	c.until("the last failures are over", func() bool {
		c.say("last")
		time.Sleep(20 * time.Millisecond)
		s := c.outbox.Status()[0]
		for _, r := range s.Refused {
			if r.Reason == "invalid_auth" {
				return false
			}
		}
		return s.Failures == 0
	})
	for id := range c.said {
		c.end(id)
	}
	c.until("the outbox is empty", func() bool {
		s := c.outbox.Status()[0]
		return s.Waiting == 0 && s.Unsaved == 0
	})
	c.cancel()
	if err := <-c.done; err != nil {
		c.t.Error(err)
	}
	c.check()
	noSecret(c.t, "the log", c.log.String())
	if err := c.store.Close(); err != nil {
		c.t.Error(err)
	}
}

func (c *chaos) start() {
	var err error
	if c.store, err = store.Open(c.path, 10*time.Second, c.log.logger()); err != nil {
		c.t.Fatal(err)
	}
	to := alerting.Receiver{Name: c.t.Name(), Notifier: bot(c.t, c.slack, c.log), MinSeverity: rules.Ticket}
	c.outbox, err = alerting.NewOutbox(c.store, alerting.OutboxConfig{
		Log: c.log.logger(), Pause: time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
	}, to)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	c.cancel, c.done = cancel, make(chan error, 1)
	go func(o *alerting.Outbox) { c.done <- o.Run(ctx) }(c.outbox)
}

// kill leaves the agent no chance to write anything more.
func (c *chaos) kill() {
	if err := c.store.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.cancel()
	<-c.done
	c.start()
}

var errFull = errors.New("no space left on device")

func (c *chaos) enqueue(i detect.Incident, end error) {
	c.said[i.ID] = i
	c.outbox.Take([]detect.Incident{i})
	err := c.store.Update(func(tx *store.Tx) error {
		if err := c.outbox.WriteTx(tx); err != nil {
			return err
		}
		return end
	})
	if !errors.Is(err, end) {
		c.t.Fatal(err)
	}
}

// say gives an incident a new state that fires.
func (c *chaos) say(id string) { c.enqueue(c.next(id), nil) }

// end resolves it.
func (c *chaos) end(id string) {
	i := example.Resolve(c.next(id))
	i.Updated = c.clock
	c.enqueue(i, nil)
}

func (c *chaos) next(id string) detect.Incident {
	c.clock = c.clock.Add(time.Second)
	i := example.Incidents()[c.rnd.IntN(4)]
	i.ID, i.Updated = id, c.clock
	i.Severity = rules.Page
	i.Members[0].Evidence.Seen = "state of " + c.clock.Format(time.TimeOnly)
	return i
}

func (c *chaos) breakOne(step int) {
	once := func(a slacktest.Answer) {
		c.slack.Answer([]string{"", "chat.postMessage", "chat.update"}[c.rnd.IntN(3)], a)
	}
	switch c.rnd.IntN(9) {
	case 0:
		once(slacktest.Answer{Status: 500, Body: "rollup_error"})
	case 1:
		once(slacktest.Answer{Status: 502, Done: true})
	case 2:
		once(slacktest.Answer{Hangup: true})
	case 3:
		once(slacktest.Answer{Hangup: true, Done: true})
	case 4:
		once(slacktest.Answer{Body: `{"ok":false,"error":"invalid_blocks"}`})
	case 5:
		if step < 30 {
			once(slacktest.Answer{Status: 429, Header: http.Header{"Retry-After": {"1"}}})
		}
	case 6:
		c.slack.SetDown(c.rnd.IntN(2) == 0)
	case 7:
		c.slack.SetToken([]string{slacktest.Token, "xoxb-another"}[c.rnd.IntN(2)])
	case 8:
		if step%4 == 0 {
			// What the disk did not take, and a kill took from memory, the engine
			// would find anew under another id: that is not what is tried here.
			c.enqueue(c.next("full"), errFull)
			c.until("the disk has taken it", func() bool { return c.outbox.Status()[0].Unsaved == 0 })
		}
		c.kill()
	}
}

func (c *chaos) until(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("after a minute it is not so that %s: %+v\n%s", what, c.outbox.Status(), c.log)
		}
	}
}

func (c *chaos) check() {
	shown := map[string][]slacktest.Message{}
	for _, m := range c.slack.Messages(channel) {
		id, _ := m.Metadata.EventPayload["id"].(string)
		shown[id] = append(shown[id], m)
	}
	for id, i := range c.said {
		switch all := shown[id]; {
		case len(all) != 1:
			c.t.Errorf("incident %s has %d messages", id, len(all))
		default:
			for _, want := range []string{"RESOLVED", i.Members[0].Evidence.Seen} {
				if !strings.Contains(all[0].Text, want) {
					c.t.Errorf("incident %s shows %q, its last state has %q", id, all[0].Text, want)
				}
			}
		}
	}
	if len(shown) != len(c.said) {
		c.t.Errorf("%d incidents are shown, %d were said", len(shown), len(c.said))
	}
}
