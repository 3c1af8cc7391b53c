package slack_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/alertmanager/timeinterval"

	"gpuvigil/alerting"
	"gpuvigil/alerting/slack"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

var seeds = flag.Uint64("seeds", 5, "how many orders of failures the chaos tests try")

const (
	lives      = 5 // of the agent, in each order
	chaosBurst = 3 // new messages in a minute that are no pages
)

// nights is a time interval in which nothing is sent.
func nights() map[string][]timeinterval.TimeInterval {
	return map[string][]timeinterval.TimeInterval{"nights": {{Times: []timeinterval.TimeRange{{StartMinute: 0, EndMinute: 5 * 60}}}}}
}

// TestChaos lets everything go wrong in an order that the seed decides, in virtual time,
// so that Slack may be down for hours, and then compares what the channel shows with what
// the engine said. People begin maintenance, snooze and acknowledge meanwhile, nights are
// silent, and storms of incidents begin. Each of the agent's lives begins at another time than the one before
// has ended: the clock was set.
func TestChaos(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, seed)
			for life := range lives {
				c.live(t, life == lives-1)
			}
			c.check(t, c.slack)
			noSecret(t, "the log", c.log.String())
		})
	}
}

// chaos is one order of failures. What is of one life of the agent is made anew with it.
type chaos struct {
	*truth
	slack *slacktest.Server
	log   *journal
	path  string
	token atomic.Value // of string: that the agent has
	picky atomic.Bool  // Slack is about to dislike a message's form

	t      *testing.T
	store  *store.Store
	outbox *alerting.Outbox
	cancel context.CancelFunc
	done   chan error
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{truth: newTruth(rand.New(rand.NewPCG(seed, 1))), slack: standIn(t), log: &journal{}, path: filepath.Join(t.TempDir(), "state.db")}
	c.token.Store(slacktest.Token)
	c.keeps = true
	return c
}

// live is one life of the agent. It ends by a kill, unless it is the last.
func (c *chaos) live(t *testing.T, last bool) {
	synctest.Test(t, func(t *testing.T) {
		c.t = t
		time.Sleep(time.Duration(c.rnd.IntN(72)) * time.Hour) // virtual time begins anew with each life
		c.start()
		for _, i := range c.killed() {
			c.say(i, nil)
		}
		for range 30 {
			c.say(c.move(c.pick()), nil)
			if c.rnd.IntN(2) == 0 {
				c.breakOne()
			}
			time.Sleep(time.Duration(c.rnd.IntN(300)) * time.Second)
		}
		if last {
			c.settle()
		}
		c.kill()
	})
}

func (c *chaos) start() {
	var err error
	if c.store, err = store.Open(c.path, 10*time.Second, c.log.logger()); err != nil {
		c.t.Fatal(err)
	}
	b, err := slack.NewBot(slack.BotConfig{Channel: channel, APIURL: c.slack.APIURL(), Transport: c.slack.Transport(), Log: c.log.logger(), Charts: true,
		Token: func() (string, error) { return c.token.Load().(string), nil }})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := alerting.OutboxConfig{Log: c.log.logger(), Chart: func(*detect.Incident) *alerting.Chart { return nil }, Burst: chaosBurst,
		Current:    func(id string) *detect.Incident { return c.current(id) },
		GateConfig: alerting.GateConfig{Node: "n", Route: &alerting.Route{Receiver: c.t.Name(), Mute: []string{"nights"}}, Intervals: nights()}}
	c.outbox, err = alerting.NewOutbox(c.store, cfg, alerting.Receiver{Name: c.t.Name(), Notifier: b, MinSeverity: rules.Ticket})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	c.cancel, c.done = cancel, make(chan error, 1)
	go func(o *alerting.Outbox, done chan error) { done <- o.Run(ctx) }(c.outbox, c.done)
}

// kill leaves the agent no chance to write anything more.
func (c *chaos) kill() {
	if err := c.store.Close(); err != nil {
		c.t.Error(err)
	}
	c.cancel()
	<-c.done
}

var errFull = errors.New("no space left on device")

// say gives the outbox a state, in a transaction that ends as given.
func (c *chaos) say(i detect.Incident, end error) {
	c.state(i)
	c.outbox.Take([]detect.Incident{i})
	err := c.store.Update(func(tx *store.Tx) error { return errors.Join(c.outbox.WriteTx(tx), end) })
	if !errors.Is(err, end) {
		c.t.Fatal(err)
	}
	if err == nil {
		c.acknowledge(i)
	}
}

