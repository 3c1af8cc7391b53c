package slack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"gpuvigil/alerting"
)

const (
	callLimit = 10 * time.Second
	bodyLimit = 4 << 20 // of an answer; a page of history has some 100 kB
	wordLimit = 256     // of the body of an answer that is a word
)

// conn is a client for the calls of one delivery.
type conn struct {
	*slack.Client
	*exchange
}

// connect reads the token and returns a client with it.
func (b *Bot) connect() (*conn, error) {
	token, err := b.cfg.Token()
	if err != nil {
		return nil, fmt.Errorf("read the Slack token: %w", err)
	}
	if token = strings.TrimSpace(token); token == "" {
		return nil, errors.New("the Slack token is empty: put the app's bot token (xoxb-…) there")
	}
	x := &exchange{base: b.cfg.Transport, secrets: []string{token}}
	return &conn{slack.New(token, slack.OptionAPIURL(b.cfg.APIURL), slack.OptionHTTPClient(x.client())), x}, nil
}

// Fingerprint is another once the token is; empty if it cannot be read.
func (b *Bot) Fingerprint() string { return alerting.Fingerprint(b.cfg.Token()) }

func newTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = callLimit
	return t
}

// exchange keeps of the last call what slack-go drops and the judgement needs:
// the status, the wish to wait and the word of the body. It is a RoundTripper for
// one goroutine.
type exchange struct {
	base     http.RoundTripper
	secrets  []string
	keepBody bool // also of a good answer, which then must be short

	status int
	retry  string
	body   string
}

// client returns a client that follows no redirect: Slack sends none, and the
// message is for nobody else.
func (x *exchange) client() *http.Client {
	return &http.Client{
		Transport:     x,
		Timeout:       callLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RoundTrip makes the call and notes its answer.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	x.status, x.retry, x.body = 0, "", ""
	resp, err := x.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	x.status, x.retry = resp.StatusCode, resp.Header.Get("Retry-After")
	rest := io.LimitReader(resp.Body, bodyLimit)
	if x.status != http.StatusOK || x.keepBody {
		head, err := io.ReadAll(io.LimitReader(rest, wordLimit))
		if err != nil {
			return nil, errors.Join(err, resp.Body.Close())
		}
		x.body = strings.TrimSpace(string(head))
		rest = io.MultiReader(bytes.NewReader(head), rest)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{rest, resp.Body}
	return resp, nil
}

var wordPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// word returns the body if it is one of Slack's words, else the status.
func (x *exchange) word() string {
	if wordPattern.MatchString(x.body) {
		return x.body
	}
	return fmt.Sprintf("http_%d", x.status)
}

// said returns Slack's word in an answer that is not a good one, empty if the
// answer is not Slack's, and the scopes that it names.
func (x *exchange) said() (word, needed string) {
	if plainWords[x.body] {
		return x.body, ""
	}
	var answer struct {
		OK            *bool
		Error, Needed string
	}
	if json.Unmarshal([]byte(x.body), &answer) != nil || answer.OK == nil || *answer.OK || !wordPattern.MatchString(answer.Error) {
		return "", ""
	}
	return answer.Error, answer.Needed
}

// reachError puts an error of the transport into words without its URL, which
// may be the secret.
func (x *exchange) reachError(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	text := err.Error()
	for _, s := range x.secrets {
		if len(s) > 1 {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return errors.New(text)
}
