package config

import (
	"strings"
	"testing"
	"time"
)

const goodTargets = `
alerting:
  slack:
  - {name: oncall, webhook_url_env: HOOK}
  alertmanager:
  - name: am
    urls: ['http://am-0:9093/prefix', 'https://am-1:9093']
    labels: {environment: production}
  webhook:
  - {name: automation, url: 'https://h/x', signing_key_file: /etc/key, min_severity: info, bearer_token_env: TOKEN}
  heartbeat: {alertmanager: true, receivers: {oncall: 24h, automation: 5m}}
`

func TestTargets(t *testing.T) {
	c, err := Parse("gpuvigil.yml", []byte(goodTargets))
	if err != nil {
		t.Fatal(err)
	}
	am, hook := c.Alerting.Alertmanager[0], c.Alerting.Webhook[0]
	if len(am.URLs) != 2 || time.Duration(am.Resend) != time.Minute || time.Duration(*am.ReadBack) != 15*time.Second || am.MinSeverity.String() != "ticket" || time.Duration(am.Timeout) != 10*time.Second {
		t.Errorf("an Alertmanager is read as %+v", am)
	}
	if hook.URL != "https://h/x" || hook.MinSeverity.String() != "info" || hook.BearerTokenEnv != "TOKEN" || time.Duration(hook.Timeout) != 10*time.Second {
		t.Errorf("a webhook is read as %+v", hook)
	}
	if h := c.Alerting.Heartbeat; !h.Alertmanager || time.Duration(h.Receivers["automation"]) != 5*time.Minute {
		t.Errorf("the heartbeat is read as %+v", h)
	}
	off, err := Parse("gpuvigil.yml", []byte("alerting: {alertmanager: [{name: a, urls: ['http://h'], read_back: 0s}]}"))
	if err != nil || *off.Alerting.Alertmanager[0].ReadBack != 0 {
		t.Errorf("reading back that is switched off is read as %v, %v", off, err)
	}
}

func TestTargetsThatCannotWork(t *testing.T) {
	am := func(more string) string {
		return "alerting: {alertmanager: [{name: a, urls: ['https://h'], " + more + "}]}"
	}
	hook := func(more string) string { return "alerting: {webhook: [{name: a, url: 'https://h', " + more + "}]}" }
	for text, want := range map[string]string{
		"alerting: {alertmanager: [{urls: ['http://h']}]}":                                          "alertmanager[0].name: is missing",
		"alerting: {alertmanager: [{name: a}]}":                                                     "urls: found 0",
		"alerting: {alertmanager: [{name: a, urls: ['xoxb-hunter2']}]}":                             "urls[0]: is not a URL",
		"alerting: {alertmanager: [{name: a, urls: ['http://u:hunter2@h']}]}":                       "urls[0]: holds a user",
		"alerting: {alertmanager: [{name: a, urls: ['http://169.254.169.254']}]}":                   "link-local",
		"alerting: {alertmanager: [{name: a, urls: ['http://h', 'http://h']}]}":                     "a second time",
		"alerting: {alertmanager: [{name: a/b, urls: ['http://h']}]}":                               "without a slash",
		"alerting: {alertmanager: [{name: a, urls: ['http://h'], tls: {ca_file: /ca}}]}":            "only with https",
		"alerting: {slack: [{name: a, webhook_url_env: H}], webhook: [{name: a, url: 'http://h'}]}": "a second time",
		am("resend: 1h"):                                 "resend",
		am("read_back: 10ms"):                            "read_back",
		am("labels: {severity: x}"):                      "each alert has already",
		am("labels: {'a-b': x}"):                         "letters, digits and underscores",
		am("labels: {a: ''}"):                            "labels.a",
		am("timeout: 1m"):                                "timeout",
		am("bearer_token_env: xoxb-hunter2"):             "not the name of an environment variable",
		am("bearer_token_file: /t, password_file: /p"):   "found 2 of bearer_token_file",
		am("username: u"):                                "username",
		am("tls: {cert_file: /c}"):                       "cert_file and key_file",
		am("tls: {insecure: true, ca_file: /c}"):         "insecure and ca_file",
		"alerting: {webhook: [{name: a}]}":               "found 0 of url, url_file, url_env",
		hook("url_env: H"):                               "found 2 of url",
		hook("signing_key_file: /k, signing_key_env: K"): "signing_key_file and signing_key_env",
		hook("signing_key_file: 'https://hunter2'"):      "not shown",
		"alerting: {heartbeat: {alertmanager: true}}":    "no target",
		"alerting: {heartbeat: {receivers: {x: 1h}}}":    "allowed: none, as no receiver is given",
		goodTargets + "  x: 1\n":                         "unknown key",
		strings.Replace(goodTargets, "24h", "10s", 1):    "1m to 30d",
	} {
		_, err := Parse("gpuvigil.yml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: it says %v, want it to say %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a secret: %v", text, err)
		}
	}
}
