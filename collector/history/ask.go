package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/collector/promql"
	"gpuvigil/internal/text"
)

// tries of one request, with waits that double between them.
const (
	tries     = 5
	firstWait = time.Second
	longWait  = time.Minute
)

// api asks one server.
type api struct {
	address page.Address
	base    *url.URL
	headers []promql.Header
	client  *http.Client
	timeout time.Duration
	queries int
}

func newAPI(a page.Address, headers []promql.Header, timeout time.Duration) (*api, error) {
	base, err := url.Parse(a.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("the URL of Prometheus (not shown, it may hold a password) is not of the form http://prometheus:9090, without a user and a query")
	}
	client, err := a.Client(timeout)
	if err != nil {
		return nil, err
	}
	return &api{address: a, base: base, headers: headers, client: client, timeout: timeout}, nil
}

// refusal is an answer that is an error.
type refusal struct {
	status int
	kind   string // as the API has it: bad_data, timeout, execution
	why    string
	after  time.Duration // it asks to wait for
}

func (r *refusal) Error() string {
	if r.why == "" {
		return fmt.Sprintf("the answer is %d %s", r.status, http.StatusText(r.status))
	}
	return fmt.Sprintf("the answer is %d: %s", r.status, r.why)
}

// tooMuch matches what servers say where a query wants more than they give: Prometheus,
// Thanos, Mimir and Cortex, VictoriaMetrics.
var tooMuch = regexp.MustCompile(`(?i)too many (samples|series|points|chunks)|(exceed|limit|maximum|more than|cannot select).*(sample|series|point|chunk|byte|memory|maxUniqueTimeseries|maxSamples)|err-mimir-max`)

// errTooLarge says that less must be asked for at once.
var errTooLarge = errors.New("more samples than may be taken at once")

// large reports whether the same could be had in smaller pieces.
func large(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return r.kind == "timeout" || r.status == http.StatusGatewayTimeout || r.status == http.StatusRequestEntityTooLarge ||
			r.status != http.StatusUnauthorized && r.status != http.StatusForbidden && r.status != http.StatusTooManyRequests && tooMuch.MatchString(r.why)
	}
	return errors.Is(err, errTooLarge) || errors.Is(err, context.DeadlineExceeded)
}

// passing reports whether the same may work a little later.
func passing(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return r.status == http.StatusTooManyRequests || r.status >= 500
	}
	var f *page.Failure
	return !errors.As(err, &f) || page.Reason(err) != "credentials"
}

// ask asks until there is an answer, or an error that stays, or one that says to ask for
// less, and gives the answer's body to read.
func (a *api) ask(ctx context.Context, path string, form url.Values, read func(io.Reader) error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := a.once(ctx, path, form, read)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case large(err):
			return err
		case try == tries || !passing(err) || errors.Is(err, errAnswer):
			return fmt.Errorf("ask %s of %s: %w", path, a.base.Host, err)
		}
		var r *refusal
		if errors.As(err, &r) {
			wait = max(wait, min(r.after, longWait))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, longWait)
	}
}

func (a *api) once(ctx context.Context, path string, form url.Values, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	a.queries++
	at := a.base.JoinPath(path)
	method, body := http.MethodPost, strings.NewReader(form.Encode())
	if !strings.HasPrefix(path, "api/v1/query") { // there is no other way to ask for labels
		method, body, at.RawQuery = http.MethodGet, strings.NewReader(""), form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return errors.New("the URL of Prometheus does not parse (not shown, it may hold a password)")
	}
	for _, h := range a.headers {
		value, err := h.Value()
		if err != nil {
			return page.Failing("credentials", "read the header %s: %w", h.Name, err)
		}
		req.Header.Set(h.Name, value)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if err := a.address.Authorize(req); err != nil {
		return page.Failing("credentials", "%w", err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return a.unreached(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused(resp)
	}
	if err := read(resp.Body); err != nil {
		return a.unreached(ctx, err)
	}
	return nil
}

// unreached takes the URL, which may hold a secret, out of an error, and tells our own
// time limit from others.
func (a *api) unreached(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("no whole answer within %s: %w", a.timeout, ctx.Err())
	}
	return err
}

// maxRefusal is how much is read of an answer that is an error.
const maxRefusal = 16 << 10

func refused(resp *http.Response) error {
	r := &refusal{status: resp.StatusCode}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		r.after = time.Duration(min(s, 3600)) * time.Second
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return r // what it says beside its status did not come
	}
	var said struct{ ErrorType, Error string }
	if json.Unmarshal(content, &said) == nil && said.Error != "" {
		r.kind, r.why = said.ErrorType, text.Clean(said.Error, 300)
	} else {
		r.why = text.Clean(string(content), 300)
	}
	return r
}
