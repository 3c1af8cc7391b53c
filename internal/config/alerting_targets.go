package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/rules"
)

// Alertmanager is one cluster of Alertmanagers, each of which is told everything.
type Alertmanager struct {
	Name        string            `yaml:"name"`
	URLs        []string          `yaml:"urls"`
	Resend      Duration          `yaml:"resend" in:"1s..10m"`                // how often what fires is repeated, 1m if not given; it ends there after four of it
	ReadBack    *Duration         `yaml:"read_back" in:"1s..1h" zero:"never"` // how often silences and inhibitions are read, 15s if not given; 0s: never
	Labels      map[string]string `yaml:"labels"`                             // added to each alert
	MinSeverity *rules.Severity   `yaml:"min_severity"`                       // what is below is not sent; ticket if not given
	Server
}

// Webhook is a server that is posted what Alertmanager posts to its webhook receivers.
type Webhook struct {
	Name        string            `yaml:"name"`
	URL         string            `yaml:"url"`
	URLFile     string            `yaml:"url_file"` // instead, where the URL is a secret
	URLEnv      string            `yaml:"url_env"`
	KeyFile     string            `yaml:"signing_key_file"` // a key on each line signs each message
	KeyEnv      string            `yaml:"signing_key_env"`
	Labels      map[string]string `yaml:"labels"`       // added to each alert
	MinSeverity *rules.Severity   `yaml:"min_severity"` // what is below is not sent; ticket if not given
	Server
}

// Server is how a server that alerts are sent to is trusted, and what makes it listen.
type Server struct {
	Timeout         Duration  `yaml:"timeout" in:"100ms..15s"`
	BearerTokenFile string    `yaml:"bearer_token_file"`
	BearerTokenEnv  string    `yaml:"bearer_token_env"`
	Username        string    `yaml:"username"` // of basic authentication
	PasswordFile    string    `yaml:"password_file"`
	PasswordEnv     string    `yaml:"password_env"`
	TLS             ServerTLS `yaml:"tls"`
}

// ServerTLS is how a server is trusted, and the certificate that it is shown.
type ServerTLS struct {
	CAFile     string `yaml:"ca_file"`     // certificates that are trusted instead of the system's
	ServerName string `yaml:"server_name"` // that the certificate must be for; empty: the URL's host
	Insecure   bool   `yaml:"insecure"`    // any certificate will do
	CertFile   string `yaml:"cert_file"`   // client certificate
	KeyFile    string `yaml:"key_file"`    // and its key
}

// Heartbeat is who is told that somebody watches, so that silence is noticed.
type Heartbeat struct {
	Alertmanager bool                `yaml:"alertmanager"`           // an alert VigilWatchdog always fires there
	Receivers    map[string]Duration `yaml:"receivers" in:"1m..30d"` // names of receivers, and how often each gets a message
}

const (
	defaultResend   = Duration(time.Minute)
	defaultReadBack = Duration(15 * time.Second)
	defaultTimeout  = Duration(10 * time.Second)

	maxAlertmanagers = 16
	maxLabels        = 16
)

// ownLabels are those that an alert has anyway.
var ownLabels = []string{"alertname", "cause", "cluster", "drill", "gpu", "node", "rule", "severity", "simulated", "source", "subject", "team"}

// complete gives targets what the file leaves out.
func (a *Alerting) complete() {
	ticket := rules.Ticket
	for i := range a.Alertmanager {
		t := &a.Alertmanager[i]
		if t.MinSeverity == nil {
			t.MinSeverity = &ticket
		}
		t.Resend, t.Timeout = orElse(t.Resend, defaultResend), orElse(t.Timeout, defaultTimeout)
		if t.ReadBack == nil {
			every := defaultReadBack
			t.ReadBack = &every
		}
	}
	for i := range a.Webhook {
		t := &a.Webhook[i]
		if t.MinSeverity == nil {
			t.MinSeverity = &ticket
		}
		t.Timeout = orElse(t.Timeout, defaultTimeout)
	}
}

func orElse(d, otherwise Duration) Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

type failing = func(key, format string, args ...any)

func (c *Config) checkTargets(fail failing) {
	names := map[string]bool{}
	for _, s := range c.Alerting.Slack {
		names[s.Name] = true
	}
	told := maps.Clone(names)
	name := func(key, name string) {
		switch {
		case name == "":
			fail(key+".name", "is missing, allowed: a name of its own for each receiver, as it is a label in metrics")
		case !plainName(name) || strings.Contains(name, "/"):
			fail(key+".name", "found %q, allowed: a name of at most %d characters without a slash", clean(name), maxName)
		case names[name]:
			fail(key+".name", "found %q a second time, allowed: a name of its own for each receiver", clean(name))
		}
		names[name] = true
	}
	for i := range c.Alerting.Alertmanager {
		t, key := &c.Alerting.Alertmanager[i], fmt.Sprintf("alerting.alertmanager[%d]", i)
		name(key, t.Name)
		t.check(key, fail)
	}
	for i := range c.Alerting.Webhook {
		t, key := &c.Alerting.Webhook[i], fmt.Sprintf("alerting.webhook[%d]", i)
		name(key, t.Name)
		told[t.Name] = true
		t.check(key, fail)
	}
	c.Alerting.Heartbeat.check(told, len(c.Alerting.Alertmanager) > 0, fail)
}

