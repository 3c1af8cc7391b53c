package slack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slack-go/slack"

	"gpuvigil/alerting"
)

const maxReply = 2500 // characters of a reply

// thread is one incident's message with what its thread knows. Its text form is the
// outbox's reference.
type thread struct {
	channel, ts string
	told        alerting.Told
	pictures    int // attempts at the picture, pictureSent once there is one
}

// String writes channel/ts/told/pictures.
func (th thread) String() string {
	told, err := th.told.MarshalText()
	if err != nil {
		return th.channel + "/" + th.ts
	}
	return th.channel + "/" + th.ts + "/" + string(told) + "/" + strconv.Itoa(th.pictures)
}

// parseThread reads what String writes. Of a reference without more than channel and ts
// the thread is taken to know all: nothing is told twice.
func parseThread(ref string) thread {
	var th thread
	parts := strings.SplitN(ref, "/", 4)
	if len(parts) < 2 {
		return th
	}
	th.channel, th.ts = parts[0], parts[1]
	if len(parts) == 4 && th.told.UnmarshalText([]byte(parts[2])) == nil {
		if n, err := strconv.Atoi(parts[3]); err == nil {
			th.pictures = n
		}
	} else {
		th.pictures = pictureSent
	}
	return th
}

// metadata marks a message or a reply as what tells of the incident until told.
func metadata(kind, id string, told alerting.Told) slack.MsgOption {
	payload := map[string]any{"id": id}
	if text, err := told.MarshalText(); err == nil {
		payload["told"] = string(text)
	}
	return slack.MsgOptionMetadata(slack.SlackMetadata{EventType: kind, EventPayload: payload})
}

// toldBy reads the mark of a message.
func toldBy(m slack.Message, kind, id string) (told alerting.Told, ok bool) {
	if m.Metadata.EventType != kind || m.Metadata.EventPayload["id"] != id {
		return told, false
	}
	if text, isText := m.Metadata.EventPayload["told"].(string); isText {
		// A mark that cannot be read is another release's: the thread counts as
		// knowing nothing that this one could add to.
		if told.UnmarshalText([]byte(text)) != nil {
			told = alerting.Told{}
		}
	}
	return told, true
}

// recall finds out what an attempt without an answer has delivered: the message, if its
// reference is not known, and what its thread has.
func (b *Bot) recall(ctx context.Context, c *conn, th thread, m *alerting.Message) (thread, error) {
	if th.ts == "" {
		found, err := b.find(ctx, c, m.Incident.ID)
		if err != nil || found.ts == "" {
			return th, err
		}
		th = found
	}
	p := &slack.GetConversationRepliesParameters{ChannelID: th.channel, Timestamp: th.ts, Limit: pageLimit, IncludeAllMetadata: true}
	for range historyPages {
		replies, more, next, err := c.GetConversationRepliesContext(ctx, p)
		if err := c.judge(err); err != nil {
			if errors.Is(err, errGone) || isThreadless(err) {
				return th, nil // the edit that follows finds out that it is gone
			}
			return th, b.mayLook(err)
		}
		for _, r := range replies {
			if told, ok := toldBy(r, replyType, m.Incident.ID); ok && told.Replies > th.told.Replies {
				th.told = told
			}
			for _, f := range r.Files {
				if f.Name == pictureName(m) {
					th.pictures = pictureSent
				}
			}
		}
		if p.Cursor = next; !more || next == "" {
			break
		}
	}
	return th, nil
}

// threadless are refusals that are about the thread only: the message itself stands, and
// what would have been in the thread is not worth holding it back for.
var threadless = map[string]bool{
	"thread_not_found": true, "cannot_reply_to_message": true, "restricted_action_thread_locked": true,
	"restricted_action_non_threadable_channel": true, "restricted_action_thread_only_channel": true,
}

func isThreadless(err error) bool {
	var refused *alerting.Refusal
	return errors.As(err, &refused) && threadless[refused.Reason]
}

// tell replies to the message with what the thread does not know yet.
func (b *Bot) tell(ctx context.Context, c *conn, th *thread, m *alerting.Message, text alerting.Text) error {
	if th.told.State == "" {
		th.told = alerting.Begin(&m.Incident)
		return nil
	}
	news := th.told.News(m)
	if news == nil {
		return nil
	}
	said := strings.Join(news.Lines, "\n")
	if news.Rings { // it stands in the channel for itself
		said = mark(text) + " " + text.Headline + "\n" + said
		if text.Simulated {
			said = alerting.SimulatedMark + "\n" + said
		}
	}
	err := b.reply(ctx, c, th, m, news, said)
	var content *contentError
	if errors.As(err, &content) {
		lines := strings.Split(said, "\n")
		err = b.reply(ctx, c, th, m, news, strings.Join(lines[:min(2, len(lines))], "\n"))
	}
	if errors.As(err, &content) || isThreadless(err) {
		b.cfg.Log.Warn("Slack does not take a reply; the message itself is up to date", "incident", m.Incident.ID, "reason", err)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("reply in Slack: %w", err)
	}
	th.told = news.Told
	return nil
}

// reply says something in the thread.
func (b *Bot) reply(ctx context.Context, c *conn, th *thread, m *alerting.Message, news *alerting.Reply, said string) error {
	if said = fit(said, maxReply); news.Rings {
		said = calling(m.Mentions, said)
	}
	form := []slack.MsgOption{
		slack.MsgOptionPost(), slack.MsgOptionTS(th.ts), slack.MsgOptionText(said, false), metadata(replyType, m.Incident.ID, news.Told),
	}
	if news.Rings {
		form = append(form, slack.MsgOptionBroadcast())
	}
	_, _, err := b.call(ctx, c, th.channel, form...)
	return err
}