func (c *chaos) breakOne() {
	method := []string{"", "chat.postMessage", "chat.update", "conversations.history", "conversations.replies"}[c.rnd.IntN(5)]
	once := func(a slacktest.Answer) { c.slack.Answer(method, a) }
	switch c.rnd.IntN(12) {
	case 0:
		once(slacktest.Answer{Status: 500, Body: "rollup_error"})
	case 1:
		once(slacktest.Answer{Status: 502, Done: true})
	case 2:
		once(slacktest.Answer{Hangup: true})
	case 3:
		once(slacktest.Answer{Hangup: true, Done: true})
	case 4:
		// Never two in a row: what is refused twice for its content is given up.
		if c.picky.CompareAndSwap(false, true) {
			c.slack.Answer("chat.postMessage", slacktest.Answer{Body: `{"ok":false,"error":"invalid_blocks"}`, Then: func() { c.picky.Store(false) }})
		}
	case 5: // a storm
		for range 5 + c.rnd.IntN(20) {
			once(slacktest.Answer{Status: 429, Header: http.Header{"Retry-After": {fmt.Sprint(1 + c.rnd.IntN(60))}}})
		}
	case 6:
		c.slack.SetDown(true)
		c.during(6*time.Hour, func() { c.slack.SetDown(false) })
	case 7: // revoked, and replaced hours later
		c.slack.SetToken(fmt.Sprint("xoxb-", c.rnd.IntN(1e9)))
		c.during(time.Duration(c.rnd.IntN(180))*time.Minute, func() { c.token.Store(c.slack.Token()) })
	case 8:
		c.say(c.move(c.pick()), errFull)
		c.soon("the disk has taken what it had no room for", func() bool { return c.outbox.Status()[0].Unsaved == 0 })
		for _, i := range c.unsaved {
			c.acknowledge(i)
		}
	case 9: // a storm of new incidents
		for range 3 + c.rnd.IntN(8) {
			c.say(c.move(c.open()), nil)
		}
	case 10: // maintenance of everything, which somebody may end
		to := time.Now().Add(time.Duration(1+c.rnd.IntN(300)) * time.Minute)
		if err := c.outbox.BeginMaintenance(alerting.Begun{Name: "all", Matchers: []string{`node=~".*"`}, To: to, By: "ana"}); err != nil {
			c.t.Error(err)
		}
		c.during(time.Duration(c.rnd.IntN(120))*time.Minute, func() {
			if c.rnd.IntN(2) == 0 && time.Now().Before(to) {
				if err := c.outbox.EndMaintenance("all"); err != nil {
					c.t.Error(err)
				}
			}
		})
	case 11: // somebody snoozes or acknowledges what fires
		i := c.pick()
		if _, known := c.latest(i.ID); !known {
			return
		}
		m := &alerting.Mark{By: "ana", At: time.Now(), Severity: i.Severity}
		if c.rnd.IntN(2) == 0 {
			m.Until = m.At.Add(time.Duration(1+c.rnd.IntN(600)) * time.Minute)
		}
		if err := c.outbox.Mark(i, m); err != nil {
			c.t.Error(err)
		}
	}
}

// during lets the engine talk on for a while, and ends the trouble then.
func (c *chaos) during(d time.Duration, end func()) {
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(20 * time.Minute) {
		c.say(c.move(c.pick()), nil)
	}
	end()
}

// settle ends all trouble and half of the incidents, and waits until all is said.
func (c *chaos) settle() {
	c.slack.Recover()
	c.token.Store(slacktest.Token)
	// What was refused is tried again when something new was taken, which may be kept back.
	for range 48 {
		c.say(c.move(c.open()), nil)
		if time.Sleep(30 * time.Minute); c.outbox.Status()[0].LastError == "" {
			break
		}
	}
	c.soon("Slack takes messages again", func() bool { return c.outbox.Status()[0].LastError == "" })
	for _, i := range c.said {
		if i.State == detect.Firing && c.rnd.IntN(2) == 0 {
			c.say(c.end(i), nil)
		}
	}
	// What a night, maintenance or a snooze keeps back is said when they are over. A clock
	// that was set back makes them last for days.
	c.soonWithin(5*24*time.Hour, "all is said", func() bool {
		s := c.outbox.Status()[0]
		return s.Waiting == 0 && s.Unsaved == 0 && len(s.Refused) == 0 && s.Held == 0
	})
}

// soon waits for hours of virtual time.
func (c *chaos) soon(what string, ok func() bool) {
	c.t.Helper()
	c.soonWithin(14*time.Hour, what, ok)
}

func (c *chaos) soonWithin(limit time.Duration, what string, ok func() bool) {
	c.t.Helper()
	for until := time.Now().Add(limit); !ok(); time.Sleep(time.Second) {
		if time.Now().After(until) {
			c.t.Fatalf("after %s it is not so that %s: %+v\n%s", limit, what, c.outbox.Status(), c.log)
		}
	}
}
