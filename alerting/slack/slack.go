// Package slack delivers incidents to Slack, by a bot token or by an incoming
// webhook.
//
// With a bot token an incident is one message that is edited as it goes on, with its
// history in the message's thread, and that is found again after a crash. A webhook gets no reference to what it
// posted, so there an incident is announced once, again if it gets worse, and its
// end is a short message of its own; after a crash something may be said twice.
//
// No error and no log line holds the token or the webhook's URL.
package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"

	"github.com/slack-go/slack"

	"gpuvigil/alerting"
)

// Secret returns a token or URL. It is called for each message, so that a secret
// can be replaced while the agent runs. Its error must not hold the secret.
type Secret func() (string, error)

// What marks our messages in a channel's history, and our replies in a thread.
const (
	messageType = "gpuvigil_incident"
	replyType   = "gpuvigil_history"
)

// How far a message is looked for whose delivery is in doubt.
const (
	historyPages = 3
	pageLimit    = 100
)

// mayNotLook are the refusals of the history under which posting may still be
// allowed: an alert is not held back for them.
var mayNotLook = map[string]bool{"missing_scope": true, "not_in_channel": true, "channel_not_found": true}

var channelID = regexp.MustCompile(`^[CGD][A-Z0-9]{6,}$`)

// BotConfig is how a Bot reaches Slack. Token, Channel and Log are required.
type BotConfig struct {
	Token Secret
	// Channel is an id (C0123456789) or a name. With a name, a message that was in
	// flight when the agent was killed cannot be looked for.
	Channel string
	// Charts says that a picture of the last hours is uploaded into each thread: it
	// shows readings, and stays in the workspace.
	Charts bool
	// AppToken is the token of the app itself, with which buttons under messages are
	// listened to; nil: there are no buttons.
	AppToken  Secret
	APIURL    string            // empty means Slack's own
	Transport http.RoundTripper // nil means a transport of its own with the environment's proxies
	Log       *slog.Logger
}

// Bot posts and edits messages in one channel.
type Bot struct {
	cfg     BotConfig
	channel string // id, once it is known
}

var _ alerting.Notifier = (*Bot)(nil)

// NewBot checks the configuration and reads the token once.
func NewBot(cfg BotConfig) (*Bot, error) {
	if cfg.Channel == "" {
		return nil, errors.New("no Slack channel: configure the id of the channel, as its details in Slack show it")
	}
	if cfg.APIURL == "" {
		cfg.APIURL = slack.APIURL
	}
	if !strings.HasSuffix(cfg.APIURL, "/") {
		cfg.APIURL += "/"
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport()
	}
	if cfg.AppToken != nil {
		if _, err := cfg.AppToken(); err != nil {
			return nil, fmt.Errorf("read the Slack app token: %w", err)
		}
	}
	b := &Bot{cfg: cfg}
	if channelID.MatchString(cfg.Channel) {
		b.channel = cfg.Channel
	}
	_, err := b.connect()
	return b, err
}

// Check asks Slack whether it knows the token and returns who we are there.
func (b *Bot) Check(ctx context.Context) (string, error) {
	c, err := b.connect()
	if err != nil {
		return "", err
	}
	r, err := c.AuthTestContext(ctx)
	if err := c.judge(err); err != nil {
		return "", fmt.Errorf("ask Slack who the token belongs to: %w", err)
	}
	who := fmt.Sprintf("%s in %s, channel %s", r.User, r.Team, b.cfg.Channel)
	if b.cfg.AppToken == nil {
		return who, nil
	}
	client, x, err := b.socket()
	if err != nil {
		return "", err
	}
	if _, _, err := client.OpenContext(ctx); err != nil {
		return "", x.socketError(err)
	}
	return who + ", with buttons", nil
}

