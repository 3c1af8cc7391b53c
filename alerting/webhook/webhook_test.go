package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alert"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/post"
	"gpuvigil/alerting/webhook"
	"gpuvigil/internal/golden"
	"gpuvigil/rules"
)

const key = "a key of more than sixteen bytes"

// server notes what it is posted.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	header http.Header
	posts  []received
}

type received struct {
	http.Header
	body []byte
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{status: http.StatusOK, header: http.Header{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.posts = append(s.posts, received{r.Header, body})
		for name, v := range s.header {
			w.Header()[name] = v
		}
		w.WriteHeader(s.status)
		fmt.Fprint(w, strings.Repeat("x", 1<<16))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) last(t *testing.T) (received, webhook.Payload) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.posts) == 0 {
		t.Fatal("nothing was posted")
	}
	var p webhook.Payload
	post := s.posts[len(s.posts)-1]
	if err := json.Unmarshal(post.body, &p); err != nil {
		t.Fatal(err)
	}
	return post, p
}

func text(s string) post.Secret { return func() (string, error) { return s, nil } }

func newWebhook(t *testing.T, s *server, change func(*webhook.Config)) *webhook.Webhook {
	t.Helper()
	c := webhook.Config{Name: "automation", URL: text(s.URL + "/T0/hunter2"), Key: text(key), Options: alert.Options{Cluster: "c1"},
		ExternalURL: "http://gpu-117:9835/", Server: post.Config{Timeout: 10 * time.Second}}
	if change != nil {
		change(&c)
	}
	w, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// What is posted of the commonest incidents, word by word.
func TestPayload(t *testing.T) {
	s := newServer(t)
	w := newWebhook(t, s, nil)
	for _, i := range example.Incidents() {
		for state, m := range map[string]alerting.Message{"firing": example.Message(i), "resolved": example.Message(example.Resolve(i))} {
			if _, err := w.Notify(t.Context(), m, ""); err != nil {
				t.Fatal(err)
			}
			_, p := s.last(t)
			got, err := json.MarshalIndent(p, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", string(i.Rule)+"-"+state+".json"), string(got)+"\n", "a webhook is posted something else")
		}
	}
}

// A receiver that reads Alertmanager's messages finds in ours all that it finds there.
func TestFormOfAlertmanager(t *testing.T) {
	content, err := os.ReadFile("testdata/webhook-v4.json")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	w := newWebhook(t, s, nil)
	worse := example.Of(rules.IDSaturatedGPU)
	worse.Severity = rules.Page
	if _, err := w.Notify(t.Context(), example.Message(worse), "ticket"); err != nil {
		t.Fatal(err)
	}
	post, _ := s.last(t)
	var real, ours any
	if err := errors.Join(json.Unmarshal(content, &real), json.Unmarshal(post.body, &ours)); err != nil {
		t.Fatal(err)
	}
	sameForm(t, "message", real, ours)
}

// sameForm compares keys and types, but for the names of labels and annotations.
func sameForm(t *testing.T, path string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s is %T, want an object", path, got)
			return
		}
		if strings.HasSuffix(path, "abels") || strings.HasSuffix(path, "nnotations") {
			for name, v := range got {
				if _, ok := v.(string); !ok {
					t.Errorf("%s.%s is %v, want a text", path, name, v)
				}
			}
			return
		}
		for k, v := range want {
			if _, ok := got[k]; !ok {
				t.Errorf("%s.%s is missing", path, k)
				continue
			}
			sameForm(t, path+"."+k, v, got[k])
		}
		for k := range got {
			if _, ok := want[k]; !ok && k != "notification_reason" && k != "routeLabels" { // since Alertmanager 0.35
				t.Errorf("%s.%s is nothing that Alertmanager says", path, k)
			}
		}
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			t.Errorf("%s is %v, want a list of %d", path, got, len(want))
			return
		}
		for k := range want {
			sameForm(t, fmt.Sprintf("%s[%d]", path, k), want[k], got[k])
		}
	default:
		if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
			t.Errorf("%s is %T, want %T", path, got, want)
		}
		if path == "message.version" && got != want {
			t.Errorf("the version is %v, want %v", got, want)
		}
	}
}

