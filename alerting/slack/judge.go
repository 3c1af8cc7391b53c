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
// permanent. https://docs.slack.dev/reference/methods/chat.postMessage#errors
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
	"redirected":        "the answer came from another server; check api_url, the webhook's URL and the proxy",
}

// judge turns what slack-go returned into what the outbox acts on.
func (x *exchange) judge(err error) error {
	var api slack.SlackErrorResponse
	switch {
	case err == nil:
		return nil
	case x.status == http.StatusTooManyRequests:
		return x.wait()
	case errors.As(err, &api):
		return x.byWord(api.Err, api.Needed)
	case x.status == 0 || x.status == http.StatusOK:
		return x.reachError(err)
	case x.status >= 500 || x.status == http.StatusRequestTimeout:
		return fmt.Errorf("no good answer from Slack: %s", x.word())
	case x.status < 400:
		return &alerting.Refusal{Reason: "redirected", Hint: hints["redirected"]}
	case x.status == http.StatusBadRequest:
		return &contentError{x.word()}
	default:
		return x.byWord(x.word(), "")
	}
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
	if !wordPattern.MatchString(word) {
		word = "unknown_error"
	}
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
