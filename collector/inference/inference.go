// Package inference is the source of the demand side: how many requests the
// inference servers beside the GPUs work on, how many wait, and for how long.
package inference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	maxPage     = 16 << 20    // bytes of a page; vLLM with 40 models serves about 1 MiB
	maxModels   = 64          // of one target, as series
	maxAtOnce   = 8           // targets read side by side
	queueWindow = time.Minute // over which the queue-time quantile is taken
)

// Target is one server's metrics page.
type Target struct {
	URL    string
	Engine string   // auto, or the engine's name
	GPUs   []string // uuids that it runs on; empty: any of the node
	Token  func() (string, error)
}

// Inference reads the pages of several targets. It is used from one goroutine.
type Inference struct {
	targets []*target
	client  *http.Client
	log     *slog.Logger
}

type target struct {
	Target
	shown   string // the URL without user info and query
	known   []collector.Endpoint
	windows map[string]*window
	failing bool
}

var _ collector.Source = (*Inference)(nil)

// New returns a source for the targets. timeout bounds the reading of one page.
func New(targets []Target, timeout time.Duration, log *slog.Logger) (*Inference, error) {
	s := &Inference{log: log, client: &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Control: refuseLinkLocal}).DialContext,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     time.Minute,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Host != via[0].URL.Host || len(via) > 3 {
				return errors.New("it redirects elsewhere, which is not followed")
			}
			return nil
		},
	}}
	for _, t := range targets {
		u, err := url.Parse(t.URL)
		if err != nil {
			return nil, errors.New("an inference target's URL does not parse (not shown, it may hold a password)")
		}
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		s.targets = append(s.targets, &target{Target: t, shown: u.String(), windows: map[string]*window{}})
	}
	return s, nil
}

// refuseLinkLocal keeps a target, or a name that resolves to one, from being the
// cloud's metadata service.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && (ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast()) {
		return errors.New("link-local addresses are not read")
	}
	return nil
}

// Name is "inference".
func (s *Inference) Name() string { return "inference" }

// Sample reads all targets side by side. A target that cannot be read is in the
// part as not up, and named in the error; the others are complete.
func (s *Inference) Sample(ctx context.Context) (*collector.Part, error) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, maxAtOnce)
	errs := make([]error, len(s.targets))
	for i, t := range s.targets {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = s.read(ctx, t)
		})
	}
	wait.Wait()
	part := &collector.Part{Time: time.Now()}
	for i, t := range s.targets {
		part.Endpoints = append(part.Endpoints, t.known...)
		if failing := errs[i] != nil; failing != t.failing {
			t.failing = failing
			if failing {
				s.log.Warn("An inference server's metrics cannot be read.", "endpoint", t.shown, "err", errs[i])
			} else {
				s.log.Info("An inference server's metrics are read again.", "endpoint", t.shown)
			}
		}
	}
	return part, errors.Join(errs...)
}

// read replaces what is known of the target.
func (s *Inference) read(ctx context.Context, t *target) error {
	body, err := s.fetch(ctx, t)
	now := time.Now()
	var found *engine
	var models map[string]*page
	if err == nil {
		found, models, err = parse(body, t.Engine)
	}
	if err != nil {
		t.down(now)
		return fmt.Errorf("read the metrics of %s: %w", t.shown, err)
	}
	names := make([]string, 0, len(models))
	for name := range models {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		names = []string{""} // it serves, and has served nobody yet
		models[""] = &page{}
	}
	if len(names) > maxModels {
		modelsCapped.Add(len(names) - maxModels)
		names = names[:maxModels]
	}
	t.known = nil
	for _, name := range names {
		t.known = append(t.known, t.endpoint(now, found.name, name, models[name]))
	}
	return nil
}

func (t *target) endpoint(now time.Time, engine, model string, p *page) collector.Endpoint {
	r := collector.NewReadings(metric.Endpoint)
	r.Set(metric.EndpointUp, 1)
	for d, v := range p.values {
		r.Set(d, v)
	}
	if len(p.queue.count) > 0 {
		w := t.windows[model]
		if w == nil {
			w = &window{length: queueWindow}
			t.windows[model] = w
		}
		if p95 := w.add(now, p.queue).quantile(0.95); metric.QueueTimeP95.Plausible(p95) {
			r.Set(metric.QueueTimeP95, p95)
		}
	}
	r.Stamp(metric.Fast, now)
	return collector.Endpoint{URL: t.shown, Engine: engine, Model: model, GPUs: t.GPUs, Readings: r}
}

// down keeps the target's names and says that it does not answer. Numbers of an
// earlier page would pass for those of now.
func (t *target) down(now time.Time) {
	if len(t.known) == 0 {
		t.known = []collector.Endpoint{{URL: t.shown, Engine: t.Engine, GPUs: t.GPUs}}
	}
	down := make([]collector.Endpoint, len(t.known))
	for i, e := range t.known {
		e.Readings = collector.NewReadings(metric.Endpoint)
		e.Set(metric.EndpointUp, 0)
		e.Stamp(metric.Fast, now)
		down[i] = e
	}
	t.known = down
}

func (s *Inference) fetch(ctx context.Context, t *target) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return nil, errors.New("its URL does not parse (not shown, it may hold a password)")
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	if t.Token != nil {
		token, err := t.Token()
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return nil, fmt.Errorf("its page breaks off: %w", err)
	}
	if len(body) > maxPage {
		return nil, fmt.Errorf("its page is larger than %d MiB", maxPage>>20)
	}
	return body, nil
}

// parse judges a page by its body: a login page is HTML with status 200, and a
// wrong path can be JSON.
func parse(body []byte, want string) (*engine, map[string]*page, error) {
	switch trimmed := bytes.TrimSpace(body); {
	case len(trimmed) == 0:
		return nil, nil, errors.New("its page is empty")
	case trimmed[0] == '<':
		return nil, nil, errors.New("it serves HTML: is this the metrics path, and does it want a login?")
	case trimmed[0] == '[' || trimmed[0] == '{' && bytes.HasSuffix(trimmed, []byte("}")):
		return nil, nil, errors.New("it serves JSON: is this the metrics path?")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("its page is not in the text format: %w", err)
	}
	found := recognise(body)
	switch {
	case found == nil:
		return nil, nil, fmt.Errorf("its page is of no known inference server: known are %s", strings.Join(engineNames(), ", "))
	case want != "auto" && found.name != want:
		return nil, nil, fmt.Errorf("its page is %s's, the configuration says %s", found.name, want)
	}
	return found, found.read(families), nil
}

func engineNames() []string {
	var names []string
	for _, e := range engines {
		names = append(names, e.name)
	}
	return names
}
