package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/collector"
	"gpuvigil/collector/history"
	"gpuvigil/collector/page"
	"gpuvigil/collector/promql"
	"gpuvigil/collector/series"
	"gpuvigil/internal/backtest"
)

// historyFlags say which past is replayed.
type historyFlags struct {
	url, file                 string
	tenant                    string
	match                     []string
	tokenFile, user, password string
	ca                        string
	from, to                  string
	step                      time.Duration
}

func (h *historyFlags) add(cmd *kingpin.CmdClause) {
	cmd.Flag("prometheus.url", "Replay the past of a fleet as Prometheus, or what speaks like one, has it: with --from.").PlaceHolder("URL").StringVar(&h.url)
	cmd.Flag("openmetrics", "Replay the past of a fleet from a file of samples with times, as promtool tsdb dump-openmetrics writes it.").PlaceHolder("FILE").StringVar(&h.file)
	cmd.Flag("from", "With --prometheus.url or --openmetrics: where to begin: 2006-01-02T15:04:05Z, seconds since 1970, or how long ago (7d). Of a file the default is its first sample.").PlaceHolder("TIME").StringVar(&h.from)
	cmd.Flag("to", "Where to end, likewise; the default is now, and of a file its last sample.").PlaceHolder("TIME").StringVar(&h.to)
	cmd.Flag("step", "With --prometheus.url or --openmetrics: the time between two looks.").Default(history.DefaultStep.String()).DurationVar(&h.step)
	cmd.Flag("prometheus.match", `Matcher of a label that narrows what is asked for, like cluster="a"; may be repeated.`).PlaceHolder("MATCHER").StringsVar(&h.match)
	cmd.Flag("prometheus.tenant", "Tenant to ask as, sent as X-Scope-OrgID.").StringVar(&h.tenant)
	cmd.Flag("prometheus.bearer-token-file", "File with a bearer token.").PlaceHolder("FILE").StringVar(&h.tokenFile)
	cmd.Flag("prometheus.user", "User name of basic authentication.").StringVar(&h.user)
	cmd.Flag("prometheus.password-file", "File with its password.").PlaceHolder("FILE").StringVar(&h.password)
	cmd.Flag("prometheus.ca-file", "File of the certificates that the server is trusted by, instead of the system's.").PlaceHolder("FILE").StringVar(&h.ca)
}

func (h *historyFlags) given() bool { return h.url != "" || h.file != "" }

// check refuses flags that do not belong together.
func (h *historyFlags) check(other bool) error {
	asks := h.tenant+h.tokenFile+h.user+h.password+h.ca != "" || len(h.match) > 0
	switch {
	case h.url != "" && h.file != "":
		return errors.New("--prometheus.url and --openmetrics are two different pasts: give one of them")
	case h.given() && other:
		return errors.New("--prometheus.url and --openmetrics replay the past of a fleet: give them without --series and --recording")
	case asks && h.url == "":
		return errors.New("--prometheus.match and what else begins with --prometheus. go with --prometheus.url")
	case !h.given() && h.from+h.to != "":
		return errors.New("--from and --to go with --prometheus.url and --openmetrics")
	case h.url != "" && h.from == "":
		return errors.New("--prometheus.url needs --from, as a time or like 7d for seven days ago")
	case (h.user == "") != (h.password == ""):
		return errors.New("--prometheus.user and --prometheus.password-file go together")
	case h.user != "" && h.tokenFile != "":
		return errors.New("give either --prometheus.bearer-token-file or --prometheus.user")
	}
	return nil
}

// span reads the times; now is when "ago" is counted from.
func (h *historyFlags) span(now time.Time) (history.Span, error) {
	s := history.Span{Step: h.step}
	var err error
	if s.From, err = moment(h.from, now); err != nil {
		return s, fmt.Errorf("--from: %w", err)
	}
	if s.To, err = moment(h.to, now); err != nil {
		return s, fmt.Errorf("--to: %w", err)
	}
	if h.url != "" && s.To.IsZero() {
		s.To = now
	}
	if !s.From.IsZero() && !s.To.IsZero() && !s.To.After(s.From) {
		return s, fmt.Errorf("--to %s is not after --from %s", s.To.UTC().Format(time.RFC3339), s.From.UTC().Format(time.RFC3339))
	}
	if h.step < time.Second || h.step > time.Hour || h.step%time.Millisecond != 0 {
		return s, fmt.Errorf("--step %s: give one from 1s to 1h", h.step)
	}
	return s, nil
}

// moment reads a time, or how long before now; zero for "".
func moment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Unix(seconds, 0).UTC(), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UTC(), nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n > 0 && n < 36500 {
			return now.Add(-time.Duration(n * float64(24*time.Hour))), nil
		}
	}
	if ago, err := time.ParseDuration(s); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither 2006-01-02T15:04:05Z, nor seconds since 1970, nor how long ago, like 7d or 36h", s)
}

// replayHistory runs the detectors over the past and writes what they would have told.
func (r *recordings) replayHistory(ctx context.Context, p *program, workers int) error {
	h := &r.history
	span, err := h.span(time.Now())
	if err != nil {
		return wrongUsage{err}
	}
	truths, err := r.truths()
	if err != nil {
		return err
	}
	assembler := series.New(series.Config{Log: p.log})
	source, name, closed, err := h.source(ctx, p, assembler.Metrics(), span)
	if err != nil {
		return err
	}
	o := backtest.HistoryOptions{Name: name, Truths: truths, Labelled: r.labels != "", Workers: workers, Log: p.log}
	began := time.Now()
	done, err := backtest.History(ctx, o, func(ctx context.Context, observe func(time.Time, []*collector.Snapshot) error) error {
		stats, err := history.Replay(ctx, source, assembler, observe)
		p.log.Info("The past was replayed.", "from", stats.From, "to", stats.To, "looks", stats.Rounds, "samples", stats.Samples, "taken", stats.Kept, "took", time.Since(began).Round(time.Millisecond))
		return err
	})
	err = errors.Join(err, closed())
	if done == nil {
		return err
	}
	return errors.Join(err, r.write(p, done))
}

// source opens the past, and says what it is called.
func (h *historyFlags) source(ctx context.Context, p *program, metrics []string, span history.Span) (history.Source, string, func() error, error) {
	if h.file != "" {
		f, err := history.ReadFile(ctx, h.file, metrics, span)
		if err != nil {
			return nil, "", nil, err
		}
		return f, h.file, f.Close, nil
	}
	address := page.Address{URL: h.url, TLS: page.TLS{CAFile: h.ca}, User: h.user}
	if h.tokenFile != "" {
		address.Token = secret(h.tokenFile, "")
	}
	if h.password != "" {
		address.Password = secret(h.password, "")
	}
	var headers []promql.Header
	if h.tenant != "" {
		headers = append(headers, promql.Header{Name: "X-Scope-OrgID", Value: func() (string, error) { return h.tenant, nil }})
	}
	prom, err := history.NewPrometheus(history.PrometheusConfig{Address: address, Headers: headers, Match: h.match, Metrics: metrics, Log: p.log}, span)
	if err != nil {
		return nil, "", nil, err
	}
	return prom, prom.Name(), func() error { prom.Close(); return nil }, nil
}
