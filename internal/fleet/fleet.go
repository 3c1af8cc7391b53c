// Package fleet is the one role of a cluster: what it asks the schedulers once, for
// everybody. Slurm and Kubernetes give the same answer, a Cluster, which it serves.
package fleet

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/kube"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// Scheduler is what is asked.
type Scheduler struct {
	Name    string
	Latest  func() *Cluster // nil while there is no answer that counts
	Health  func() Health
	Readers func() []kube.Health // nil for Slurm
}

// Health is how well a scheduler answers.
type Health struct {
	Up           bool
	Last         time.Time // of the last answer; zero: there was none
	Good, Failed uint64    // tries since the start
	Absent       uint64    // those for kinds that the cluster does not have, neither good nor failed
	Unreadable   uint64    // rows that could not be read since the start
}

// Cluster is what a scheduler says at a time. It must not be modified.
type Cluster struct {
	Time    time.Time
	Jobs    []Job // of Slurm, that have GPUs
	Work    []Work
	Nodes   []Node
	Queues  []Queue
	Scalers []Scaler

	Ranks map[string]collector.Owner // of which job a pod with GPUs is, by namespace/name
}

// Job is a job that has GPUs, with whom the agents call its owner.
type Job struct {
	OwnerKind, Owner                                 string
	Array, User, Account, Partition, QOS, Name, Team string
	GPUs                                             int
}

// Work is jobs that are alike: they have or ask for GPUs.
type Work struct {
	Scheduler, Queue string // Scheduler is Kueue or Volcano where they have the queue
	Account, Team    string
	State            string // of metric.QueueState
	Reason           string // why it waits for GPUs; empty in another state
	Jobs, GPUs       int    // GPUs of each
	PerNode          int    // GPUs that each wants on one node
	Model            string // of GPUs that it asks for; empty: any, or not told
	Since            time.Time

	// Name is kind:id of the one job or pod that it is of, as its owner is called once it
	// runs, and Of what else people call it: an array, what made the pod.
	Name, Of string
	Asked    time.Time // since when it is pending, for whatever reason
	Told     string    // why, in the scheduler's own words

	// Free and Other are the free GPUs, of what waits or could not be placed: those that
	// are right for it, and those that are not. They are shared by what is alike.
	Free, Other []collector.Free
}

// Node is a node that has or should have GPUs.
type Node struct {
	Name       string
	Shared     []collector.Label // what it has in common with others: partition, zone, rack
	Pools      []string
	Model      string
	State      string // of metric.NodeState
	GPUs, Used int    // Unknown Used is negative
	Sick       int    // GPUs beside those, which the node has and cannot offer
	Resources  map[string]Amount
	Free       map[string]int // by metric.FreeCause; nil: not told
}

// Amount is devices of one kind.
type Amount struct{ Allocatable, Requested int }

// Queue is a queue as a scheduler of its own counts it. Negative numbers are not told.
type Queue struct {
	Scheduler, Name                          string
	Pending, Inadmissible, Inqueue, Admitted int
	Limit, Used                              int
}

// Scaler is an autoscaler of what has GPUs. Negative replicas are not told.
type Scaler struct {
	Kind, Namespace, Name       string
	TargetKind, Target, Metrics string
	Current, Desired, Min, Max  int
	Blind, AtMaximum            bool
	Unreadable, Paused          bool
}

// Config is what the role serves from. Log is required.
type Config struct {
	Schedulers []Scheduler
	Detect     detect.FleetConfig    // of what shows only across nodes
	Nodes      detect.DetectorConfig // of nodes that no agent judges
	Budget     detect.Budget         // of false findings, divided over the GPUs of all nodes
	Rules      map[rules.ID]detect.Setting
	Log        *slog.Logger

	// Brought says that snapshots of nodes are brought by Observe: without them nobody
	// watches. Else the schedulers are what is watched.
	Brought bool

	// Price is what an hour of a GPU of the model costs on a node whose agent does not say
	// it; NaN: that is not known. nil: no price is.
	Price   func(node, model string) (perHour float64, currency string)
	Budgets []Budget // of teams; of one that is not here the agents' configuration counts

	// Aside says that the schedulers are only asked what nodes have in common: another role
	// of the cluster, which has other nodes, judges and shows their queues.
	Aside bool

	// Follows reports whether another replica shows the findings, and what schedulers say, so
	// that nothing counts twice; nil: there is none. It must not block.
	Follows func() bool

	// Rows add what others have to say to the page. They are called for each scrape.
	Rows []func(add func(d *metric.Def, v float64, labels ...string))

	// Tell is given the incidents that opened, changed or resolved, in order; nil: nobody
	// is told. It must not block.
	Tell func([]detect.Incident)

	// Evidence adds what is known of an agent's findings beyond their numbers; nil: nothing
	// is. It is called from several goroutines, and must not block.
	Evidence func(s *collector.Snapshot, findings []detect.Finding)

	// AgentCalls is how often agents were asked for it, with and without an answer; nil:
	// they are not asked.
	AgentCalls func() (answered, failed uint64)
}

// Fleet answers for one cluster.
type Fleet struct {
	cfg      atomic.Pointer[Config]
	loaded   atomic.Int64 // when the configuration in force was, in seconds
	outdated atomic.Bool  // a later one could not be used
	watch    watch
	capped   [len(cappedKinds)]atomic.Uint64
}

// New returns the role's server.
func New(cfg Config) *Fleet {
	f := &Fleet{}
	f.Configure(cfg)
	return f
}

// Configure replaces what the role serves from. Findings that there are stay.
func (f *Fleet) Configure(cfg Config) {
	f.watch.configure(cfg)
	f.cfg.Store(&cfg)
	f.loaded.Store(time.Now().Unix())
	f.outdated.Store(false)
}

// KeepConfiguration notes that a new configuration could not be used.
func (f *Fleet) KeepConfiguration() { f.outdated.Store(true) }

// Handler serves /metrics, /-/healthy and /-/ready. It asks nobody: a scrape reads the
// schedulers' last answers.
func (f *Fleet) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if _, err := w.Write(f.page(time.Now())); err != nil {
			f.cfg.Load().Log.Debug("A scrape was not read to its end.", "err", err)
		}
	})
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if silent := f.silent(); len(silent) > 0 {
			http.Error(w, strings.Join(silent, " and ")+" did not answer lately: see the log.", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// silent names the schedulers of which nothing is known.
func (f *Fleet) silent() []string {
	var out []string
	for _, s := range f.cfg.Load().Schedulers {
		if s.Latest() == nil {
			out = append(out, s.Name)
		}
	}
	return out
}
