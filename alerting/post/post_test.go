package post_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/post"
)

func write(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func client(t *testing.T, c post.Config) *post.Client {
	t.Helper()
	client, err := post.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestCertificates(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	ca := write(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	for name, tc := range map[string]struct {
		post.Config
		trusted bool
	}{
		"the system's": {post.Config{}, false},
		"its own":      {post.Config{CAFile: ca}, true},
		"another name": {post.Config{CAFile: ca, ServerName: "elsewhere.test"}, false},
		"any":          {post.Config{Insecure: true}, true},
	} {
		_, err := client(t, tc.Config).Do(t.Context(), http.MethodGet, s.URL, nil, nil)
		if trusted := err == nil; trusted != tc.trusted {
			t.Errorf("%s: trusted is %v, want %v: %v", name, trusted, tc.trusted, err)
		}
	}
	for name, c := range map[string]post.Config{
		"no file":        {CAFile: "/nonexistent"},
		"no certificate": {CAFile: write(t, []byte("hello"))},
		"no key":         {CertFile: ca, KeyFile: ca},
		"no password":    {User: "u", Password: func() (string, error) { return "", errors.New("is empty") }},
		"no token":       {Token: func() (string, error) { return "", errors.New("is empty") }},
	} {
		if _, err := post.New(c); err == nil {
			t.Errorf("%s: it starts", name)
		}
	}
}

// A message goes to the one server that is configured, and a token with it.
func TestNoRedirect(t *testing.T) {
	followed := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	t.Cleanup(elsewhere.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hunter2" {
			t.Errorf("it is authorized by %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(s.Close)
	c := client(t, post.Config{Token: func() (string, error) { return "hunter2", nil }})
	a, err := c.Do(t.Context(), http.MethodPost, s.URL, nil, []byte("x"))
	if err != nil || a.Status != http.StatusTemporaryRedirect || followed {
		t.Errorf("a redirect gives %v, %v, followed: %v", a, err, followed)
	}
}

func TestAnswerIsBounded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1<<20)) }))
	t.Cleanup(s.Close)
	a, err := client(t, post.Config{MaxAnswer: 1000}).Do(t.Context(), http.MethodGet, s.URL, nil, nil)
	if err != nil || len(a.Body) != 1000 {
		t.Errorf("of a long answer %d bytes are read, %v, want 1000", len(a.Body), err)
	}
}

func TestErrorsHoldNoURL(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	c := client(t, post.Config{Timeout: 10 * time.Second})
	for _, to := range []string{s.URL + "/hunter2", strings.Replace(s.URL, "//", "//u:hunter2@", 1), s.URL + "/?k=hunter2", "http://[::1/hunter2", "http://h hunter2/", "http://hunter2.invalid:0/%zz"} {
		if _, err := c.Do(t.Context(), http.MethodGet, to, nil, nil); err == nil || strings.Contains(err.Error(), "/hunter2") || strings.Contains(err.Error(), "=hunter2") || strings.Contains(err.Error(), ":hunter2") {
			t.Errorf("%s gives %v", to, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for wish, want := range map[string]time.Duration{
		"":                              30 * time.Second,
		"7":                             7 * time.Second,
		"0":                             time.Second,
		"-5":                            30 * time.Second,
		"99999999999":                   time.Hour,
		"9999999999999999999999":        30 * time.Second,
		"soon":                          30 * time.Second,
		"Sun, 01 Mar 2026 12:02:00 GMT": 2 * time.Minute,
		"Sun, 01 Mar 2026 11:00:00 GMT": time.Second,
		"Sun, 01 Mar 2099 11:00:00 GMT": time.Hour,
	} {
		a := post.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {wish}}}
		var wait *alerting.Wait
		if err := a.Judge(now); !errors.As(err, &wait) || wait.For != want {
			t.Errorf("Retry-After %q gives %v, want a wait of %s", wish, err, want)
		}
	}
}
