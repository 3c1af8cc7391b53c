package slack_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/slack"
	"gpuvigil/alerting/slack/slacktest"
)

// pressable is a bot with buttons, and what was pressed.
type pressable struct {
	*slack.Bot
	slack   *slacktest.Server
	log     *journal
	app     atomic.Value // of string: the app token that it has
	presses chan slack.Press
	answer  error // to each press; set before anything is pressed
}

func newPressable(t *testing.T) *pressable {
	t.Helper()
	p := &pressable{slack: standIn(t), log: &journal{}, presses: make(chan slack.Press, 10)}
	p.app.Store(slacktest.AppToken)
	var err error
	p.Bot, err = slack.NewBot(slack.BotConfig{
		Token: fixed(slacktest.Token), AppToken: func() (string, error) { return p.app.Load().(string), nil },
		Channel: channel, APIURL: p.slack.APIURL(), Log: p.log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// listen runs until the test ends, and holds then that no secret was logged.
func (p *pressable) listen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Listen(ctx, func(press slack.Press) error {
			p.presses <- press
			return p.answer
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		noSecret(t, "the log", p.log.String())
		for _, secret := range []string{slacktest.AppToken, "zyxwvutsrqpo", "secret-ticket"} {
			if strings.Contains(p.log.String(), secret) {
				t.Errorf("the log holds %q: %s", secret, p.log)
			}
		}
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

func (p *pressable) connected(t *testing.T) {
	t.Helper()
	eventually(t, "one connection to Slack is open", func() bool { return p.slack.Connections() == 1 })
}

// post says an incident and returns its message.
func (p *pressable) post(t *testing.T, m alerting.Message, ref string) (slacktest.Message, string) {
	t.Helper()
	ref, err := p.Notify(t.Context(), m, ref)
	if err != nil {
		t.Fatal(err)
	}
	all := p.slack.Messages(channel)
	return all[len(all)-1], ref
}

func (p *pressable) press(t *testing.T, m slacktest.Message, label, user string) string {
	t.Helper()
	k := slices.IndexFunc(m.Buttons(), func(b slacktest.Button) bool { return b.Label == label })
	if k < 0 {
		t.Fatalf("there is no button %q, there are %+v", label, m.Buttons())
	}
	id, err := p.slack.Press(channel, m, m.Buttons()[k], user)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (p *pressable) pressed(t *testing.T) slack.Press {
	t.Helper()
	select {
	case got := <-p.presses:
		return got
	case <-time.After(time.Minute):
		t.Fatalf("a press never arrived: %s", p.log)
		return slack.Press{}
	}
}

func labels(m slacktest.Message) string {
	var all []string
	for _, b := range m.Buttons() {
		all = append(all, b.Label)
	}
	return strings.Join(all, ", ")
}

func TestAMessageHasTheButtonsThatItsStateAllows(t *testing.T) {
	p := newPressable(t)
	m := example.Message(example.Incidents()[0])
	said, ref := p.post(t, m, "")
	if got := labels(said); got != "Acknowledge, Snooze 2 h" {
		t.Errorf("a new incident has the buttons %s", got)
	}
	m.Mark = &alerting.Mark{By: "ana", At: example.Start}
	said, ref = p.post(t, m, ref)
	if got := labels(said); got != "Take it back" {
		t.Errorf("an acknowledged incident has the buttons %s", got)
	}
	m.Mark, m.Incident = nil, example.Resolve(m.Incident)
	if said, _ = p.post(t, m, ref); len(said.Buttons()) > 0 {
		t.Errorf("an incident that is over has the buttons %s", labels(said))
	}
	words := alerting.Message{Incident: m.Incident, Words: &alerting.Text{Headline: "Daily digest"}}
	words.Incident.ID = "digest"
	if said, _ = p.post(t, words, ""); len(said.Buttons()) > 0 {
		t.Errorf("a digest has the buttons %s", labels(said))
	}
	s, log := standIn(t), &journal{}
	if _, err := bot(t, s, log).Notify(t.Context(), example.Message(example.Incidents()[0]), ""); err != nil {
		t.Fatal(err)
	}
	if plain := s.Messages(channel)[0]; len(plain.Buttons()) > 0 {
		t.Errorf("without an app token, with which nobody listens, there are the buttons %s", labels(plain))
	}
}

func TestAPressedButtonIsAcknowledgedAndCarriedOut(t *testing.T) {
	p := newPressable(t)
	p.listen(t)
	p.connected(t)
	m := example.Message(example.Incidents()[0])
	said, _ := p.post(t, m, "")
	for label, what := range map[string]string{"Acknowledge": slack.Ack, "Snooze 2 h": slack.Snooze} {
		envelope := p.press(t, said, label, "ana\n<!channel>")
		if got, want := p.pressed(t), (slack.Press{Incident: m.Incident.ID, What: what, By: "ana <!channel> in Slack"}); got != want {
			t.Errorf("%s: pressed is %+v, want %+v", label, got, want)
		}
		eventually(t, "Slack is told that the press has arrived", func() bool { return slices.Contains(p.slack.Acked(), envelope) })
	}
	if w := p.slack.Whispers(); len(w) > 0 {
		t.Errorf("who pressed with success is told %+v", w)
	}
}

func TestWhoPressesInVainIsTold(t *testing.T) {
	p := newPressable(t)
	p.answer = errors.New("no incident that fires is called <@U0>")
	p.listen(t)
	p.connected(t)
	said, _ := p.post(t, example.Message(example.Incidents()[0]), "")
	envelope := p.press(t, said, "Acknowledge", "ana")
	p.pressed(t)
	eventually(t, "who pressed is told why nothing happened", func() bool { return len(p.slack.Whispers()) == 1 })
	if got, want := p.slack.Whispers()[0], (slacktest.Whisper{Channel: channel, User: "U0000000009", Text: "no incident that fires is called &lt;@U0&gt;"}); got != want {
		t.Errorf("said is %+v, want %+v", got, want)
	}
	if !slices.Contains(p.slack.Acked(), envelope) {
		t.Error("Slack shows a press that arrived as one that failed")
	}
}

func TestListeningGoesOnAfterADisconnectACutAndARevokedToken(t *testing.T) {
	p := newPressable(t)
	p.listen(t)
	p.connected(t)
	said, _ := p.post(t, example.Message(example.Incidents()[0]), "")
	again := func(what string) {
		t.Helper()
		// The press may fall into the moment before the old connection is gone.
		eventually(t, "buttons work again after "+what, func() bool {
			if p.slack.Connections() == 0 {
				return false
			}
			if _, err := p.slack.Press(channel, said, said.Buttons()[0], "ana"); err != nil {
				return false
			}
			select {
			case <-p.presses:
				return true
			case <-time.After(200 * time.Millisecond):
				return false
			}
		})
	}
	p.slack.Disconnect(false)
	again("Slack asked for a new connection")
	p.slack.Disconnect(true)
	again("the connection was cut")
	p.slack.SetAppToken("xapp-1-another")
	p.slack.Disconnect(true)
	eventually(t, "the log says that the token is refused", func() bool { return strings.Contains(p.log.String(), "refuses the app token: invalid_auth") })
	p.app.Store("xapp-1-another")
	again("the token was replaced")
}

func TestCheckTriesTheAppToken(t *testing.T) {
	p := newPressable(t)
	if who, err := p.Check(t.Context()); err != nil || !strings.HasSuffix(who, ", with buttons") {
		t.Errorf("a good app token: %q, %v", who, err)
	}
	p.slack.SetAppToken("xapp-1-another")
	if _, err := p.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "connections:write") || strings.Contains(err.Error(), "zyxwvutsrqpo") {
		t.Errorf("an app token that Slack does not know: %v", err)
	}
}
