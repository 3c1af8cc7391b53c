package slack_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/slack"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

const channel = "C0000000001"

func fixed(s string) slack.Secret { return func() (string, error) { return s, nil } }

// journal is a log that may be read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func standIn(t testing.TB) *slacktest.Server {
	s := slacktest.New()
	t.Cleanup(s.Close)
	return s
}

func bot(t testing.TB, s *slacktest.Server, log *journal) *slack.Bot {
	t.Helper()
	b, err := slack.NewBot(slack.BotConfig{Token: fixed(slacktest.Token), Channel: channel, APIURL: s.APIURL(), Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func webhook(t testing.TB, s *slacktest.Server, log *journal) *slack.Webhook {
	t.Helper()
	w, err := slack.NewWebhook(slack.WebhookConfig{URL: fixed(s.WebhookURL()), Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// noSecret fails the test if the token or a part of the webhook's URL that opens
// it is in a text.
func noSecret(t *testing.T, where, text string) {
	t.Helper()
	for _, secret := range []string{slacktest.Token, "T0000000000", "B0000000000", "abcdefghijkl"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds the secret %q: %s", where, secret, text)
		}
	}
}

func recorded(t *testing.T, file string) slacktest.Answer {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return slacktest.Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
}

// TestEveryRecordedAnswerHasItsConsequence holds the classes of expected-slack.csv.
func TestEveryRecordedAnswerHasItsConsequence(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "expected-slack.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		file, class := row[0], row[1]
		modes := []string{"bot"}
		switch {
		case strings.HasPrefix(file, "webhook-"):
			modes = []string{"webhook"}
		case !strings.HasPrefix(file, "err-") && !strings.HasPrefix(file, "ok-"):
			modes = []string{"bot", "webhook"}
		}
		for _, mode := range modes {
			t.Run(mode+"/"+file, func(t *testing.T) { consequence(t, mode, file, class) })
		}
	}
}

func consequence(t *testing.T, mode, file, class string) {
	s, log := standIn(t), &journal{}
	m := example.Message(example.Incidents()[0])
	var n alerting.Notifier = bot(t, s, log)
	place := channel
	if mode == "webhook" {
		n, place = webhook(t, s, log), slacktest.WebhookChannel
	}
	ref := ""
	if class == "post new" {
		var err error
		if ref, err = n.Notify(t.Context(), m, ""); err != nil {
			t.Fatal(err)
		}
	}
	old := len(s.Requests())
	s.Answer("", recorded(t, file))
	newRef, err := n.Notify(t.Context(), m, ref)
	if err != nil {
		noSecret(t, "the error", err.Error())
	}
	noSecret(t, "the log", log.String())
	calls, stands := len(s.Requests())-old, s.Messages(place)

	var refusal *alerting.Refusal
	var wait *alerting.Wait
	refused, waits := errors.As(err, &refusal), errors.As(err, &wait)
	switch class {
	case "ok":
		if err != nil || newRef == "" || calls != 1 {
			t.Errorf("a good answer: ref %q, %d calls, %v", newRef, calls, err)
		}
	case "permanent":
		if !refused || refusal.Content || refusal.Hint == "" || calls != 1 {
			t.Errorf("must be given up with a hint after 1 call: %d calls, %v", calls, err)
		}
		if reason := strings.TrimSuffix(file[strings.Index(file, "-")+1:], ".http"); refused && refusal.Reason != reason {
			t.Errorf("the reason is %q, Slack said %q", refusal.Reason, reason)
		}
	case "content":
		if err != nil || calls != 2 || len(stands) != 1 || strings.Contains(string(stands[0].Blocks), "{") {
			t.Errorf("must arrive as plain text at the second try: %d calls, %v, %+v", calls, err, stands)
		}
	case "post new":
		if err != nil || calls != 2 || newRef == ref || len(stands) != 2 {
			t.Errorf("must be posted anew: %d calls, %v", calls, err)
		}
	case "rate limited":
		if !waits || wait.For != time.Second || calls != 1 {
			t.Errorf("must wait for 1 s: %v", err)
		}
	case "transient":
		if err == nil || refused || waits || calls != 1 {
			t.Errorf("must be left to a later try: %v", err)
		}
	default:
		t.Fatalf("unknown class %q", class)
	}
}

func TestTheNeededScopeIsSaid(t *testing.T) {
	s := standIn(t)
	s.Answer("", recorded(t, "err-missing_scope.http"))
	_, err := bot(t, s, &journal{}).Notify(t.Context(), example.Message(example.Incidents()[0]), "")
	if err == nil || !strings.Contains(err.Error(), "chat:write") {
		t.Errorf("the error does not name the scope: %v", err)
	}
}

func TestContentThatIsRefusedTwiceIsGivenUp(t *testing.T) {
	for _, mode := range []string{"bot", "webhook"} {
		s, log := standIn(t), &journal{}
		var n alerting.Notifier = bot(t, s, log)
		file := "err-invalid_blocks.http"
		if mode == "webhook" {
			n, file = webhook(t, s, log), "webhook-invalid_blocks.http"
		}
		s.Answer("", recorded(t, file), recorded(t, file))
		_, err := n.Notify(t.Context(), example.Message(example.Incidents()[0]), "")
		var refusal *alerting.Refusal
		if !errors.As(err, &refusal) || !refusal.Content || refusal.Reason != "invalid_blocks" || len(s.Requests()) != 2 {
			t.Errorf("%s: %v after %d calls", mode, err, len(s.Requests()))
		}
	}
}

func TestRateLimitsInOtherForms(t *testing.T) {
	answers := map[string]slacktest.Answer{
		"30s":    {Status: 429, Body: "slow down"},
		"29s":    {Status: 429, Header: http.Header{"Retry-After": {"29"}}, Body: "slow down"},
		"1s":     {Status: 429, Header: http.Header{"Retry-After": {"0"}}},
		"30s ":   {Status: 429, Header: http.Header{"Retry-After": {"soon"}}},
		"1h0m0s": {Status: 429, Header: http.Header{"Retry-After": {"99999999999"}}},
		" 30s":   {Body: `{"ok":false,"error":"ratelimited"}`},
	}
	for want, a := range answers {
		s := standIn(t)
		s.Answer("", a)
		_, err := bot(t, s, &journal{}).Notify(t.Context(), example.Message(example.Incidents()[0]), "")
		var wait *alerting.Wait
		if !errors.As(err, &wait) || wait.For.String() != strings.TrimSpace(want) {
			t.Errorf("%+v: %v, want a wait of %s", a, err, want)
		}
	}
}

func TestOneIncidentIsOneMessage(t *testing.T) {
	s, log := standIn(t), &journal{}
	b := bot(t, s, log)
	i := example.Incidents()[0]
	ref := ""
	var err error
	for _, state := range []detect.Incident{i, i, example.Resolve(i)} {
		if ref, err = b.Notify(t.Context(), example.Message(state), ref); err != nil {
			t.Fatal(err)
		}
	}
	all := s.Messages(channel)
	if len(all) != 1 || all[0].Edits != 2 || !strings.HasPrefix(all[0].Text, "🟢 RESOLVED gpu-117/3") {
		t.Fatalf("the channel shows %+v", all)
	}
	if all[0].Metadata.EventType != "gpuvigil_incident" || all[0].Metadata.EventPayload["id"] != i.ID {
		t.Errorf("the message cannot be found again: %+v", all[0].Metadata)
	}
	s.Delete(channel, all[0].TS)
	if _, err = b.Notify(t.Context(), example.Message(i), ref); err != nil || len(s.Messages(channel)) != 1 {
		t.Errorf("somebody deleted the message, it is not posted anew: %v", err)
	}
}

func TestAMessageInDoubtIsLookedUpFirst(t *testing.T) {
	i := example.Incidents()[0]
	lost := slacktest.Answer{Done: true, Hangup: true}
	t.Run("it had arrived", func(t *testing.T) {
		s := standIn(t)
		b := bot(t, s, &journal{})
		s.Answer("chat.postMessage", lost)
		m := example.Message(i)
		if _, err := b.Notify(t.Context(), m, ""); err == nil {
			t.Fatal("a lost answer is taken for a success")
		}
		for k := range 150 { // others talk on
			other := i
			other.ID = strings.Repeat("x", k+1)
			if _, err := b.Notify(t.Context(), example.Message(other), ""); err != nil {
				t.Fatal(err)
			}
		}
		m.Doubt = true
		ref, err := bot(t, s, &journal{}).Notify(t.Context(), m, "")
		all := s.Messages(channel)
		if err != nil || !strings.HasPrefix(ref, channel+"/"+all[0].TS+"/") || len(all) != 151 || all[0].Edits != 1 {
			t.Errorf("it is not found: ref %q, %v, %d messages", ref, err, len(all))
		}
	})
	t.Run("we may not look", func(t *testing.T) {
		s, log := standIn(t), &journal{}
		s.Answer("conversations.history", recorded(t, "err-missing_scope.http"))
		m := example.Message(i)
		m.Doubt = true
		if _, err := bot(t, s, log).Notify(t.Context(), m, ""); err != nil || len(s.Messages(channel)) != 1 {
			t.Errorf("an alert is held back because the history may not be read: %v", err)
		}
		if !strings.Contains(log.String(), "channels:history") {
			t.Errorf("nobody is told how to mend it: %s", log)
		}
	})
	t.Run("Slack is busy", func(t *testing.T) {
		s := standIn(t)
		s.Answer("conversations.history", recorded(t, "429-webhook.http"))
		m := example.Message(i)
		m.Doubt = true
		_, err := bot(t, s, &journal{}).Notify(t.Context(), m, "")
		var wait *alerting.Wait
		if !errors.As(err, &wait) || len(s.Messages(channel)) != 0 {
			t.Errorf("it is posted without having looked: %v", err)
		}
	})
	t.Run("a channel's name cannot be looked up before its id is known", func(t *testing.T) {
		s, log := standIn(t), &journal{}
		b, err := slack.NewBot(slack.BotConfig{Token: fixed(slacktest.Token), Channel: "#gpu", APIURL: s.APIURL(), Log: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		m := example.Message(i)
		m.Doubt = true
		for range 2 {
			if _, err := b.Notify(t.Context(), m, ""); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.Messages("gpu")); n != 1 {
			t.Errorf("%d messages: the second time the id was known", n)
		}
	})
}

func TestAWebhookSaysTheBeginningTheWorseAndTheEnd(t *testing.T) {
	s := standIn(t)
	w := webhook(t, s, &journal{})
	i := example.Incidents()[0]
	mild := i
	mild.Severity = rules.Ticket
	ref := ""
	var said []int
	for k, state := range []detect.Incident{mild, mild, i, mild, example.Resolve(i), example.Resolve(i)} {
		var err error
		m := example.Message(state)
		if k == 2 {
			m.Ring, m.Mentions = "it got worse: page, was ticket", []string{"S0123456789", "U0123456789", "here", "<!channel>"}
		}
		if ref, err = w.Notify(t.Context(), m, ref); err != nil {
			t.Fatal(err)
		}
		said = append(said, len(s.Messages(slacktest.WebhookChannel)))
	}
	if diff := cmp.Diff([]int{1, 1, 2, 2, 3, 3}, said); diff != "" {
		t.Errorf("messages after each state (-want +got):\n%s", diff)
	}
	all := s.Messages(slacktest.WebhookChannel)
	if worse := string(all[1].Blocks); !strings.Contains(worse, `"\u003c!subteam^S0123456789\u003e \u003c@U0123456789\u003e \u003c!here\u003e"`) || !strings.Contains(worse, "*Again*  it got worse") || strings.Contains(worse, "!channel") {
		t.Errorf("a worsening does not call those whom the configuration names, or others: %s", worse)
	}
	last := string(all[2].Blocks)
	if !strings.Contains(last, "RESOLVED") || !strings.Contains(last, "Lasted") || strings.Contains(last, "How sure") {
		t.Errorf("the end is not a short message: %s", last)
	}
}

func TestSecretsAreReadAnewAndTheirAbsenceIsNotFinal(t *testing.T) {
	s, log := standIn(t), &journal{}
	token, fail := slacktest.Token, error(nil)
	b, err := slack.NewBot(slack.BotConfig{Channel: channel, APIURL: s.APIURL(), Log: log.logger(),
		Token: func() (string, error) { return token, fail }})
	if err != nil {
		t.Fatal(err)
	}
	notify := func() error {
		_, err := b.Notify(t.Context(), example.Message(example.Incidents()[0]), "")
		return err
	}
	s.SetToken("xoxb-another")
	var refusal *alerting.Refusal
	if err := notify(); !errors.As(err, &refusal) || refusal.Reason != "invalid_auth" {
		t.Errorf("a revoked token: %v", err)
	}
	token = "xoxb-another\n"
	if err := notify(); err != nil {
		t.Errorf("the token was replaced: %v", err)
	}
	token = ""
	if err := notify(); err == nil || errors.As(err, &refusal) {
		t.Errorf("an empty file is about to be written: %v", err)
	}
	fail = os.ErrNotExist
	if err := notify(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestNoErrorHoldsTheWebhooksURL(t *testing.T) {
	secret := "/services/T0000000000/B0000000000/abcdefghijklmnopqrstuvwx"
	for _, url := range []string{
		"http://127.0.0.1:1" + secret, "http://u:abcdefghijkl@127.0.0.1:1" + secret, "https://no.such.host.invalid" + secret,
		"https://127.0.0.1:99999" + secret, "http://[::1" + secret, "http://u:abcdefghijkl%zz@h", "abcdefghijkl", "", "ftp://h" + secret, "http://h\x7f" + secret,
	} {
		log := &journal{}
		first := true
		w, err := slack.NewWebhook(slack.WebhookConfig{Log: log.logger(), URL: func() (string, error) {
			if first {
				first = false
				return "https://hooks.slack.com/", nil
			}
			return url, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err = w.Notify(ctx, example.Message(example.Incidents()[0]), "")
		cancel()
		var refusal *alerting.Refusal
		if err == nil || errors.As(err, &refusal) {
			t.Errorf("%q: %v; a URL that is wrong now may be right when the file is mended", url, err)
			continue
		}
		noSecret(t, "the error for "+url[:min(12, len(url))], err.Error())
		noSecret(t, "the log", log.String())
		if strings.Contains(err.Error(), "%zz") {
			t.Errorf("a part of the password is in %v", err)
		}
		if _, err := slack.NewWebhook(slack.WebhookConfig{Log: log.logger(), URL: fixed(url)}); err != nil {
			noSecret(t, "the error at the start", err.Error())
		}
	}
}

func TestNoErrorHoldsTheToken(t *testing.T) {
	s, log := standIn(t), &journal{}
	b := bot(t, s, log)
	for name, a := range map[string]slacktest.Answer{
		"cut":               {Hangup: true},
		"another server":    {Body: "<html>" + slacktest.Token + "</html>"},
		"echo":              {Body: `{"ok":false,"error":"` + slacktest.Token + `"}`},
		"echo in the needs": {Body: `{"ok":false,"error":"missing_scope","needed":"` + slacktest.Token + `"}`},
		"nothing":           {Body: `{"ok":false}`},
		"forbidden":         {Status: 403, Body: slacktest.Token},
	} {
		s.Answer("", a)
		_, err := b.Notify(t.Context(), example.Message(example.Incidents()[0]), "")
		if err == nil {
			t.Errorf("%s: taken for a success", name)
			continue
		}
		noSecret(t, "the error of "+name, err.Error())
	}
	noSecret(t, "the log", log.String())
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reached = true }))
	defer elsewhere.Close()
	s := standIn(t)
	for name, n := range map[string]alerting.Notifier{"bot": bot(t, s, &journal{}), "webhook": webhook(t, s, &journal{})} {
		s.Answer("", slacktest.Answer{Status: 307, Header: http.Header{"Location": {elsewhere.URL}}})
		_, err := n.Notify(t.Context(), example.Message(example.Incidents()[0]), "")
		var refusal *alerting.Refusal
		if err == nil || errors.As(err, &refusal) || reached {
			t.Errorf("%s: the message went to another server (%v), was taken, or was given up for a login page: %v", name, reached, err)
		}
	}
}

// TestWhatIsNotSlacksAnswerIsNotFinal holds that a proxy, which may be gone in a
// minute, cannot make us give up a page.
func TestWhatIsNotSlacksAnswerIsNotFinal(t *testing.T) {
	answers := []slacktest.Answer{
		{Status: 400, Body: "<html>Bad Request</html>"}, {Status: 401, Body: "unauthorized"}, {Status: 403, Body: "<html>blocked</html>"},
		{Status: 403}, {Status: 403, Body: "forbidden"}, {Status: 404, Body: "not_found"}, {Status: 404, Body: `{"error":"no route"}`},
		{Status: 407, Body: "Proxy Authentication Required"}, {Status: 410}, {Status: 425}, {Status: 451, Body: "legal"},
		{Status: 302, Header: http.Header{"Location": {"http://login.invalid/"}}},
	}
	notOurs := []slacktest.Answer{{Body: `{"ok":false}`}, {Body: `{"ok":false,"error":"Access denied by policy"}`}}
	s := standIn(t)
	for name, n := range map[string]alerting.Notifier{"bot": bot(t, s, &journal{}), "webhook": webhook(t, s, &journal{})} {
		all := answers
		if name == "bot" {
			all = append(all[:len(all):len(all)], notOurs...)
		}
		for _, a := range all {
			s.Answer("", a)
			_, err := n.Notify(t.Context(), example.Message(example.Incidents()[0]), "")
			var refusal *alerting.Refusal
			var wait *alerting.Wait
			if err == nil || errors.As(err, &refusal) || errors.As(err, &wait) || !strings.Contains(err.Error(), "between us and Slack") {
				t.Errorf("%s: status %d, %q: %v; want an error that passes and says who answered", name, a.Status, a.Body, err)
			}
		}
	}
	s.Answer("", slacktest.Answer{Status: 401, Body: `{"ok":false,"error":"token_revoked"}`})
	_, err := bot(t, s, &journal{}).Notify(t.Context(), example.Message(example.Incidents()[0]), "")
	var refusal *alerting.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != "token_revoked" {
		t.Errorf("Slack's own word under another status: %v", err)
	}
}

func TestAWebhookIsNotFooledByAProxy(t *testing.T) {
	s := standIn(t)
	s.Answer("", slacktest.Answer{Body: "<html>please log in</html>"})
	if _, err := webhook(t, s, &journal{}).Notify(t.Context(), example.Message(example.Incidents()[0]), ""); err == nil {
		t.Error("a login page is taken for Slack's ok")
	}
}

func TestCheckSaysWhoWeAre(t *testing.T) {
	s := standIn(t)
	who, err := bot(t, s, &journal{}).Check(t.Context())
	if err != nil || who != "gpuvigil in stand-in, channel "+channel {
		t.Errorf("%q, %v", who, err)
	}
	s.SetToken("xoxb-another")
	if _, err := bot(t, s, &journal{}).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "invalid_auth") {
		t.Errorf("a bad token passes: %v", err)
	}
	who, err = webhook(t, s, &journal{}).Check(t.Context())
	if err != nil || !strings.Contains(who, "127.0.0.1") {
		t.Errorf("%q, %v", who, err)
	}
	noSecret(t, "the check", who)
}

func TestWhatIsNotConfiguredIsSaidAtTheStart(t *testing.T) {
	log := (&journal{}).logger()
	for want, cfg := range map[string]slack.BotConfig{
		"no Slack channel": {Token: fixed("x"), Log: log},
		"token is empty":   {Token: fixed(" \n"), Channel: channel, Log: log},
		"no such file":     {Token: func() (string, error) { _, err := os.ReadFile("/nowhere"); return "", err }, Channel: channel, Log: log},
	} {
		if _, err := slack.NewBot(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
