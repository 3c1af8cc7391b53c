package slack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/slack-go/slack"

	"gpuvigil/alerting"
	"gpuvigil/detect"
)

// WebhookConfig is how a Webhook reaches Slack. URL and Log are required.
type WebhookConfig struct {
	URL       Secret
	Transport http.RoundTripper // nil means a transport of its own with the environment's proxies
	Log       *slog.Logger
}

// Webhook posts to the one channel of an incoming webhook.
type Webhook struct{ cfg WebhookConfig }

var _ alerting.Notifier = (*Webhook)(nil)

// NewWebhook checks the configuration and reads the URL once.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	if cfg.Transport == nil {
		cfg.Transport = newTransport()
	}
	w := &Webhook{cfg}
	_, err := w.url()
	return w, err
}

// Check reports whether the URL can be one. Whether Slack knows it only a message
// can tell.
func (w *Webhook) Check(context.Context) (string, error) {
	u, err := w.url()
	if err != nil {
		return "", err
	}
	return "webhook at " + u.Host + " (not asked: a webhook can only be tried by posting)", nil
}

// Fingerprint is another once the URL is; empty if it cannot be read.
func (w *Webhook) Fingerprint() string { return alerting.Fingerprint(w.cfg.URL()) }

// url reads the webhook's URL. Its errors say nothing of what was read.
func (w *Webhook) url() (*url.URL, error) {
	secret, err := w.cfg.URL()
	if err != nil {
		return nil, fmt.Errorf("read the URL of the Slack webhook: %w", err)
	}
	u, err := url.Parse(strings.TrimSpace(secret))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the URL of the Slack webhook is not one: it looks like https://hooks.slack.com/services/…")
	}
	return u, nil
}

// Notify posts the incident if the channel does not know yet what it says: that
// it began, that it got worse, that it is over. ref says what the channel knows.
func (w *Webhook) Notify(ctx context.Context, m alerting.Message, ref string) (string, error) {
	now := string(m.Incident.State) + "/" + m.Incident.Severity.String()
	if !worthSaying(&m, ref) {
		return ref, nil
	}
	u, err := w.url()
	if err != nil {
		return "", err
	}
	text := alerting.Render(m)
	if m.Ring != "" {
		text.Lines = append([]alerting.Line{{Label: "Again", Text: m.Ring}}, text.Lines...)
	}
	if m.Incident.State == detect.Resolved && ref != "" {
		text = short(text)
	}
	set := slack.Blocks{BlockSet: blocks(text)}
	err = w.post(ctx, u, &slack.WebhookMessage{Text: summary(text), Blocks: &set})
	var content *contentError
	if errors.As(err, &content) {
		w.cfg.Log.Warn("Slack does not take the message's form, it is sent as plain text", "incident", m.Incident.ID, "reason", content.reason)
		err = refuseContent(w.post(ctx, u, &slack.WebhookMessage{Text: plain(text)}))
	}
	if err != nil {
		return "", err
	}
	return now, nil
}

// worthSaying compares an incident with what the channel knows of it.
func worthSaying(m *alerting.Message, ref string) bool {
	state, _, _ := strings.Cut(ref, "/")
	return ref == "" || detect.State(state) != m.Incident.State || m.Ring != ""
}

// short keeps of the end of an incident what the channel does not know.
func short(t alerting.Text) alerting.Text {
	lines := t.Lines
	t.Lines = nil
	for _, l := range lines {
		if l.Label == "Lasted" || l.Label == "Cost" || l.Label == "Lost" {
			t.Lines = append(t.Lines, l)
		}
	}
	return t
}

func (w *Webhook) post(ctx context.Context, u *url.URL, msg *slack.WebhookMessage) error {
	no := false
	msg.Parse, msg.UnfurlLinks, msg.UnfurlMedia = "none", &no, &no
	x := &exchange{base: w.cfg.Transport, secrets: secretsOf(u), keepBody: true}
	err := slack.PostWebhookCustomHTTPContext(ctx, u.String(), x.client(), msg)
	if err == nil && x.body != "ok" {
		err = x.notSlack()
	}
	if err := x.judge(err); err != nil {
		return fmt.Errorf("post to the Slack webhook: %w", err)
	}
	return nil
}

// secretsOf returns the parts of a URL that nobody may see.
func secretsOf(u *url.URL) []string {
	password, _ := u.User.Password()
	return []string{u.String(), u.Path, u.EscapedPath(), u.RawQuery, u.User.Username(), password}
}
