package history

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/collector/promql"
	"gpuvigil/collector/series"
)

// PrometheusConfig says which server has the past. Of a field that is zero the default
// stands beside it.
type PrometheusConfig struct {
	Address page.Address
	Headers []promql.Header
	Match   []string // matchers that each series must have, such as cluster="a"
	Metrics []string // names that something is made of: those of an Assembler

	Timeout    time.Duration // of one request; 2 min
	MaxSamples int           // in memory at once, twice; 4,000,000
	Log        *slog.Logger
}

const (
	firstWindow = time.Hour
	maxWindow   = 6 * time.Hour
	maxNames    = 60        // of metrics in one query
	growAfter   = 8         // windows that were taken whole
	maxBody     = 1 << 30   // bytes of one answer
	maxListed   = 64 << 20  // bytes of a list of names
	bufferSize  = 256 << 10 // of an answer that is being read
)

// Prometheus is the past as a PromQL API tells it, by range selectors over windows. Where
// a query is more than the server gives, or than may be in memory, the window is halved,
// then the metrics of one query are; after a while it tries more again.
type Prometheus struct {
	cfg  PrometheusConfig
	api  *api
	span Span

	step, last int64    // the next step, and the last one
	match      []string // as written anew
	names      []string
	window     int64 // steps
	group      int   // names in one query
	whole      int   // windows since the last that was too large
}

// NewPrometheus returns the span's past. It fails if the span is none, the URL does not
// parse or a certificate cannot be read; it does not connect yet.
func NewPrometheus(cfg PrometheusConfig, span Span) (*Prometheus, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 2 * time.Minute
	}
	if cfg.MaxSamples <= 0 {
		cfg.MaxSamples = 4_000_000
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	first, last, err := span.steps()
	if err != nil {
		return nil, err
	}
	api, err := newAPI(cfg.Address, cfg.Headers, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	p := &Prometheus{cfg: cfg, api: api, span: span, step: first, last: last, group: maxNames}
	p.window = max(1, int64(firstWindow/span.step()))
	for _, m := range cfg.Match {
		written, err := promql.Matcher(m)
		if err != nil {
			return nil, err
		}
		p.match = append(p.match, written)
	}
	return p, nil
}

// At returns the time up to which windows have been returned.
func (p *Prometheus) At() time.Time { return p.span.at(p.step - 1) }

// Skip leaves out what is before the time. It is not called while Next runs.
func (p *Prometheus) Skip(to time.Time) {
	p.step = max(p.step, p.span.number(to.UnixMilli())+1)
}

// Name is what the server is called: its URL's host.
func (p *Prometheus) Name() string { return p.api.base.Host }

// Close closes the connections that are kept for further queries.
func (p *Prometheus) Close() { p.api.client.CloseIdleConnections() }

// Next implements Source. That the server has none of the metrics is an error.
func (p *Prometheus) Next(ctx context.Context) (*Window, error) {
	if p.names == nil {
		if err := p.list(ctx); err != nil {
			return nil, err
		}
	}
	for p.step <= p.last {
		w := &Window{span: p.span, first: p.step, last: min(p.step+p.window-1, p.last)}
		err := p.fill(ctx, w)
		if large(err) && ctx.Err() == nil {
			if err = p.shrink(err); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		p.step = w.last + 1
		p.grow(w)
		return w, nil
	}
	return nil, io.EOF
}

// shrink asks for less from now on.
func (p *Prometheus) shrink(why error) error {
	const least = 5 // steps, before fewer metrics are asked for at once
	p.whole = 0
	switch {
	case p.window > least:
		p.window = max(least, p.window/2)
	case p.group > 1:
		p.group /= 2
	case p.window > 1:
		p.window /= 2
	default:
		return fmt.Errorf("ask %s for one step of one metric: %w: narrow what is asked for with a matcher, or raise the server's limits", p.api.base.Host, why)
	}
	p.cfg.Log.Debug("Less is asked for at once.", "window", time.Duration(p.window)*p.span.step(), "metrics", p.group, "why", why)
	return nil
}

func (p *Prometheus) grow(w *Window) {
	if p.whole++; p.whole%growAfter != 0 || w.kept > p.cfg.MaxSamples/3 {
		return
	}
	switch most := max(1, int64(maxWindow/p.span.step())); {
	case p.group < maxNames:
		p.group = min(2*p.group, maxNames)
	case p.window < most:
		p.window = min(2*p.window, most)
	}
}

// fill asks for the samples of the window.
func (p *Prometheus) fill(ctx context.Context, w *Window) error {
	for names := range slices.Chunk(p.names, p.group) {
		if err := p.query(ctx, w, names); err != nil {
			return err
		}
	}
	return nil
}

// query asks for the samples of a few metrics. One that fails half-way leaves nothing, so
// that it can be tried again.
func (p *Prometheus) query(ctx context.Context, w *Window, names []string) error {
	before, read, kept := len(w.all), w.read, w.kept
	form := url.Values{
		"query": {p.selector(names) + "[" + duration(time.Duration(w.last-w.first+1)*p.span.step()) + "]"},
		"time":  {seconds(w.To())},
	}
	return p.api.ask(ctx, "api/v1/query", form, func(body io.Reader) error {
		clear(w.all[before:])
		w.all, w.read, w.kept = w.all[:before], read, kept
		limited := &io.LimitedReader{R: body, N: maxBody}
		d := decoder{r: bufio.NewReaderSize(limited, bufferSize)}
		var of *line
		full := false
		err := d.matrix(func(labels []series.Label) {
			of = &line{labels: labels}
			w.all = append(w.all, of)
		}, func(s point) {
			if full = full || w.kept >= p.cfg.MaxSamples; !full {
				w.add(of, s)
			}
		})
		if full || limited.N <= 0 {
			return errTooLarge
		}
		return err
	})
}

func (p *Prometheus) selector(names []string) string {
	s := `{__name__=~"` + strings.Join(names, "|") + `"`
	for _, m := range p.match {
		s += "," + m
	}
	return s + "}"
}

// list finds which of the metrics the server has: queries for what is nowhere cost it a
// little each.
func (p *Prometheus) list(ctx context.Context) error {
	form := url.Values{"start": {seconds(p.span.From)}, "end": {seconds(p.span.To)}}
	var said struct{ Data []string }
	err := p.api.ask(ctx, "api/v1/label/__name__/values", form, func(body io.Reader) error {
		said.Data = nil
		limited := &io.LimitedReader{R: body, N: maxListed}
		err := json.NewDecoder(limited).Decode(&said)
		switch {
		case limited.N <= 0:
			return fmt.Errorf("%w: more than %d MiB of metrics' names", errAnswer, maxListed>>20)
		case errors.As(err, new(*json.SyntaxError)) || errors.As(err, new(*json.UnmarshalTypeError)):
			return fmt.Errorf("%w: %w", errAnswer, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, name := range said.Data {
		has[name] = true
	}
	for _, name := range p.cfg.Metrics {
		if has[name] {
			p.names = append(p.names, name)
		}
	}
	if len(p.names) == 0 {
		return fmt.Errorf("%s has none of the metrics that are read here from %s to %s: does it scrape dcgm-exporter, nvidia_gpu_exporter, inference servers or gpuvigil's agents, and did it then?",
			p.api.base.Host, p.span.From.UTC().Format(time.RFC3339), p.span.To.UTC().Format(time.RFC3339))
	}
	return nil
}

// duration writes a duration as PromQL does.
func duration(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}
