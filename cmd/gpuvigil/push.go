package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/internal/config"
	"gpuvigil/internal/push"
)

// pushDir is where in the state directory waits what could not be pushed yet. A demo
// keeps its own: what is made up must not mix with what was seen.
func pushDir(d *demo) string {
	if d != nil {
		return "demo-push"
	}
	return "push"
}

// pushed is what is pushed: a page, and the labels that a scrape of it would give.
type pushed struct {
	page     func() (families []*dto.MetricFamily, done func(), err error)
	job      string
	instance string
	dir      string // of the buffer
}

// newPusher returns what pushes to the receiver of the configuration.
func newPusher(c *config.Push, what pushed, log *slog.Logger) (*push.Pusher, error) {
	to := address(c.Page)
	client, err := to.Client(time.Duration(c.Timeout))
	if err != nil {
		return nil, err
	}
	if t, ok := client.Transport.(*http.Transport); ok {
		t.Proxy = http.ProxyFromEnvironment // whoever cannot be reached often cannot reach others directly either
	}
	labels := map[string]string{"job": what.job, "instance": what.instance}
	maps.Copy(labels, c.Labels)
	cfg := push.Config{
		Page: what.page, URL: c.URL, Format: push.RemoteWrite, Client: client, Authorize: to.Authorize, Headers: c.Headers,
		Interval: time.Duration(c.Interval), Timeout: time.Duration(c.Timeout),
		Dir: what.dir, MaxBytes: int64(c.Buffer.MaxMiB) << 20, MaxAge: time.Duration(c.Buffer.MaxAge),
		Log: log.With("component", "push"),
	}
	if c.Format == "import" {
		cfg.Format = push.Import
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		cfg.Labels = append(cfg.Labels, push.Label{Name: name, Value: labels[name]})
	}
	p := push.New(cfg)
	cfg.Log.Info("Samples are pushed.", "to", p.To(), "interval", cfg.Interval)
	return p, nil
}

// checkPush reads once what it takes to push.
func checkPush(c *config.Config, key string, p *config.Push) error {
	if !p.Given() {
		return nil
	}
	if err := checkPage(c, key, p.Page); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	return nil
}
