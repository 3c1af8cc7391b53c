// Package metric is the catalogue: the one table of everything that gpuvigil
// measures or says. The sources, the scrape endpoint, the detectors, the
// dashboards, the generated rules and the reference docs all read it, so a name,
// a unit or a physical range is written down once.
//
// It imports the standard library only and is at the bottom of the import graph.
package metric

import (
	"fmt"
	"math"
	"strings"
)

// Kind is the Prometheus type of a row.
type Kind uint8

// The kinds of rows.
const (
	Gauge     Kind = iota // may go up and down
	Counter               // only goes up, restarts at zero; its name ends in _total
	Info                  // constant 1, its labels are the message; its name ends in _info
	Histogram             // has no column: it is beside an entity's readings
)

// String returns the type as the text format spells it: an info row is a gauge there.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case Histogram:
		return "histogram"
	}
	return "gauge"
}

// Entity is the kind of thing that a row describes. Every entity has a vector of
// readings, one column (or, with a closed dimension, several) for each row.
type Entity uint8

// The entities. Agent, Role and Finding rows have no vector: their samples come from
// the agent's own counters and from the detector engine.
const (
	Node Entity = iota
	GPU
	Instance  // a MIG instance
	Process   // a process on a GPU, or those of one name; no series by default
	Endpoint  // a model of an inference server as seen through its metrics page
	Latency   // the same in its histograms; has no vector
	Target    // a metrics page of an inference server
	Xid       // one Xid code on one GPU
	Link      // one NVLink of a GPU; sampled in the full profile only
	Workload  // what one owner runs on the node
	Account   // what one owner has had of one GPU
	Interface // one port of an InfiniBand or RoCE adapter
	Source    // a source of samples
	Agent     // gpuvigil itself
	Finding   // what the detectors say
	Option    // a GPU, in what only the configuration switches on; has no vector
	Job       // a batch job of the cluster; told by the one cluster role
	Queue     // a queue of the cluster; the rest is told by the one cluster role, too
	Waiting   // who waits in a queue for GPUs, and for what reason
	Pool      // nodes of a cluster that are alike
	Resource  // one kind of device of a pool
	Scaler    // an autoscaler of something that has GPUs
	Scheduler // a scheduler that is asked
	Reader    // a kind of objects that is read from the API server
	Role      // the one cluster role itself, in what it makes of many nodes
	entities
)

var entityLabels = [entities][]string{
	Node:      {},
	GPU:       {"gpu", "uuid"},
	Instance:  {"gpu", "uuid", "mig", "profile"},
	Process:   {"gpu", "uuid", "process"},
	Endpoint:  {"endpoint", "engine", "model"},
	Latency:   {"endpoint", "engine", "model"},
	Target:    {"endpoint"},
	Xid:       {"gpu", "uuid", "xid"},
	Link:      {"gpu", "uuid", "link"},
	Workload:  {"owner_kind", "owner", "team"},
	Account:   {"gpu", "uuid", "owner_kind", "owner", "team"},
	Interface: {"device", "port"},
	Source:    {"source"},
	Agent:     {},
	Finding:   {"rule", "severity", "subject", "cause"},
	Option:    {"gpu", "uuid"},
	Job:       {"owner_kind", "owner"},
	Queue:     {"scheduler", "queue"},
	Waiting:   {"scheduler", "queue", "account", "team", "reason"},
	Pool:      {"scheduler", "pool"},
	Resource:  {"scheduler", "pool", "resource"},
	Scaler:    {"kind", "namespace", "autoscaler"},
	Scheduler: {"scheduler"},
	Reader:    {"resource"},
	Role:      {},
}

var entityNames = [entities]string{"node", "gpu", "instance", "process", "endpoint", "latency", "target", "xid", "link", "workload", "account", "interface", "source", "agent", "finding", "option", "job", "queue", "waiting", "pool", "resource", "scaler", "scheduler", "reader", "role"}

// String returns the entity's name in lower case.
func (e Entity) String() string { return entityNames[e] }

// Labels returns the label names that every row of the entity carries. The
// slice must not be modified.
func (e Entity) Labels() []string { return entityLabels[e] }

// Tier says how often a row is sampled. Each (entity, tier) carries its own
// sample time, so a detector can tell a new reading from a held one.
type Tier uint8

// The tiers, from the fastest to the slowest. Their intervals are configuration;
// the defaults are 1 s, 15 s, 15 s and 60 s.
const (
	Fast      Tier = iota // what changes: utilization, power, memory, clocks
	Slow                  // PCIe, ECC, whatever a driver answers slowly
	Processes             // process lists, which take the driver's global lock
	Inventory             // identity, versions, limits
	Tiers                 // the number of tiers
)

