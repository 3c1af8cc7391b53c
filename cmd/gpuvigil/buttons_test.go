package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/alerting/slack/slacktest"
)

const buttonsChannel = "C0123456789"

// buttonsAgent runs a demo that tells a stand-in for Slack, with an app token in a file, and
// returns its state directory.
func buttonsAgent(t *testing.T, s *slacktest.Server, app bool) (state string) {
	t.Helper()
	dir := t.TempDir()
	for name, secret := range map[string]string{"token": slacktest.Token, "app": slacktest.AppToken} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	more := ""
	if app {
		more = ", app_token_file: " + filepath.Join(dir, "app")
	}
	cfg := file(t, `
alerting:
  slack:
  - {name: oncall, channel: `+buttonsChannel+`, token_file: `+filepath.Join(dir, "token")+`, api_url: "`+s.APIURL()+`"`+more+`}
  - {name: second, channel: C0123456780, token_file: `+filepath.Join(dir, "token")+`, api_url: "`+s.APIURL()+`"`+more+`, min_severity: page}
`)
	t.Cleanup(s.Close)
	return startDemo(t, cfg)
}

func buttonsEventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after two minutes it is not so that %s", what)
		}
	}
}

// drillIn returns the drill's message in the channel, once there is one with such words.
func drillIn(t *testing.T, s *slacktest.Server, words string) (m slacktest.Message) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the drill's message is %+v", s.Messages(buttonsChannel))
		}
	}()
	buttonsEventually(t, "the drill's message says "+words, func() bool {
		for _, m = range s.Messages(buttonsChannel) {
			if strings.Contains(m.Text, "DRILL") && strings.Contains(string(m.Blocks), words) {
				return true
			}
		}
		return false
	})
	return m
}

func TestAButtonInSlackIsAnAckOfTheAgent(t *testing.T) {
	s := slacktest.New()
	dir := buttonsAgent(t, s, true)
	state := "--state.dir=" + dir
	tellingSoon(t, "drill", "gpu_lost", "--gpu=3", "--for=1h", state)
	buttonsEventually(t, "somebody listens for buttons", func() bool { return s.Connections() == 1 })
	m := drillIn(t, s, "Snooze 2 h")
	press := func(m slacktest.Message, action string) {
		t.Helper()
		k := slices.IndexFunc(m.Buttons(), func(b slacktest.Button) bool { return b.Action == action })
		if k < 0 {
			t.Fatalf("there is no button %s, there are %+v", action, m.Buttons())
		}
		if _, err := s.Press(buttonsChannel, m, m.Buttons()[k], "<!here> ana"); err != nil {
			t.Fatal(err)
		}
	}
	press(m, "gpuvigil_ack")
	acked := drillIn(t, s, "acknowledged by \\u0026lt;!here\\u0026gt; ana in Slack")
	if status := tellingSoon(t, "unack", "drill-", "--by=ana", state); !strings.Contains(status, "nothing is said") {
		t.Errorf("unack says %s", status)
	}
	m = drillIn(t, s, "Snooze 2 h")
	press(acked, "gpuvigil_unack") // of a message that was not drawn anew yet
	press(m, "gpuvigil_snooze")
	drillIn(t, s, "snoozed by")
	press(slacktest.Message{Blocks: []byte(strings.ReplaceAll(string(m.Blocks), "drill-", "gone-"))}, "gpuvigil_ack")
	buttonsEventually(t, "who acknowledges what is not there is told so", func() bool {
		return len(s.Whispers()) == 1 && strings.Contains(s.Whispers()[0].Text, "no incident that fires is called")
	})
	if n := s.Connections(); n != 1 {
		t.Errorf("two channels of one app are listened to over %d connections", n)
	}
}

func TestWithoutAnAppTokenNobodyConnectsAndNothingCanBePressed(t *testing.T) {
	s := slacktest.New()
	state := "--state.dir=" + buttonsAgent(t, s, false)
	tellingSoon(t, "drill", "gpu_lost", "--gpu=3", "--for=1h", state)
	if m := drillIn(t, s, "DRILL"); len(m.Buttons()) > 0 {
		t.Errorf("there are the buttons %+v", m.Buttons())
	}
	for _, r := range s.Requests() {
		if r.Method == "apps.connections.open" {
			t.Error("a connection for buttons is opened")
		}
	}
}
