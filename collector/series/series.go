// Package series makes snapshots of nodes of the series that a Prometheus, or what
// speaks like one, has of them: samples go in one by one, in the order of time, and at
// any instant there is a snapshot of each node to be had. It does not matter whether
// they come from queries, by remote write or from a file: an Assembler knows no time
// but theirs and the one that it is asked for.
//
// The series of one target make up the page that it was scraped from, and are read as
// collector/scrape and collector/inference read such pages.
package series

import (
	"log/slog"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
)

// Label is one label of a series; the metric's name is that of the label __name__.
type Label struct{ Name, Value string }

// Config is what an Assembler needs. Of a field that is zero the default stands beside it.
type Config struct {
	// NodeLabels are the labels that name a series' node; of those that a series has the
	// first counts. DefaultNodeLabels. Where none is, its pod's node counts as
	// kube-state-metrics tells it, and else its instance without the port, under the name
	// that other series give the node of this instance.
	NodeLabels []string
	// ReplicaLabels tell the replicas of a Prometheus apart, of which one is believed.
	// DefaultReplicaLabels.
	ReplicaLabels []string

	Lookback time.Duration // for so long a sample stands; 5 min
	Failover time.Duration // one of two that tell the same may be silent for so long; 2 min
	Forget   time.Duration // a series without a sample for so long was never there; 2 h

	MaxSeries int // 4,000,000
	MaxNodes  int // 20,000

	// Shard is the part of the nodes that snapshots are made of. What the cluster says of its
	// nodes, and their labels, is known of all.
	Shard Shard

	// Describe says of an owner what the configuration does; nil: nothing is said.
	Describe func(o collector.Owner, container string) collector.Workload
	Log      *slog.Logger
}

// defaultNodeLabels are the labels by which exporters and relabelling name nodes.
var defaultNodeLabels = []string{"node", "nodename", "kubernetes_node", "Hostname", "hostname", "exported_node"}

// replica is also a label of Ray Serve's own, which no Prometheus has put there.
var defaultReplicaLabels = []string{"prometheus_replica", "__replica__", "replica"}

// DefaultNodeLabels returns the labels of Config.NodeLabels.
func DefaultNodeLabels() []string { return slices.Clone(defaultNodeLabels) }

// DefaultReplicaLabels returns the labels of Config.ReplicaLabels.
func DefaultReplicaLabels() []string { return slices.Clone(defaultReplicaLabels) }

func (c *Config) complete() {
	if len(c.NodeLabels) == 0 {
		c.NodeLabels = defaultNodeLabels
	}
	if len(c.ReplicaLabels) == 0 {
		c.ReplicaLabels = defaultReplicaLabels
	}
	for d, def := range map[*time.Duration]time.Duration{&c.Lookback: 5 * time.Minute, &c.Failover: 2 * time.Minute, &c.Forget: 2 * time.Hour} {
		if *d <= 0 {
			*d = def
		}
	}
	c.Forget = max(c.Forget, 2*c.Lookback)
	for n, def := range map[*int]int{&c.MaxSeries: 4_000_000, &c.MaxNodes: 20_000} {
		if *n <= 0 {
			*n = def
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Assembler makes snapshots of samples. It is used from one goroutine at a time.
type Assembler struct {
	cfg     Config
	vocab   *vocabulary
	index   index
	nodes   map[string]*node
	aliases aliases
	cluster cluster
	claims  map[string]claim // by uuid of a GPU
	limited bool             // a limit was met, and that is logged
	swept   time.Time        // when what was silent for long was forgotten last
	tally   tally

	// scratch
	moving []*set
	labels []exposition.Label
	text   []byte
}

// Series is one series of an Assembler.
type Series struct {
	set   *set
	name  *name
	at    int64 // of the newest sample, in milliseconds since 1970
	value float64
}

// never is the time of a series that has no sample.
const never = math.MinInt64

// New returns an assembler without samples.
func New(cfg Config) *Assembler {
	cfg.complete()
	return &Assembler{
		cfg: cfg, vocab: newVocabulary(), index: newIndex(), nodes: map[string]*node{}, aliases: newAliases(), cluster: newCluster(), claims: map[string]claim{},
	}
}

// Metrics returns the names of all metrics that something is made of, in order.
func (a *Assembler) Metrics() []string { return a.vocab.all() }

// Series returns the series with the labels, in any order; they are copied. It is nil,
// and counted by reason, if nobody wants the series or there are too many. It stays good
// while the Assembler does: after a long silence its samples only cost a little more.
func (a *Assembler) Series(labels []Label) *Series {
	var metric string
	for i := range labels {
		if labels[i].Name == "__name__" {
			metric = labels[i].Value
		}
	}
	n := a.vocab.names[metric]
	if n == nil || n.kind == ofCluster && idle(metric, labels) {
		a.tally.refuse(unwanted)
		return nil
	}
	s, reason := a.find(n, labels)
	if s == nil {
		a.tally.refuse(reason)
	}
	return s
}

// staleMarker is the NaN that says that a series has ended.
const staleMarker = 0x7ff0000000000002

// Add takes in a sample. One that is not newer than the series' last is dropped and
// counted: samples that come late tell of a page that was read already. A staleness
// marker ends the series until its next sample. Nothing is done for a nil series.
func (a *Assembler) Add(s *Series, t time.Time, v float64) {
	if s == nil {
		return
	}
	if s.set.forgotten {
		if s = a.again(s); s == nil {
			return
		}
	}
	at := t.UnixMilli()
	if at <= s.at {
		if at == s.at {
			a.tally.samples[duplicate]++
		} else {
			a.tally.samples[outOfOrder]++
		}
		return
	}
	s.at, s.value = at, v
	if p := s.set.target; p != nil && at > p.newest {
		p.newest = at
	}
	a.tally.samples[taken]++
}

// live reports whether the series' sample stands from the given time on.
func (s *Series) live(from int64) bool {
	return s.at >= from && math.Float64bits(s.value) != staleMarker
}