var tierNames = [Tiers]string{"fast", "slow", "processes", "inventory"}

// String returns the tier's name as the configuration spells it.
func (t Tier) String() string { return tierNames[t] }

// Dimension is a closed set of label values. A row that has one takes a column
// for each value.
type Dimension struct {
	Label  string
	Values []string
	Shown  int // how many values at most have series in the default profile; 0: all
}

// Index returns the position of value in the dimension, or -1.
func (d *Dimension) Index(value string) int {
	for i, v := range d.Values {
		if v == value {
			return i
		}
	}
	return -1
}

// Def is one row of the catalogue. Its pointer is its identity; the catalogue's
// variables are the only instances.
type Def struct {
	Name   string     // full Prometheus name: base unit, _total for counters
	Help   string     // one sentence, for HELP and the reference docs
	Kind   Kind       // Prometheus type
	Entity Entity     // what the row describes
	Tier   Tier       // how often it is sampled
	Dim    *Dimension // closed dimension, or nil
	Labels []string   // further labels (Info, Agent and Finding rows only)

	// Detail marks what is sampled but is a series only in the full profile: the
	// default keeps within its budget of series.
	Detail bool
	// Sparse marks a counter that has a series for each rule, reason or kind and nearly
	// always is 0: a series is there from its first event on.
	Sparse bool

	// Min and Max bound what is physically possible, in base units. A value
	// outside is dropped and counted, never shown. Both zero: no bounds but
	// finite and, for counters, not negative.
	Min, Max float64

	NVML  string  // the NVML call and selector that it comes from, or empty
	Raw   string  // NVML's unit, for the docs: mW, MiB, %
	Scale float64 // raw × Scale is the value in base units; 0 means 1
	DCGM  []DCGM  // names under which dcgm-exporter publishes the same fact

	col int
}

// String returns the row's Prometheus name, so that a PromQL expression can be
// built with fmt.Sprintf from catalogue rows.
func (d *Def) String() string { return d.Name }

// Col returns the row's first column in its entity's vector.
func (d *Def) Col() int { return d.col }

// Width returns how many columns the row takes: one, or one for each value of
// its dimension.
func (d *Def) Width() int {
	if d.Dim == nil {
		return 1
	}
	return len(d.Dim.Values)
}

// LabelNames returns all label names of the row in the order in which they are
// exported: those of the entity, the dimension's, the further ones.
func (d *Def) LabelNames() []string {
	names := append([]string(nil), d.Entity.Labels()...)
	if d.Dim != nil {
		names = append(names, d.Dim.Label)
	}
	return append(names, d.Labels...)
}

// FromRaw converts a value in NVML's unit into the row's base unit.
func (d *Def) FromRaw(raw float64) float64 {
	if d.Scale == 0 {
		return raw
	}
	return raw * d.Scale
}

// Plausible reports whether v (in base units) is finite and within the row's
// physical range.
func (d *Def) Plausible(v float64) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	if d.Min == 0 && d.Max == 0 {
		return d.Kind != Counter || v >= 0
	}
	return v >= d.Min && v <= d.Max
}

var (
	all    []*Def
	widths [entities]int
)

// row adds a row to the catalogue. It is called only by the package's own
// variable declarations.
func row(d Def) *Def {
	d.col = widths[d.Entity]
	p := &d
	widths[d.Entity] += p.Width()
	all = append(all, p)
	return p
}

// All returns every row in the catalogue's order. The slice must not be modified.
func All() []*Def { return all }

// Of returns the rows of one entity in the order of their columns.
func Of(e Entity) []*Def {
	var rows []*Def
	for _, d := range all {
		if d.Entity == e {
			rows = append(rows, d)
		}
	}
	return rows
}

// VectorLen returns the length of an entity's vector of readings.
func VectorLen(e Entity) int { return widths[e] }

// ByName returns the row with the given Prometheus name.
func ByName(name string) (*Def, error) {
	for _, d := range all {
		if d.Name == name {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no metric %q in the catalogue", name)
}

// Series returns the row's series with the given values for its labels, in the
// order of LabelNames, as the text format writes it: for counters that are kept
// by name. It panics if there are too few or too many values.
func (d *Def) Series(values ...string) string {
	names := d.LabelNames()
	if len(names) != len(values) {
		panic(fmt.Sprintf("BUG: %s has labels %v, got values %q", d.Name, names, values))
	}
	if len(names) == 0 {
		return d.Name
	}
	var b strings.Builder
	b.WriteString(d.Name)
	for i, n := range names {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(n)
		b.WriteString(`="`)
		b.WriteString(labelEscaper.Replace(strings.ToValidUTF8(values[i], "\uFFFD")))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