// An incident that gets worse is another alert: the one before ends in the same message.
func TestEscalation(t *testing.T) {
	s := newServer(t)
	w := newWebhook(t, s, nil)
	i := example.Of(rules.IDSaturatedGPU)
	ref, err := w.Notify(t.Context(), example.Message(i), "")
	if err != nil || ref != "ticket" {
		t.Fatalf("the first message gives %q, %v", ref, err)
	}
	_, first := s.last(t)
	worse := i
	worse.Severity, worse.Updated = rules.Page, i.Updated.Add(time.Minute)
	ref, err = w.Notify(t.Context(), example.Message(worse), ref)
	if err != nil || ref != "page" {
		t.Fatalf("the message that it got worse gives %q, %v", ref, err)
	}
	_, p := s.last(t)
	if len(p.Alerts) != 2 || p.Alerts[0].Status != "firing" || p.Alerts[0].Labels["severity"] != "page" || p.Reason != "new alerts added" || p.Alerts[1].Status != "resolved" ||
		p.Alerts[1].Fingerprint != first.Alerts[0].Fingerprint || p.Status != "firing" || p.GroupKey != first.GroupKey || p.CommonLabels["severity"] != "" {
		t.Errorf("when it got worse this is posted: %+v, want the page that fires and the ticket that ends", p)
	}
	// It is resolved as what the server knows it by, also if it got worse unheard.
	over := example.Resolve(worse)
	for known, want := range map[string]string{"page": "page", "ticket": "ticket", "": "page"} {
		if _, err := w.Notify(t.Context(), example.Message(over), known); err != nil {
			t.Fatal(err)
		}
		if _, p := s.last(t); len(p.Alerts) != 1 || p.Status != "resolved" || string(p.Alerts[0].Labels["severity"]) != want || p.Alerts[0].EndsAt.IsZero() {
			t.Errorf("known as %q, the end is posted as %+v, want it as %s", known, p.Alerts, want)
		}
	}
}

// The signature is that of Standard Webhooks, computed here from its specification.
func TestSignature(t *testing.T) {
	s := newServer(t)
	raw := []byte("0123456789abcdef0123456789abcdef")
	w := newWebhook(t, s, func(c *webhook.Config) {
		c.Key = text(key + "\n\nwhsec_" + base64.StdEncoding.EncodeToString(raw) + "\n")
	})
	began := time.Now().Truncate(time.Second)
	if _, err := w.Notify(t.Context(), example.Message(example.Incidents()[0]), ""); err != nil {
		t.Fatal(err)
	}
	post, _ := s.last(t)
	id, at := post.Get("webhook-id"), post.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if sent := time.Unix(seconds, 0); err != nil || sent.Before(began) || sent.After(time.Now()) {
		t.Errorf("the timestamp is %q, want that of now: an old message could be played again", at)
	}
	var want []string
	for _, k := range [][]byte{[]byte(key), raw} {
		mac := hmac.New(sha256.New, k)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, post.body)
		want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if got := post.Get("webhook-signature"); got != strings.Join(want, " ") {
		t.Errorf("the signature is %q, want %q", got, want)
	}
	unsigned := newWebhook(t, s, func(c *webhook.Config) { c.Key = nil })
	if _, err := unsigned.Notify(t.Context(), example.Message(example.Incidents()[0]), ""); err != nil {
		t.Fatal(err)
	}
	if post, _ := s.last(t); post.Get("webhook-signature") != "" {
		t.Errorf("without a key it is signed: %s", post.Get("webhook-signature"))
	}
}

// The example that Standard Webhooks' libraries are tested with.
func TestKnownSignature(t *testing.T) {
	k, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := webhook.Signature(k, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("the signature is %s, want %s as elsewhere", got, want)
	}
}

