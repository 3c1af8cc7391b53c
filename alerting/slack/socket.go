package slack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"

	"gpuvigil/alerting"
	"gpuvigil/internal/text"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
	steady     = time.Minute // a connection that held for so long is made anew at once
	pressLimit = 50          // presses that wait to be carried out
	frameLimit = 1 << 20     // of a message from Slack, in bytes
	nameLimit  = 60
)

// Press is a button of a message that somebody in Slack has pressed.
type Press struct {
	Incident string // its id
	What     string // ack, snooze or unack
	By       string // who, as Slack calls them, which may be anything
}

// The buttons, by what they say of an incident.
const (
	actionPrefix = "gpuvigil_"
	Ack          = "ack"
	Snooze       = "snooze"
	Unack        = "unack"
)

// buttons returns what can be pressed under a message, nil if nothing can: what has ended
// and what is no incident takes no word of anybody.
func (b *Bot) buttons(m *alerting.Message, t alerting.Text) slack.Block {
	if b.cfg.AppToken == nil || t.Resolved || m.Words != nil || m.Rule == nil {
		return nil
	}
	button := func(what, label string) slack.BlockElement {
		return slack.NewButtonBlockElement(actionPrefix+what, m.Incident.ID, slack.NewTextBlockObject(slack.PlainTextType, label, false, false))
	}
	if m.Mark != nil {
		return slack.NewActionBlock("", button(Unack, "Take it back"))
	}
	return slack.NewActionBlock("", button(Ack, "Acknowledge"), button(Snooze, "Snooze 2 h"))
}

