package ledger

import (
	"log/slog"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
)

const h100 = "NVIDIA H100 80GB HBM3"

var (
	start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	train = collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	chat  = collector.Owner{Kind: "pod", ID: "inference/chat-0", Team: "assistants"}
)

func openStore(t testing.TB, path string) *store.Store {
	t.Helper()
	st, err := store.Open(path, 5*time.Second, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func newBook(t testing.TB, cfg price.Config) *price.Book {
	t.Helper()
	b, err := price.NewBook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bench is a ledger with its store.
type bench struct {
	*Ledger
	t     testing.TB
	store *store.Store
	cfg   Config
}

func newBench(t testing.TB, prices price.Config) *bench {
	t.Helper()
	b := &bench{t: t, store: openStore(t, filepath.Join(t.TempDir(), "state.db"))}
	b.cfg = Config{Node: "n1", Prices: newBook(t, prices), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	b.restart()
	return b
}

// restart begins anew with what is on disk.
func (b *bench) restart() {
	b.t.Helper()
	l, err := New(b.store, b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Ledger = l
}

func (b *bench) write() {
	b.t.Helper()
	if err := b.store.Update(b.WriteTx); err != nil {
		b.t.Fatal(err)
	}
}

// costs returns all that was booked.
func (b *bench) costs() *cost.Answer {
	b.t.Helper()
	a, err := b.Costs(time.Unix(0, 0), start.AddDate(10, 0, 0))
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// owned is an owner's state.
type owned struct {
	owner collector.Owner
	state cost.State
}

// sums adds up the time of the rows in seconds.
func (b *bench) sums() map[owned]float64 {
	b.t.Helper()
	out := map[owned]float64{}
	for _, r := range b.costs().Rows {
		out[owned{r.Owner, r.State}] += time.Duration(r.Time).Seconds()
	}
	return out
}

// node is a snapshot in the making.
type node struct{ *collector.Snapshot }

// at is a node of GPUs that rest, with fresh readings and nobody on them.
func at(when time.Time, gpus int) node {
	s := &collector.Snapshot{Time: when, Node: collector.Node{Name: "n1", Readings: collector.NewReadings(metric.Node)},
		Sources: []collector.SourceState{{Name: "nvml", Interval: time.Second, Last: when}, {Name: "inference", Interval: 5 * time.Second, Last: when}}}
	for i := range gpus {
		g := collector.GPU{Index: i, UUID: "GPU-" + string(rune('a'+i)), Model: h100, Present: true, Readings: collector.NewReadings(metric.GPU)}
		for row, v := range map[*metric.Def]float64{metric.GPUPresent: 1, metric.ProcessCount: 0, metric.SMActivity: 0, metric.Utilization: 0,
			metric.PowerDraw: 70, metric.PowerLimit: 700} {
			g.Set(row, v)
		}
		s.GPUs = append(s.GPUs, g)
	}
	return node{s}
}

// process puts one on a GPU, or on an instance of it.
func (n node) process(gpu int, mig string, o collector.Owner, sm, memory float64) {
	g := &n.GPUs[gpu]
	p := collector.Process{PID: 100 + len(n.Processes), Name: "python", GPU: gpu, UUID: g.UUID, MIG: mig, Owner: o, Readings: collector.NewReadings(metric.Process)}
	p.Set(metric.ProcessUtilization, sm)
	p.Set(metric.ProcessMemoryUsed, memory)
	n.Processes = append(n.Processes, p)
	g.Set(metric.ProcessCount, g.Value(metric.ProcessCount)+1)
}

func (n node) instance(gpu, gi int, profile string, sm float64, given ...collector.Owner) {
	g := &n.GPUs[gpu]
	g.MIG = true
	m := collector.Instance{GPU: gpu, UUID: g.UUID, GI: gi, Profile: profile, Readings: collector.NewReadings(metric.Instance)}
	m.Set(metric.MIGProcesses, 0)
	m.Set(metric.MIGSMActivity, sm)
	for _, o := range given {
		m.Allocations = append(m.Allocations, collector.Allocation{UUID: g.UUID, MIG: m.MIG(), Owner: o})
	}
	n.Instances = append(n.Instances, m)
}

// exact is what time at a price comes to, rounded down.
func exact(parts ...*big.Int) int64 {
	sum := new(big.Int)
	for _, p := range parts {
		sum.Add(sum, p)
	}
	return sum.Div(sum, big.NewInt(cost.PerHour)).Int64()
}

func times(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