// A duplicate can be known, another state of the incident is no duplicate.
func TestIdempotencyKey(t *testing.T) {
	s := newServer(t)
	w := newWebhook(t, s, nil)
	i := example.Incidents()[0]
	later := i
	later.Updated = i.Updated.Add(time.Second)
	again, marked := example.Message(i), example.Message(i)
	again.Rung, marked.Mark = 1, &alerting.Mark{By: "somebody", At: i.Updated}
	seen := map[string]int{}
	for _, m := range []alerting.Message{again, marked, example.Message(i), example.Message(i), example.Message(later), example.Message(example.Resolve(i)), example.Message(example.Of(rules.IDSaturatedGPU))} {
		if _, err := w.Notify(t.Context(), m, ""); err != nil {
			t.Fatal(err)
		}
		post, _ := s.last(t)
		if post.Get("idempotency-key") != post.Get("webhook-id") {
			t.Errorf("the ids differ: %v", post.Header)
		}
		seen[post.Get("idempotency-key")]++
	}
	if len(seen) != 6 {
		t.Errorf("seven messages, two of them the same, have the keys %v", seen)
	}
}

func TestAnswers(t *testing.T) {
	s := newServer(t)
	w := newWebhook(t, s, nil)
	s.header = http.Header{"Retry-After": {"90"}, "Location": {"http://192.0.2.1/"}}
	for status, want := range map[int]string{
		200: "taken", 202: "taken", 204: "taken",
		301: "refused http_301", 307: "refused http_307", 400: "refused content http_400", 401: "refused http_401", 403: "refused http_403",
		404: "refused http_404", 408: "again", 410: "refused http_410", 413: "refused content http_413", 422: "refused content http_422", 425: "again",
		429: "wait 1m30s", 500: "again", 502: "again", 503: "wait 1m30s",
	} {
		s.mu.Lock()
		s.status = status
		s.mu.Unlock()
		_, err := w.Notify(t.Context(), example.Message(example.Incidents()[0]), "")
		var refusal *alerting.Refusal
		var wait *alerting.Wait
		got := "again"
		switch {
		case err == nil:
			got = "taken"
		case errors.As(err, &refusal) && refusal.Content:
			got = "refused content " + refusal.Reason
		case errors.As(err, &refusal):
			got = "refused " + refusal.Reason
		case errors.As(err, &wait):
			got = "wait " + wait.For.String()
		}
		if got != want {
			t.Errorf("an answer of %d is %q, want %q", status, got, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the URL: %v", err)
		}
	}
}

func TestNoSecretInErrors(t *testing.T) {
	s := newServer(t)
	gone := newWebhook(t, s, nil)
	s.Close()
	if _, err := gone.Notify(t.Context(), example.Message(example.Incidents()[0]), ""); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "/T0") {
		t.Errorf("a server that is gone gives %v", err)
	}
	for name, c := range map[string]webhook.Config{
		"no URL":    {URL: text("xoxb-hunter2")},
		"half one":  {URL: text("https:///hunter2")},
		"short key": {URL: text("https://h/"), Key: text("hunter2")},
		"bad key":   {URL: text("https://h/"), Key: text("whsec_hunter2!hunter2!hunter2")},
		"no key":    {URL: text("https://h/"), Key: text(" \n")},
		"six keys":  {URL: text("https://h/"), Key: text(strings.Repeat(key+"hunter2\n", 6))},
	} {
		if _, err := webhook.New(c); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: it gives %v", name, err)
		}
	}
}

// A URL that is replaced in its file counts at once.
func TestURLIsReadAnew(t *testing.T) {
	old, now := newServer(t), newServer(t)
	to := old.URL
	w := newWebhook(t, old, func(c *webhook.Config) { c.URL = func() (string, error) { return to, nil } })
	to = now.URL
	if _, err := w.Notify(t.Context(), example.Message(example.Incidents()[0]), ""); err != nil || len(now.posts) != 1 {
		t.Errorf("after the URL was replaced the new server has %d messages, %v", len(now.posts), err)
	}
}
