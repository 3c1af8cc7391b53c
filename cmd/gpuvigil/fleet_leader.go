package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"gpuvigil/alerting"
	"gpuvigil/collector/kube"
	"gpuvigil/internal/config"
	"gpuvigil/internal/lease"
	"gpuvigil/internal/metric"
)

// podNamespace is where Kubernetes writes down the namespace of a pod.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// newElector returns what chooses the replica that notifies; nil: there is only this one.
// That is decided at the start.
func newElector(cfg *config.Config, outbox *alerting.Outbox, log *slog.Logger) (*lease.Elector, error) {
	l := &cfg.Fleet.Leader
	if !l.Given() {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("fleet.leader: find this machine's name: %w", err)
	}
	// Shards lead each for themselves.
	part := ""
	if s := cfg.Fleet.Shard; s.Of > 1 {
		part = fmt.Sprintf("-%d", s.Index)
	}
	var store lease.Store = lease.File{Path: l.File + part}
	if l.Lease != "" {
		if store, err = kubernetesLease(cfg, l.Lease+part); err != nil {
			return nil, fmt.Errorf("fleet.leader: %w", err)
		}
	}
	return lease.New(lease.Config{
		// A process that is started anew is another one: it may know less.
		Store: store, Identity: host + "_" + rand.Text()[:8], Duration: time.Duration(l.Duration), Told: outbox.Told, Heard: outbox.Heard, Log: log.With("component", "leader"),
	}), nil
}

func kubernetesLease(cfg *config.Config, name string) (lease.Store, error) {
	k := cfg.Fleet.Kubernetes
	client, err := kube.New(kube.Config{Kubeconfig: k.Kubeconfig, UserAgent: apiUserAgent("fleet"), Timeout: time.Duration(k.Timeout)})
	if err != nil {
		return nil, err
	}
	namespace := cfg.Fleet.Leader.Namespace
	if namespace == "" {
		own, err := os.ReadFile(podNamespace)
		if err != nil {
			return nil, fmt.Errorf("find the pod's own namespace: %w: name one in fleet.leader.namespace", err)
		}
		namespace = strings.TrimSpace(string(own))
	}
	return lease.Kubernetes{Client: client, Namespace: namespace, Name: name}, nil
}

// elect has this replica try to lead, and returns what ends that.
func (r *fleetRecorder) elect(ctx context.Context) (end func()) {
	if r.elector == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.elector.Run(ctx)
	}()
	return func() {
		stop()
		<-done
	}
}

// pushed is what of the page is sent by remote write: nothing of a replica that follows, as
// the series of both would have the same labels.
func (r *fleetRecorder) pushed() []byte {
	if r.follows() {
		return nil
	}
	return r.role.Page(time.Now())
}

// follows reports whether another replica notifies, or nobody does yet.
func (r *fleetRecorder) follows() bool { return r.elector != nil && !r.elector.Leads() }

// tellWhileLeading runs what tells people as long as this replica leads, until ctx ends.
func (r *fleetRecorder) tellWhileLeading(ctx context.Context, tell func(context.Context) []func() error) error {
	for {
		term := ctx
		if r.elector != nil {
			t, err := r.elector.Wait(ctx)
			if err != nil {
				return nil // it has ended without leading
			}
			term = t
		}
		inner, stop := context.WithCancel(ctx)
		detach := context.AfterFunc(term, stop)
		running, inner := errgroup.WithContext(inner)
		for _, run := range tell(inner) {
			running.Go(run)
		}
		err := running.Wait()
		detach()
		stop()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// leads adds to the role's page whether this replica leads.
func (r *fleetRecorder) leads(add func(d *metric.Def, v float64, labels ...string)) {
	if r.elector == nil {
		return
	}
	v := 0.0
	if r.elector.Leads() {
		v = 1
	}
	add(metric.FleetLeader, v)
}

// leaderNotice says on the page of a replica that does not notify who does.
func (r *fleetRecorder) leaderNotice() []string {
	if !r.follows() {
		return nil
	}
	who := r.elector.Leader()
	if who == "" {
		return []string{"This replica does not notify: nobody leads yet."}
	}
	return []string{"This replica does not notify: " + who + " leads. Acknowledge and snooze there."}
}