// Notify posts the incident, or edits the message that ref names and tells its thread
// what is new.
func (b *Bot) Notify(ctx context.Context, m alerting.Message, ref string) (string, error) {
	c, err := b.connect()
	if err != nil {
		return "", err
	}
	th := parseThread(ref)
	if m.Doubt {
		if th, err = b.recall(ctx, c, th, &m); err != nil {
			return "", err
		}
	}
	text := alerting.Render(m)
	if th.ts != "" {
		err := b.deliver(ctx, c, &th, &m, text)
		switch {
		case err == nil:
			if err = b.tell(ctx, c, &th, &m, text); err == nil {
				b.picture(ctx, c, &th, &m)
			}
			return th.String(), err
		case !errors.Is(err, errGone):
			return th.String(), err
		}
		b.cfg.Log.Warn("the message in Slack cannot be edited, a new one is posted", "incident", m.Incident.ID, "reason", err)
	}
	th = thread{channel: b.cfg.Channel, told: alerting.Begin(&m.Incident)}
	th.told.Rung = m.Rung
	if err := b.deliver(ctx, c, &th, &m, text); err != nil {
		return "", err
	}
	b.picture(ctx, c, &th, &m)
	return th.String(), nil
}

// deliver posts the message of a thread that has none yet, or edits it. If Slack does
// not like its form, it is sent once more as plain text.
func (b *Bot) deliver(ctx context.Context, c *conn, th *thread, m *alerting.Message, text alerting.Text) error {
	id := m.Incident.ID
	meta, form := metadata(messageType, id, th.told), blocks(text)
	if row := b.buttons(m, text); row != nil {
		form = append(form, row)
	}
	err := b.send(ctx, c, th, meta, slack.MsgOptionText(summary(text), false), slack.MsgOptionBlocks(form...))
	var content *contentError
	if !errors.As(err, &content) {
		return err
	}
	b.cfg.Log.Warn("Slack does not take the message's form, it is sent as plain text", "incident", id, "reason", content.reason)
	// An edit that leaves out the blocks may keep the old ones: they are cleared.
	return refuseContent(b.send(ctx, c, th, meta, slack.MsgOptionText(plain(text), false), slack.MsgOptionBlocks()))
}

// send posts or edits the message of a thread.
func (b *Bot) send(ctx context.Context, c *conn, th *thread, meta slack.MsgOption, form ...slack.MsgOption) error {
	way, doing := slack.MsgOptionPost(), "post to Slack"
	if th.ts != "" {
		way, doing = slack.MsgOptionUpdate(th.ts), "edit a message in Slack"
	}
	channel, ts, err := b.call(ctx, c, th.channel, append(form, meta, way)...)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	b.channel, th.channel, th.ts = channel, channel, ts
	return nil
}

// call makes one call of chat.
func (b *Bot) call(ctx context.Context, c *conn, channel string, form ...slack.MsgOption) (gotChannel, ts string, err error) {
	options := append(form, slack.MsgOptionParse(false), slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl())
	gotChannel, ts, _, err = c.SendMessageContext(ctx, channel, options...)
	if err == nil && ts == "" {
		err = c.notSlack()
	}
	return gotChannel, ts, c.judge(err)
}

// find looks for the incident's message in the channel. The thread that it returns has
// no ts if there is none, or if we may not look.
func (b *Bot) find(ctx context.Context, c *conn, id string) (thread, error) {
	if b.channel == "" {
		b.cfg.Log.Warn("whether a message arrived cannot be looked up by a channel's name; it may be said twice", "channel", b.cfg.Channel,
			"hint", "configure the channel's id")
		return thread{}, nil
	}
	p := &slack.GetConversationHistoryParameters{ChannelID: b.channel, Limit: pageLimit, IncludeAllMetadata: true}
	for range historyPages {
		h, err := c.GetConversationHistoryContext(ctx, p)
		if err := c.judge(err); err != nil {
			return thread{}, b.mayLook(err)
		}
		for _, m := range h.Messages {
			if told, ok := toldBy(m, messageType, id); ok {
				return thread{channel: b.channel, ts: m.Timestamp, told: told}, nil
			}
		}
		if p.Cursor = h.ResponseMetaData.NextCursor; p.Cursor == "" {
			break
		}
	}
	return thread{}, nil
}

// mayLook returns nil, and says so, if err means that we may not look: an alert is not
// held back for it.
func (b *Bot) mayLook(err error) error {
	var refused *alerting.Refusal
	if errors.As(err, &refused) && mayNotLook[refused.Reason] {
		b.cfg.Log.Warn("whether a message arrived cannot be looked up; it may be said twice", "reason", refused.Reason,
			"hint", "give the app the scope channels:history, groups:history for a private channel")
		return nil
	}
	return fmt.Errorf("look for a message in Slack: %w", err)
}
