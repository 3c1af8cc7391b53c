package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/internal/fakenvml"
)

// TestSlackDown has a GPU fail while Slack cannot be reached and the agent then
// crash: what there was to say is said once Slack is back, and said once.
func TestSlackDown(t *testing.T) {
	t.Parallel()
	slack := slacktest.New()
	t.Cleanup(slack.Close)
	slack.SetDown(true)
	d := newDriver(t, 4)
	webhook := write(t, "webhook", slack.WebhookURL())
	o := options{
		config: quick + slackConfig(slack, write(t, "token", slacktest.Token)) + fmt.Sprintf("  - {name: hook, webhook_url_file: %s}\n", webhook),
		state:  filepath.Join(shortDir(t), "state"),
	}
	a := d.start(o)
	a.ready(t)
	d.Event(fakenvml.GPU(1), xidEvents, 48)
	d.show()
	a.awaits(t, "the messages wait for Slack, and are tried again", func(m metrics) error {
		var errs []error
		for _, receiver := range []string{"oncall", "hook"} {
			errs = append(errs, m.expect(1, "vigil_outbox_messages", "receiver", receiver))
			if n := m.value("vigil_notifications_total", "receiver", receiver, "result", "retried"); !(n > 1) {
				errs = append(errs, fmt.Errorf("%s was retried %v times", receiver, n))
			}
		}
		return errors.Join(errs...)
	})
	a.kill()
	b := d.start(o)
	b.ready(t)
	slack.SetDown(false)
	m := b.awaits(t, "the messages are sent once Slack is back", func(m metrics) error {
		return errors.Join(m.expect(0, "vigil_outbox_messages", "receiver", "oncall"), m.expect(0, "vigil_outbox_messages", "receiver", "hook"))
	})
	if n := m.sum("vigil_notifications_total", "result", "refused"); n != 0 {
		t.Errorf("%v messages were given up because Slack was down", n)
	}
	for _, c := range []string{channel, slacktest.WebhookChannel} {
		if all := slack.Messages(c); len(all) != 1 || !strings.Contains(all[0].Text, "Xid 48") {
			t.Errorf("in channel %s stand %d messages, want one of Xid 48: %+v", c, len(all), all)
		}
	}
	for _, log := range []string{a.log.String(), b.log.String()} {
		for _, secret := range []string{slacktest.Token, filepath.Base(slack.WebhookURL())} {
			if strings.Contains(log, secret) {
				t.Errorf("the log holds the secret %s", secret)
			}
		}
	}
}