func (t *Alertmanager) check(key string, fail failing) {
	if len(t.URLs) == 0 || len(t.URLs) > maxAlertmanagers {
		fail(key+".urls", "found %d, allowed: 1 to %d URLs, such as http://alertmanager:9093", len(t.URLs), maxAlertmanagers)
	}
	secure := true
	seen := map[string]bool{}
	for i, u := range t.URLs {
		at := fmt.Sprintf("%s.urls[%d]", key, i)
		checkURL(u, at, true, fail)
		checkTarget(u, at, fail)
		secure = secure && strings.HasPrefix(u, "https://")
		if seen[u] {
			fail(at, "found the same URL a second time, allowed: one for each Alertmanager")
		}
		seen[u] = true
	}
	checkAlertLabels(t.Labels, key+".labels", fail)
	t.Server.check(key, secure, fail)
}

func (t *Webhook) check(key string, fail failing) {
	if n := given(t.URL, t.URLFile, t.URLEnv); n != 1 {
		fail(key, "found %d of url, url_file, url_env, allowed: exactly one", n)
	}
	checkURL(t.URL, key+".url", false, fail)
	checkTarget(t.URL, key+".url", fail)
	checkSecretFile(t.URLFile, key+".url_file", fail)
	checkSecretEnv(t.URLEnv, key+".url_env", fail)
	if given(t.KeyFile, t.KeyEnv) > 1 {
		fail(key, "found both signing_key_file and signing_key_env, allowed: one of them")
	}
	checkSecretFile(t.KeyFile, key+".signing_key_file", fail)
	checkSecretEnv(t.KeyEnv, key+".signing_key_env", fail)
	checkAlertLabels(t.Labels, key+".labels", fail)
	t.Server.check(key, !strings.HasPrefix(t.URL, "http://"), fail)
}

func (s *Server) check(key string, secure bool, fail failing) {
	checkSecretFile(s.BearerTokenFile, key+".bearer_token_file", fail)
	checkSecretEnv(s.BearerTokenEnv, key+".bearer_token_env", fail)
	checkSecretFile(s.PasswordFile, key+".password_file", fail)
	checkSecretEnv(s.PasswordEnv, key+".password_env", fail)
	if ways := given(s.BearerTokenFile, s.BearerTokenEnv, s.PasswordFile, s.PasswordEnv); ways > 1 {
		fail(key, "found %d of bearer_token_file, bearer_token_env, password_file, password_env, allowed: one of them", ways)
	}
	if (s.Username != "") != (s.PasswordFile != "" || s.PasswordEnv != "") {
		fail(key+".username", "found one of username and a password, allowed: username with password_file or password_env, or none of them")
	}
	if s.TLS != (ServerTLS{}) && !secure {
		fail(key+".tls", "found beside a URL that begins with http://, allowed: only with https://")
	}
	if s.TLS.Insecure && s.TLS.CAFile != "" {
		fail(key+".tls", "found both insecure and ca_file, allowed: one of them")
	}
	if (s.TLS.CertFile != "") != (s.TLS.KeyFile != "") {
		fail(key+".tls", "found one of cert_file and key_file, allowed: both or none")
	}
}

// checkAlertLabels refuses labels that Alertmanager would, and those that would make alerts
// look like others.
func checkAlertLabels(labels map[string]string, key string, fail failing) {
	if len(labels) > maxLabels {
		fail(key, "found %d labels, allowed: at most %d", len(labels), maxLabels)
	}
	for name, value := range labels {
		switch {
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, "__"):
			fail(key, "found a label that is named %q, allowed: letters, digits and underscores", clean(name))
		case slices.Contains(ownLabels, name):
			fail(key+"."+name, "found a label that each alert has already, allowed: others than %s", strings.Join(ownLabels, ", "))
		case value == "" || !plainName(value):
			fail(key+"."+name, "found %q, allowed: a text of at most %d characters in one line", clean(value), maxName)
		}
	}
}

func (h *Heartbeat) check(told map[string]bool, alertmanager bool, fail failing) {
	if h.Alertmanager && !alertmanager {
		fail("alerting.heartbeat.alertmanager", "found true, allowed: false, as alerting.alertmanager has no target")
	}
	for name := range h.Receivers {
		if !told[name] {
			fail("alerting.heartbeat.receivers."+clean(name), "found %q, allowed: %s", clean(name), orNone(sorted(told), "", "none, as no receiver is given under alerting.slack or alerting.webhook"))
		}
	}
}
