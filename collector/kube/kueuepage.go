package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxKueuePage bounds Kueue's page of metrics, which has a few hundred lines for a queue.
const maxKueuePage = 16 << 20

// ParseKueue reads Kueue's page of metrics: its ClusterQueues with what Kueue counts of
// them. It splits what waits into what could be admitted and what could not, which the
// API does not; quotas are on it only with Kueue's enableClusterQueueResources.
func ParseKueue(r io.Reader) ([]Queue, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	limited := &io.LimitedReader{R: r, N: maxKueuePage}
	families, err := parser.TextToMetricFamilies(limited)
	if limited.N <= 0 {
		return nil, fmt.Errorf("%w: more than %d MiB", ErrTooLarge, maxKueuePage>>20)
	}
	if err != nil {
		return nil, errors.New("it is not a page of metrics")
	}
	if families["kueue_pending_workloads"] == nil && families["kueue_admitted_active_workloads"] == nil {
		return nil, errors.New("it is a page of metrics, but not Kueue's: it has neither kueue_pending_workloads nor kueue_admitted_active_workloads")
	}
	all := map[string]*Queue{}
	each := func(family string, take func(q *Queue, labels map[string]string, v float64)) {
		for _, m := range families[family].GetMetric() {
			labels := labelsOf(m)
			v := m.GetGauge().GetValue() // nil for another type: then it is not Kueue's
			if m.GetGauge() == nil || labels["cluster_queue"] == "" || !(v >= 0 && v <= maxDevices) {
				continue
			}
			queue := name(labels["cluster_queue"])
			if all[queue] == nil {
				all[queue] = &Queue{UID: queue, Name: queue, Pending: Unknown, Inadmissible: Unknown, Inqueue: Unknown, Admitted: Unknown, Limit: Unknown, Used: Unknown}
			}
			take(all[queue], labels, v)
		}
	}
	each("kueue_pending_workloads", func(q *Queue, labels map[string]string, v float64) {
		q.Pending = max(q.Pending, 0) + int(v)
		if labels["status"] == "inadmissible" {
			q.Inadmissible = max(q.Inadmissible, 0) + int(v)
		}
	})
	each("kueue_admitted_active_workloads", func(q *Queue, _ map[string]string, v float64) { q.Admitted = max(q.Admitted, 0) + int(v) })
	each("kueue_cluster_queue_nominal_quota", func(q *Queue, labels map[string]string, v float64) {
		if IsGPU(labels["resource"]) {
			q.Limit = max(q.Limit, 0) + int(v)
		}
	})
	each("kueue_cluster_queue_resource_usage", func(q *Queue, labels map[string]string, v float64) {
		if IsGPU(labels["resource"]) {
			q.Used = max(q.Used, 0) + int(v)
		}
	})
	each("kueue_cluster_queue_status", func(q *Queue, labels map[string]string, v float64) {
		q.Stopped = q.Stopped || labels["status"] != "active" && v == 1
	})
	var out []Queue
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[key])
	}
	return out, nil
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// KueuePage reads Kueue's page of metrics from time to time.
type KueuePage struct {
	url    string
	every  time.Duration
	client *http.Client
	log    *slog.Logger

	mu     sync.Mutex
	queues []Queue
	health Health
}

// NewKueuePage returns a reader of the page. It asks nothing until Run.
func NewKueuePage(address string, every, timeout time.Duration, log *slog.Logger) *KueuePage {
	return &KueuePage{url: address, every: every, log: log, health: Health{Kind: Kind{Name: "kueue_metrics"}, State: Waiting}, client: &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Control: refuseLinkLocal}).DialContext,
			IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// refuseLinkLocal keeps a name from leading to the cloud's metadata service.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && (ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast()) {
		return errors.New("link-local addresses are not asked")
	}
	return nil
}

// Run reads until ctx ends.
func (k *KueuePage) Run(ctx context.Context) {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		queues, err := k.read(ctx)
		if ctx.Err() != nil {
			return
		}
		k.settle(queues, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *KueuePage) settle(queues []Queue, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.health.Err = err
	if err != nil {
		if k.health.State != Failing {
			k.log.Warn("Kueue's page of metrics could not be read.", "err", err)
		}
		k.health.State = Failing
		k.health.Failed++
		return
	}
	k.queues = queues
	k.health.State, k.health.Synced, k.health.Objects = Up, time.Now(), len(queues)
	k.health.Good++
}

func (k *KueuePage) read(ctx context.Context) ([]Queue, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, errors.New("read Kueue's metrics: the URL does not parse (not shown, it may hold a password)")
	}
	resp, err := k.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return nil, fmt.Errorf("read Kueue's metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read Kueue's metrics: it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	queues, err := ParseKueue(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read Kueue's metrics: %w", err)
	}
	return queues, nil
}

// All returns the queues of the last page that could be read.
func (k *KueuePage) All() []Queue {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.queues
}

// Health returns how well the page is read.
func (k *KueuePage) Health() Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.health
}
