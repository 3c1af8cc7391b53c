package report

import (
	"bytes"
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

	"github.com/prometheus/common/model"

	"gpuvigil/internal/text"
)

// maxReply bounds one answer of a time-series database.
const maxReply = 512 << 20

// EngineConfig says how a time-series database is reached: Prometheus,
// VictoriaMetrics, Thanos, Mimir, or whatever else answers Prometheus' API.
type EngineConfig struct {
	URL      string                 // without /api/v1; http or https
	User     string                 // for basic authentication, with Password
	Password func() (string, error) // nil: none
	Bearer   func() (string, error) // nil: none
	Tenant   string                 // X-Scope-OrgID, for Mimir; empty: none
	Match    []string               // matchers of labels that a series must have, such as cluster="a"; empty: all series
	Step     time.Duration          // an hour, a day; 0: an hour up to eight days, else a day
	History  time.Duration          // how far back the first sample is looked for; 0: 400 days
	Busy     string                 // what the agents count as busy
	Now      func() time.Time       // nil: time.Now

	Client    *http.Client              // nil: one that checks certificates as the system does
	Authorize func(*http.Request) error // adds to each request what the server wants of it; nil: nothing beside the above
}

// api asks a time-series database.
type api struct {
	cfg    EngineConfig
	base   *url.URL
	match  string // matchers that each selector has; empty: none
	client *http.Client
}

func newAPI(cfg EngineConfig) (*api, error) {
	base, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return nil, errors.New("--prometheus.url is no URL: write it as http://prometheus:9090")
	case base.User != nil || base.RawQuery != "":
		return nil, errors.New("--prometheus.url holds a user or a query: give --prometheus.username with --prometheus.password-file, or --prometheus.bearer-token-file")
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("--prometheus.url=%.80q is no URL of http or https: write it as http://prometheus:9090", cfg.URL)
	case cfg.Bearer != nil && (cfg.User != "" || cfg.Password != nil):
		return nil, errors.New("found a bearer token beside a user or a password, allowed: one of them")
	case (cfg.User != "") != (cfg.Password != nil):
		return nil, errors.New("found one of --prometheus.username and --prometheus.password-file, allowed: both or none")
	}
	match, err := matchers(cfg.Match)
	if err != nil {
		return nil, err
	}
	redirect := func(r *http.Request, via []*http.Request) error {
		if r.URL.Host != via[0].URL.Host || len(via) > 3 {
			return errors.New("it redirects elsewhere, which is not followed: give the URL that it redirects to")
		}
		return nil
	}
	client := http.Client{Transport: http.DefaultTransport}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	client.CheckRedirect = redirect
	return &api{cfg: cfg, base: base, match: match, client: &client}, nil
}

// reply is what the API answers.
type reply struct {
	Status   string   `json:"status"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Data     struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// span evaluates an expression at start, and then each step until end.
func (a *api) span(ctx context.Context, expr string, start, end time.Time, step time.Duration) (model.Matrix, error) {
	return a.ask(ctx, "query_range", expr, url.Values{"start": {stamp(start)}, "end": {stamp(end)}, "step": {seconds(step)}})
}

// samples evaluates a range selector at an instant.
func (a *api) samples(ctx context.Context, expr string, at time.Time) (model.Matrix, error) {
	return a.ask(ctx, "query", expr, url.Values{"time": {stamp(at)}})
}

// ask asks for a matrix. What may be incomplete is an error: it would look like
// nothing spent.
func (a *api) ask(ctx context.Context, path, expr string, form url.Values) (model.Matrix, error) {
	form.Set("query", expr)
	form.Set("nocache", "1")                // VictoriaMetrics moves start and end otherwise
	form.Set("partial_response", "false")   // Thanos leaves stores out otherwise
	form.Set("max_source_resolution", "0s") // and reads what it has downsampled
	var r reply
	if err := a.post(ctx, path, form, &r); err != nil {
		return nil, fmt.Errorf("ask %s for %.300s: %w", a.base.Redacted(), expr, err)
	}
	var m model.Matrix
	if r.Data.ResultType != "matrix" {
		return nil, fmt.Errorf("ask %s for %.300s: it answers with a %.40q, not with a matrix: is it Prometheus' API?", a.base.Redacted(), expr, r.Data.ResultType)
	}
	if err := json.Unmarshal(r.Data.Result, &m); err != nil {
		return nil, fmt.Errorf("read the answer of %s to %.300s: %w", a.base.Redacted(), expr, err)
	}
	return m, nil
}

func (a *api) post(ctx context.Context, path string, form url.Values, into *reply) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base.JoinPath("api", "v1", path).String(), strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if err := a.authenticate(r); err != nil {
		return err
	}
	answer, err := a.client.Do(r)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the URL is said already
		}
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReply+1))
	switch {
	case err != nil:
		return err
	case len(body) > maxReply:
		return fmt.Errorf("it answers with more than %d MiB: ask for less time, or with --step=day", maxReply>>20)
	}
	bad := json.Unmarshal(body, into)
	switch {
	case bad == nil && into.Status == "error":
		return errors.New(text.Clean(into.Error, 300))
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("it answers %s: %s", answer.Status, text.Clean(string(bytes.TrimSpace(body)), 200))
	case bad != nil:
		return fmt.Errorf("it does not answer with JSON: %w", bad)
	case len(into.Warnings) > 0:
		return fmt.Errorf("its answer may be incomplete: %s", text.Clean(strings.Join(into.Warnings, "; "), 300))
	}
	return nil
}

func (a *api) authenticate(r *http.Request) error {
	if a.cfg.Tenant != "" {
		r.Header.Set("X-Scope-OrgID", a.cfg.Tenant)
	}
	if a.cfg.Password != nil {
		password, err := a.cfg.Password()
		if err != nil {
			return fmt.Errorf("read the password: %w", err)
		}
		r.SetBasicAuth(a.cfg.User, password)
	}
	if a.cfg.Bearer != nil {
		token, err := a.cfg.Bearer()
		if err != nil {
			return fmt.Errorf("read the bearer token: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if a.cfg.Authorize != nil {
		return a.cfg.Authorize(r)
	}
	return nil
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', 3, 64) }

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
