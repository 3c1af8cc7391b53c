// Package webhook tells incidents to any HTTP server, in the form in which Alertmanager
// tells its webhook receivers of alerts (version 4), signed as Standard Webhooks has it
// (https://www.standardwebhooks.com), so that receivers that exist understand and
// verify it.
//
// An incident is one alert in a group of its own. No error and no log line holds the
// URL, which may be a secret, or a key.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alert"
	"gpuvigil/alerting/post"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

const version = "4" // of the payload

// Config is how a Webhook reaches its server. Name and URL are required.
type Config struct {
	Name    string
	URL     post.Secret
	Key     post.Secret // signs each message; several lines are several keys; nil: messages are not signed
	Server  post.Config // credentials and certificates
	Options alert.Options
	// ExternalURL is where people find the one who tells; it may be empty.
	ExternalURL string
}

// Webhook posts to one server.
type Webhook struct {
	cfg    Config
	client *post.Client
}

var _ alerting.Notifier = (*Webhook)(nil)

// New checks the configuration and reads each secret once.
func New(cfg Config) (*Webhook, error) {
	client, err := post.New(cfg.Server)
	if err != nil {
		return nil, err
	}
	w := &Webhook{cfg, client}
	if _, err := w.url(); err != nil {
		return nil, err
	}
	_, err = w.keys()
	return w, err
}

// Check reports whether the URL can be one. Whether its server takes messages only a
// message can tell.
func (w *Webhook) Check(context.Context) (string, error) {
	u, err := w.url()
	if err != nil {
		return "", err
	}
	signed := "signed"
	if w.cfg.Key == nil {
		signed = "not signed"
	}
	return "webhook at " + u.Host + ", " + signed + " (not asked: a webhook can only be tried by posting)", nil
}

// Fingerprint is another once the URL or a credential is; empty if one cannot be read.
func (w *Webhook) Fingerprint() string {
	at, credentials := alerting.Fingerprint(w.cfg.URL()), w.client.Fingerprint()
	if at == "" || credentials == "" {
		return ""
	}
	return at + credentials
}

// url reads the webhook's URL. Its errors say nothing of what was read.
func (w *Webhook) url() (*url.URL, error) {
	secret, err := w.cfg.URL()
	if err != nil {
		return nil, fmt.Errorf("read the URL of the webhook: %w", err)
	}
	u, err := url.Parse(strings.TrimSpace(secret))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the URL of the webhook is not one (not shown, it may be secret): it begins with https:// or http://")
	}
	return u, nil
}

// Payload is what is posted: the message of Alertmanager's webhook receivers.
// https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
type Payload struct {
	Version           string         `json:"version"`
	GroupKey          string         `json:"groupKey"` // the same for all messages about an incident
	TruncatedAlerts   uint64         `json:"truncatedAlerts"`
	Status            string         `json:"status"` // firing or resolved
	Receiver          string         `json:"receiver"`
	Reason            string         `json:"notification_reason"` // of Alertmanager 0.35 and later
	RouteLabels       model.LabelSet `json:"routeLabels"`         // likewise; we have none
	GroupLabels       model.LabelSet `json:"groupLabels"`
	CommonLabels      model.LabelSet `json:"commonLabels"`
	CommonAnnotations model.LabelSet `json:"commonAnnotations"`
	ExternalURL       string         `json:"externalURL"`
	Alerts            []Alert        `json:"alerts"`
}

// Alert is one alert of a Payload.
type Alert struct {
	Status       string         `json:"status"`
	Labels       model.LabelSet `json:"labels"`
	Annotations  model.LabelSet `json:"annotations"`
	StartsAt     time.Time      `json:"startsAt"`
	EndsAt       time.Time      `json:"endsAt"` // the zero time while it fires
	GeneratorURL string         `json:"generatorURL"`
	Fingerprint  string         `json:"fingerprint"` // of the labels, as Alertmanager makes it
}

// Notify posts the incident as it is now. ref is the severity that the server knows it
// by.
func (w *Webhook) Notify(ctx context.Context, m alerting.Message, ref string) (string, error) {
	u, err := w.url()
	if err != nil {
		return "", err
	}
	payload, told := w.payload(m, ref)
	body, err := json.Marshal(payload)
	if err != nil {
		return "", fmt.Errorf("put a message into JSON: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if err := w.sign(header, messageID(&m), time.Now(), body); err != nil {
		return "", err
	}
	answer, err := w.client.Do(ctx, http.MethodPost, u.String(), header, body)
	if err == nil {
		err = answer.Judge(time.Now())
	}
	if err != nil {
		return "", fmt.Errorf("post to the webhook at %s: %w", u.Host, err)
	}
	return told, nil
}

// messageID is the same each time the same is posted: this state of an incident, with
// what a person said of it, for the same time that it calls.
func messageID(m *alerting.Message) string {
	id := m.Incident.ID + "-" + strconv.FormatInt(m.Incident.Updated.UnixNano(), 10)
	if m.Mark != nil {
		id += "-m" + strconv.FormatInt(m.Mark.At.UnixNano(), 10)
	}
	if m.Rung > 0 {
		id += "-r" + strconv.Itoa(m.Rung)
	}
	return id
}

// payload returns what to post, and the severity that the server then knows the
// incident by. An incident that got worse is another alert: the one before ends.
func (w *Webhook) payload(m alerting.Message, ref string) (*Payload, string) {
	now := alert.Of(m, w.cfg.Options)
	known, err := rules.ParseSeverity(ref)
	changed := err == nil && known != m.Incident.Severity
	told := []alert.Alert{now}
	severity := m.Incident.Severity
	switch {
	case changed && m.Incident.State == detect.Resolved:
		told, severity = []alert.Alert{now.As(known)}, known
	case changed:
		before := now.As(known)
		before.EndsAt = m.Incident.Updated
		told = append(told, before)
	}
	p := &Payload{
		Version: version, GroupKey: "{}:" + now.Identity().String(), Status: status(told[0]), Receiver: w.cfg.Name,
		Reason: reason(status(told[0]), ref, changed), RouteLabels: model.LabelSet{},
		GroupLabels: now.Identity(), CommonLabels: told[0].Labels, CommonAnnotations: now.Annotations, ExternalURL: w.cfg.ExternalURL,
	}
	if len(told) > 1 {
		p.CommonLabels = now.Identity()
	}
	for _, a := range told {
		p.Alerts = append(p.Alerts, Alert{
			Status: status(a), Labels: a.Labels, Annotations: a.Annotations, StartsAt: a.StartsAt, EndsAt: a.EndsAt,
			GeneratorURL: a.GeneratorURL, Fingerprint: a.Labels.Fingerprint().String(),
		})
	}
	return p, severity.String()
}

// reason says in Alertmanager's words why it is told. For what is only known better it
// has no word.
func reason(status, ref string, worse bool) string {
	switch {
	case status == string(model.AlertResolved):
		return "all alerts resolved"
	case ref == "":
		return "first notification"
	case worse:
		return "new alerts added"
	}
	return "unknown"
}

func status(a alert.Alert) string {
	if a.EndsAt.IsZero() {
		return string(model.AlertFiring)
	}
	return string(model.AlertResolved)
}
