package slack

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/slack-go/slack"

	"gpuvigil/alerting"
)

const (
	defaultWait = 30 * time.Second // for a rate limit that names no time
	longestWait = time.Hour
)

// errGone says that the message to be edited is not there, or not ours.
var errGone = errors.New("the message cannot be edited")

// contentError says that Slack does not take the message as it is.
type contentError struct{ reason string }

func (e *contentError) Error() string { return "Slack does not take the message: " + e.reason }

// refuseContent makes the second refusal of a message's content final.
func refuseContent(err error) error {
	var content *contentError
	if errors.As(err, &content) {
		return &alerting.Refusal{Reason: content.reason, Content: true, Hint: "not even its plain text was taken; please report this as a bug"}
	}
	return err
}

type verdict uint8

const (
	permanent verdict = iota
	content
	gone
	transient
	limited
)

// verdicts says what Slack's words mean for a message. A word that is not here is
// permanent, which means that the outbox does not try again at once.
// https://docs.slack.dev/reference/methods/chat.postMessage#errors
var verdicts = map[string]verdict{
	"invalid_blocks": content, "invalid_blocks_format": content, "msg_blocks_too_long": content, "msg_too_long": content,
	"no_text": content, "too_many_attachments": content, "invalid_attachments": content, "invalid_payload": content,
	"invalid_metadata_format": content, "invalid_metadata_schema": content, "metadata_too_large": content,
	"message_not_found": gone, "cant_update_message": gone, "edit_window_closed": gone,
	"internal_error": transient, "fatal_error": transient, "service_unavailable": transient, "request_timeout": transient,
	"team_added_to_org": transient, "rollup_error": transient,
	"ratelimited": limited, "rate_limited": limited,
}

const (
	hintToken   = "put the app's present bot token (xoxb-…) where the configuration says; it is read anew for each message"
	hintChannel = "check the channel's id, and invite the app into the channel"
	hintArchive = "configure another channel, or bring this one back"
	hintWebhook = "make a new incoming webhook and put its URL where the configuration says; it is read anew for each message"
	hintUnknown = "look the word up at https://docs.slack.dev/reference/methods/chat.postMessage"
)

var hints = map[string]string{
	"invalid_auth": hintToken, "not_authed": hintToken, "token_revoked": hintToken, "token_expired": hintToken, "account_inactive": hintToken,
	"channel_not_found": hintChannel, "not_in_channel": hintChannel, "is_archived": hintArchive, "channel_is_archived": hintArchive,
	"invalid_token": hintWebhook, "no_service": hintWebhook, "no_service_id": hintWebhook, "no_team": hintWebhook, "team_disabled": hintWebhook,
	"action_prohibited": "an administrator of the workspace has to allow posts to this channel",
}

// plainWords are the words that Slack answers a webhook with, as plain text and a
// status that is not 200. Any other text is somebody else's: a proxy's, a
// firewall's, a login page's.
// https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks#handling_errors
var plainWords = map[string]bool{
	"invalid_payload": true, "invalid_blocks": true, "invalid_attachments": true, "no_text": true, "too_many_attachments": true, "msg_too_long": true,
	"user_not_found": true, "channel_not_found": true, "channel_is_archived": true, "action_prohibited": true, "restricted_action": true,
	"posting_to_general_channel_denied": true, "team_disabled": true, "no_service": true, "no_service_id": true, "no_team": true,
	"invalid_token": true, "no_active_hooks": true, "rate_limited": true, "ratelimited": true,
}

// judge turns what slack-go returned into what the outbox acts on. Only Slack's
// own words can refuse a message: what stands between us and Slack may answer
// anything, and be gone in a minute.
func (x *exchange) judge(err error) error {
	var api slack.SlackErrorResponse
	switch {
	case err == nil:
		return nil
	case x.status == http.StatusTooManyRequests:
		return x.wait()
	case errors.As(err, &api):
		if !wordPattern.MatchString(api.Err) {
			return x.notSlack()
		}
		return x.byWord(api.Err, api.Needed)
	case x.status == 0 || x.status == http.StatusOK:
		return x.reachError(err)
	case x.status >= 500 || x.status == http.StatusRequestTimeout:
		return fmt.Errorf("no good answer from Slack: %s", x.word())
	}
	if word, needed := x.said(); word != "" {
		return x.byWord(word, needed)
	}
	return x.notSlack()
}

// notSlack says that the answer cannot be Slack's. It is an error that passes.
func (x *exchange) notSlack() error {
	return fmt.Errorf("not Slack but something between us and Slack answered (HTTP status %d): check the proxy, the firewall and the configured URL", x.status)
}

// wait reads how long Slack wants to be left alone.
func (x *exchange) wait() error {
	wait := defaultWait
	if s, err := strconv.Atoi(x.retry); err == nil && s >= 0 {
		wait = min(time.Duration(min(max(s, 1), 1<<20))*time.Second, longestWait)
	}
	return &alerting.Wait{For: wait}
}

var scopes = regexp.MustCompile(`^[a-z:.,_]{1,100}$`)

func (x *exchange) byWord(word, needed string) error {
	switch verdicts[word] {
	case content:
		return &contentError{word}
	case gone:
		return fmt.Errorf("%w: %s", errGone, word)
	case transient:
		return fmt.Errorf("no good answer from Slack: %s", word)
	case limited:
		return x.wait()
	}
	hint := hints[word]
	if word == "missing_scope" {
		hint = "give the app the scope that it needs and install it again"
		if scopes.MatchString(needed) {
			hint = "give the app the scope " + needed + " and install it again"
		}
	}
	if hint == "" {
		hint = hintUnknown
	}
	return &alerting.Refusal{Reason: word, Hint: hint}
}