// Listen takes presses of buttons over Slack's Socket Mode until ctx ends: press is called
// for each, one after the other, and its error is shown to who pressed and to nobody else.
// Slack is answered before that. A connection that ends is made anew, after a pause that
// grows while none holds; tokens are read anew for each.
func (b *Bot) Listen(ctx context.Context, press func(Press) error) {
	pause, said := firstPause, ""
	for ctx.Err() == nil {
		began := time.Now()
		connected, err := b.listen(ctx, press)
		if ctx.Err() != nil {
			return
		}
		held := connected && time.Since(began) >= steady
		if held {
			pause, said = firstPause, ""
		}
		switch {
		case err != nil && err.Error() != said:
			b.cfg.Log.Warn("Buttons in Slack do nothing for now: the connection is made anew.", "err", err)
			said = err.Error()
		case err == nil:
			b.cfg.Log.Debug("Slack has ended the connection for its buttons, it is made anew.")
		}
		if held {
			continue
		}
		sleep(ctx, time.Duration(float64(pause)*(0.8+0.4*rand.Float64())))
		pause = min(2*pause, maxPause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// socket makes a client for one connection.
func (b *Bot) socket() (*socketmode.Client, *exchange, error) {
	c, err := b.connect()
	if err != nil {
		return nil, nil, err
	}
	app, err := b.cfg.AppToken()
	if err != nil {
		return nil, nil, fmt.Errorf("read the Slack app token: %w", err)
	}
	if app = strings.TrimSpace(app); app == "" {
		return nil, nil, errors.New("the Slack app token is empty: put the app-level token (xapp-…) there")
	}
	c.secrets = append(c.secrets, app)
	api := slack.New(c.secrets[0], slack.OptionAppLevelToken(app), slack.OptionAPIURL(b.cfg.APIURL), slack.OptionHTTPClient(c.client()))
	quiet := log.New(io.Discard, "", 0)
	return socketmode.New(api, socketmode.OptionLog(quiet), socketmode.OptionReadLimit(frameLimit)), c.exchange, nil
}

// listen holds one connection. It reports whether there was one, and what ended it unless
// Slack did.
func (b *Bot) listen(ctx context.Context, press func(Press) error) (connected bool, err error) {
	client, x, err := b.socket()
	if err != nil {
		return false, err
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	presses := make(chan slack.InteractionCallback, pressLimit)
	carried := make(chan struct{})
	go func() {
		defer close(carried)
		for p := range presses {
			b.pressed(ctx, &p, press)
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- client.RunContext(inner) }()
	var failure error
	for {
		select {
		case e := <-client.Events:
			switch e.Type {
			case socketmode.EventTypeConnected:
				connected = true
				b.cfg.Log.Info("Buttons in Slack work.")
			case socketmode.EventTypeConnecting:
				// A second connection is to have tokens that are read anew, and its pause.
				if again, ok := e.Data.(*slack.ConnectingEvent); ok && again.ConnectionCount > 0 {
					cancel()
				}
			case socketmode.EventTypeConnectionError:
				if failed, ok := e.Data.(*slack.ConnectionErrorEvent); ok {
					failure = failed.ErrorObj
				}
				cancel()
			case socketmode.EventTypeErrorBadMessage, socketmode.EventTypeErrorWriteFailed:
				b.cfg.Log.Warn("Something that Slack sent for its buttons cannot be read or answered.", "kind", string(e.Type))
			case socketmode.EventTypeInteractive:
				b.take(inner, client, &e, presses)
			}
		case err := <-ended:
			close(presses)
			<-carried
			if failure == nil {
				failure = err
			}
			return connected, x.socketError(failure)
		}
	}
}

// take answers Slack, and leaves a press to be carried out. One that there is no room for
// is not answered: Slack says so to who pressed.
func (b *Bot) take(ctx context.Context, client *socketmode.Client, e *socketmode.Event, presses chan<- slack.InteractionCallback) {
	p, ok := e.Data.(slack.InteractionCallback)
	if !ok || e.Request == nil {
		return
	}
	select {
	case presses <- p:
	default:
		b.cfg.Log.Warn("More buttons are pressed in Slack than can be carried out: one is left out.")
		return
	}
	if err := client.AckCtx(ctx, e.Request.EnvelopeID, nil); err != nil {
		b.cfg.Log.Warn("A pressed button could not be acknowledged to Slack.", "err", err)
	}
}

// pressed carries out what somebody pressed, and tells them if that failed.
func (b *Bot) pressed(ctx context.Context, p *slack.InteractionCallback, press func(Press) error) {
	if p.Type != slack.InteractionTypeBlockActions {
		return
	}
	by := text.Clean(cmp.Or(p.User.Name, p.User.ID), nameLimit) + " in Slack"
	for _, a := range p.ActionCallback.BlockActions {
		what, ours := strings.CutPrefix(a.ActionID, actionPrefix)
		if !ours {
			continue
		}
		failure := press(Press{Incident: a.Value, What: what, By: by})
		if failure == nil {
			continue
		}
		b.cfg.Log.Info("A button in Slack was pressed in vain.", "what", text.Clean(what, nameLimit), "err", failure)
		if err := b.whisper(ctx, p.Channel.ID, p.User.ID, failure.Error()); err != nil {
			b.cfg.Log.Warn("Who pressed a button in Slack could not be told that it did nothing.", "err", err)
		}
	}
}

// whisper tells one person something in a channel, which nobody else sees.
func (b *Bot) whisper(ctx context.Context, channel, user, said string) error {
	c, err := b.connect()
	if err != nil {
		return err
	}
	_, err = c.PostEphemeralContext(ctx, channel, user, slack.MsgOptionText(fit(said, maxSummary), false), slack.MsgOptionParse(false))
	return c.judge(err)
}

// socketError puts what ended a connection into words that hold no secret; nil if Slack
// asked for it.
func (x *exchange) socketError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	err = x.judge(err)
	if refused := (*alerting.Refusal)(nil); errors.As(err, &refused) {
		return fmt.Errorf("connect to Slack for its buttons: it refuses the app token: %s: put an app-level token (xapp-…) with the scope connections:write where the configuration says, and switch Socket Mode on for the app", refused.Reason)
	}
	return fmt.Errorf("connect to Slack for its buttons: %w", err)
}
