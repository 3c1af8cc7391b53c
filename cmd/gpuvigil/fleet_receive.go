package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gpuvigil/collector"
	"gpuvigil/collector/remotewrite"
	"gpuvigil/collector/series"
	"gpuvigil/internal/config"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/push"
	"gpuvigil/internal/server"
)

// writePath is where the role receives remote write, as Prometheus does.
const writePath = "/api/v1/write"

// fleetJob is the label job of what the role sends, unless the configuration has another.
const fleetJob = "gpuvigil-fleet"

// remotes are the role's remote write, in and out. What there is of it is decided at the
// start: a reload does not change it.
type remotes struct {
	receiver  *remotewrite.Receiver // nil: it receives nothing
	assembler *series.Assembler     // of the receiver
	anybody   bool                  // may send to it
	pusher    *push.Pusher          // nil: it sends nothing
}

// newRemotes returns what the configuration wants. page returns the role's page, and dir is
// the state directory.
func newRemotes(cfg *config.Config, dir string, page func() []byte, log *slog.Logger) (*remotes, error) {
	r := &remotes{anybody: cfg.Fleet.Receive.Unauthenticated}
	if c := &cfg.Fleet.Receive; c.Enabled {
		log := log.With("component", "remote_write")
		r.assembler = series.New(series.Config{Lookback: receiveKeep, Shard: shardOf(cfg), Log: log})
		r.receiver = remotewrite.New(remotewrite.Config{
			Interval: time.Duration(c.Interval), Grace: time.Duration(c.Grace), Keep: receiveKeep, Limits: remotewrite.Limits{Samples: c.MaxSamples},
			Assembler: r.assembler, Log: log,
			Own: series.Label{Name: "job", Value: cmp.Or(cfg.Fleet.RemoteWrite.Labels["job"], fleetJob)},
		})
	}
	if c := &cfg.Fleet.RemoteWrite; c.Given() {
		p, err := newPusher(c, pushed{page: judged(page), job: fleetJob, instance: fleetInstance(cfg), dir: filepath.Join(dir, "fleet-push")}, log)
		if err != nil {
			return nil, fmt.Errorf("fleet.remote_write: %w", err)
		}
		r.pusher = p
	}
	return r, nil
}

// receiveKeep is for how long a sample stands, as in PromQL.
const receiveKeep = 5 * time.Minute

// run receives and sends until ctx ends, and hands the snapshots on.
func (r *remotes) run(ctx context.Context, use func(at time.Time, snapshots []*collector.Snapshot)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if r.pusher != nil {
			r.pusher.Run(ctx)
		}
	}()
	if r.receiver != nil {
		r.receiver.Run(ctx, use)
	}
	<-done
}

// handler receives what is sent to it, and leaves the rest to another one.
func (r *remotes) handler(rest http.Handler, authenticated func() bool) http.Handler {
	if r.receiver == nil {
		return rest
	}
	mux := http.NewServeMux()
	mux.Handle("/", rest)
	mux.Handle(writePath, server.Local(r.receiver.Handler(), func() bool { return r.anybody || authenticated() }))
	return mux
}

// rows add to the role's page.
func (r *remotes) rows() (out []func(func(d *metric.Def, v float64, labels ...string))) {
	if r.receiver != nil {
		out = append(out, r.receiver.Tell, r.assembler.Tell)
	}
	if r.pusher != nil {
		out = append(out, r.pusher.Tell)
	}
	return out
}

// judged returns what of the role's page is sent: what it has judged and how it does
// itself. What schedulers and agents say is theirs to send.
func judged(page func() []byte) func() ([]*dto.MetricFamily, func(), error) {
	own := map[string]bool{}
	for _, d := range metric.All() {
		switch d.Entity {
		case metric.Finding, metric.Role, metric.Agent:
			own[d.Name] = true
		}
	}
	return func() ([]*dto.MetricFamily, func(), error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all, err := parser.TextToMetricFamilies(bytes.NewReader(page()))
		if err != nil {
			return nil, nil, fmt.Errorf("read the role's own page: %w", err)
		}
		var out []*dto.MetricFamily
		for name, f := range all {
			if own[name] {
				out = append(out, f)
			}
		}
		return out, func() {}, nil
	}
}
