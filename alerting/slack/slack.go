// Package slack delivers incidents to Slack, by a bot token or by an incoming
// webhook.
//
// With a bot token an incident is one message that is edited as it goes on, and
// that is found again after a crash. A webhook gets no reference to what it
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

// eventType marks our messages in a channel's history.
const eventType = "gpuvigil_incident"

// How far back a message is looked for whose delivery is in doubt.
const (
	historyPages = 3
	historyLimit = 100
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
	Channel   string
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
	return fmt.Sprintf("%s in %s, channel %s", r.User, r.Team, b.cfg.Channel), nil
}

// Notify posts the incident, or edits the message that ref names.
func (b *Bot) Notify(ctx context.Context, m alerting.Message, ref string) (string, error) {
	c, err := b.connect()
	if err != nil {
		return "", err
	}
	channel, ts, _ := strings.Cut(ref, "/")
	if ts == "" && m.Doubt {
		if channel, ts, err = b.find(ctx, c, m.Incident.ID); err != nil {
			return "", err
		}
	}
	text := alerting.Render(m)
	if ts != "" {
		ref, err = b.deliver(ctx, c, channel, ts, m.Incident.ID, text)
		if !errors.Is(err, errGone) {
			return ref, err
		}
		b.cfg.Log.Warn("the message in Slack cannot be edited, a new one is posted", "incident", m.Incident.ID, "reason", err)
	}
	return b.deliver(ctx, c, b.cfg.Channel, "", m.Incident.ID, text)
}

// deliver posts a message, or edits the one with the given ts. If Slack does not
// like its form, it is sent once more as plain text.
func (b *Bot) deliver(ctx context.Context, c *conn, channel, ts, id string, text alerting.Text) (string, error) {
	ref, err := b.send(ctx, c, channel, ts, id, slack.MsgOptionText(summary(text), false), slack.MsgOptionBlocks(blocks(text)...))
	var content *contentError
	if !errors.As(err, &content) {
		return ref, err
	}
	b.cfg.Log.Warn("Slack does not take the message's form, it is sent as plain text", "incident", id, "reason", content.reason)
	// An edit that leaves out the blocks may keep the old ones: they are cleared.
	ref, err = b.send(ctx, c, channel, ts, id, slack.MsgOptionText(plain(text), false), slack.MsgOptionBlocks())
	return ref, refuseContent(err)
}

// send makes one call.
func (b *Bot) send(ctx context.Context, c *conn, channel, ts, id string, form ...slack.MsgOption) (string, error) {
	options := append(form, slack.MsgOptionParse(false), slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl(),
		slack.MsgOptionMetadata(slack.SlackMetadata{EventType: eventType, EventPayload: map[string]any{"id": id}}))
	way, doing := slack.MsgOptionPost(), "post to Slack"
	if ts != "" {
		way, doing = slack.MsgOptionUpdate(ts), "edit a message in Slack"
	}
	gotChannel, gotTS, _, err := c.SendMessageContext(ctx, channel, append(options, way)...)
	if err == nil && gotTS == "" {
		err = c.notSlack()
	}
	if err := c.judge(err); err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	b.channel = gotChannel
	return gotChannel + "/" + gotTS, nil
}

// find looks for the incident's message in the channel. It returns an empty ts if
// there is none, or if we may not look.
func (b *Bot) find(ctx context.Context, c *conn, id string) (channel, ts string, err error) {
	if b.channel == "" {
		b.cfg.Log.Warn("whether a message arrived cannot be looked up by a channel's name; it may be said twice", "channel", b.cfg.Channel,
			"hint", "configure the channel's id")
		return "", "", nil
	}
	p := &slack.GetConversationHistoryParameters{ChannelID: b.channel, Limit: historyLimit, IncludeAllMetadata: true}
	for range historyPages {
		h, err := c.GetConversationHistoryContext(ctx, p)
		var refused *alerting.Refusal
		switch err := c.judge(err); {
		case errors.As(err, &refused) && mayNotLook[refused.Reason]:
			b.cfg.Log.Warn("whether a message arrived cannot be looked up; it may be said twice", "reason", refused.Reason,
				"hint", "give the app the scope channels:history, groups:history for a private channel")
			return "", "", nil
		case err != nil:
			return "", "", fmt.Errorf("look for a message in Slack: %w", err)
		}
		for _, m := range h.Messages {
			if m.Metadata.EventType == eventType && m.Metadata.EventPayload["id"] == id {
				return b.channel, m.Timestamp, nil
			}
		}
		if p.Cursor = h.ResponseMetaData.NextCursor; p.Cursor == "" {
			break
		}
	}
	return "", "", nil
}
