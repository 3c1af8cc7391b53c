package promql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/internal/text"
)

// Header is sent with each request, such as X-Scope-OrgID with a tenant of Mimir. Its
// value is read anew for each.
type Header struct {
	Name  string
	Value func() (string, error)
}

// client asks an API. It is used from one goroutine.
type client struct {
	cfg    *Config
	base   *url.URL
	http   *http.Client
	body   []byte // of the answer that is read
	shown  string
	counts *counts
}

func newClient(cfg *Config, counts *counts) (*client, error) {
	base, err := url.Parse(cfg.Address.URL)
	switch {
	case err != nil:
		return nil, errors.New("the URL of Prometheus does not parse (not shown, it may hold a password): write it as http://prometheus:9090")
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, errors.New("the URL of Prometheus does not begin with http:// or https:// (not shown, it may hold a password): write it as http://prometheus:9090")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the URL of Prometheus holds a user or a query (not shown): name files with them in fleet.prometheus, and write it as http://prometheus:9090")
	}
	c, err := cfg.Address.Client(cfg.Timeout + time.Second) // the server is to end first, and to say why
	if err != nil {
		return nil, err
	}
	return &client{cfg: cfg, base: base, http: c, shown: base.String(), counts: counts}, nil
}

// ask sends one query and gives its samples to each. What may be incomplete is given, too:
// the answer says so. The error is a *page.Failure.
func (c *client) ask(ctx context.Context, expr string, at time.Time, each take) (answer, error) {
	began := time.Now()
	a, err := c.query(ctx, expr, at, each)
	c.counts.query(a, err, time.Since(began))
	return a, err
}

func (c *client) query(ctx context.Context, expr string, at time.Time, each take) (answer, error) {
	form := url.Values{
		"query": {expr}, "time": {stamp(at)}, "timeout": {strconv.FormatFloat(c.cfg.Timeout.Seconds(), 'f', -1, 64) + "s"},
		"nocache":          {"1"},    // VictoriaMetrics answers from half a minute ago otherwise
		"partial_response": {"true"}, // Thanos: what some of its stores know is better than nothing
		"limit":            {strconv.Itoa(c.cfg.MaxSeries + 1)},
	}
	body, status, err := c.post(ctx, "query", form)
	if err != nil {
		return answer{}, err
	}
	if status != http.StatusOK {
		return answer{}, refused(status, body)
	}
	n := 0
	a, err := read(body, func(labels []byte, newest point, before int64) {
		if n++; n <= c.cfg.MaxSeries {
			each(labels, newest, before)
		}
	})
	switch {
	case err != nil:
		return a, err
	case a.status != "success":
		return a, page.Failing("rejected", "it does not answer: %s", text.Clean(a.why, 300))
	case n > c.cfg.MaxSeries:
		return a, page.Failing(tooLarge, "its answer has more than %d series", c.cfg.MaxSeries)
	}
	return a, nil
}

// names returns the names of metrics that there are in the time before at.
func (c *client) names(ctx context.Context, at time.Time, before time.Duration) ([]string, error) {
	began := time.Now()
	names, err := c.list(ctx, at, before)
	c.counts.query(answer{}, err, time.Since(began))
	return names, err
}

func (c *client) list(ctx context.Context, at time.Time, before time.Duration) ([]string, error) {
	form := url.Values{"start": {stamp(at.Add(-before))}, "end": {stamp(at)}}
	if len(c.cfg.match) > 0 {
		form.Set("match[]", "{"+strings.Join(c.cfg.match, ",")+"}")
	}
	body, status, err := c.get(ctx, "label/__name__/values", form)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, refused(status, body)
	}
	var a struct {
		Status string   `json:"status"`
		Error  string   `json:"error"`
		Data   []string `json:"data"`
	}
	switch err := json.Unmarshal(body, &a); {
	case err != nil && len(body) > 0 && body[0] == '<':
		return nil, page.Failing("html", "it answers with HTML: is this the URL of Prometheus' API, and does it want a login?")
	case err != nil:
		return nil, page.Failing("syntax", "its list of names cannot be read: %w", err)
	case a.Status != "success":
		return nil, page.Failing("rejected", "it does not list its names: %s", text.Clean(a.Error, 300))
	}
	return a.Data, nil
}

func (c *client) post(ctx context.Context, path string, form url.Values) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath("api", "v1", path).String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, 0, page.Unreached(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return c.do(req)
}

func (c *client) get(ctx context.Context, path string, form url.Values) ([]byte, int, error) {
	at := c.base.JoinPath("api", "v1", path)
	at.RawQuery = form.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, 0, page.Unreached(err)
	}
	return c.do(req)
}

// do returns the answer's body, which is good until the next request, and status.
func (c *client) do(req *http.Request) ([]byte, int, error) {
	if err := c.cfg.Address.Authorize(req); err != nil {
		return nil, 0, page.Failing("credentials", "%w", err)
	}
	for _, h := range c.cfg.Headers {
		v, err := h.Value()
		if err != nil {
			return nil, 0, page.Failing("credentials", "read the header %s: %w", h.Name, err)
		}
		req.Header.Set(h.Name, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, page.Unreached(err)
	}
	defer resp.Body.Close()
	if err := c.readAll(resp.Body); err != nil {
		return nil, 0, err
	}
	return c.body, resp.StatusCode, nil
}

// tooLarge is the reason of a failure that smaller questions mend.
const tooLarge = "too_large"

// firstBody is the room for the first body.
const firstBody = 1 << 20

// readAll reads a body into c.body. What was needed for a large one is kept, since the
// next round needs it again.
func (c *client) readAll(from io.Reader) error {
	if cap(c.body) == 0 {
		c.body = make([]byte, 0, firstBody)
	}
	c.body = c.body[:0]
	for {
		if len(c.body) == cap(c.body) {
			c.body = append(c.body, 0)[:len(c.body)]
		}
		n, err := from.Read(c.body[len(c.body):cap(c.body)])
		c.body = c.body[:len(c.body)+n]
		c.counts.bytes.Add(uint64(n))
		switch {
		case len(c.body) > c.cfg.MaxBytes:
			return page.Failing(tooLarge, "its answer is larger than %d bytes", c.cfg.MaxBytes)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return page.Unreached(err)
		}
	}
}

// refused is the *page.Failure of an answer that is none.
func refused(status int, body []byte) error {
	var said struct {
		Type  string `json:"errorType"`
		Error string `json:"error"`
	}
	why := text.Clean(string(body[:min(len(body), 300)]), 200)
	if json.Unmarshal(body, &said) == nil && said.Error != "" {
		why = text.Clean(said.Error, 300)
	}
	why = fmt.Sprintf("it answers %d: %s", status, why)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return page.Failing("credentials", "%s", why)
	case status >= 300 && status < 400:
		return page.Failing("redirect", "it answers %d, a redirect, which is not followed: give the URL that it redirects to", status)
	case said.Type == "timeout":
		return page.Failing("timeout", "%s", why)
	case status == http.StatusTooManyRequests || status >= 500:
		return page.Failing("status", "%s", why)
	case status == http.StatusUnprocessableEntity && (strings.Contains(why, "too many samples") || strings.Contains(why, "limit")),
		strings.Contains(why, "too many"):
		return page.Failing(tooLarge, "%s", why)
	}
	return page.Failing("rejected", "%s", why)
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', 3, 64) }
