package simfake_test

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
	"gpuvigil/collector/inference"
	"gpuvigil/collector/nvml"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/sim"
	"gpuvigil/internal/sim/simfake"
)

var start = time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)

const patience = time.Minute

func newNode(t *testing.T, scenario string) *simfake.Node {
	t.Helper()
	sc, err := sim.ScenarioByName(scenario)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(sim.Config{Seed: 1, Start: start, Scenario: sc})
	if err != nil {
		t.Fatal(err)
	}
	n, err := simfake.NewNode(s, t.TempDir(), start)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func update(t *testing.T, n *simfake.Node, at time.Duration) *collector.Part {
	t.Helper()
	p, err := n.Update(start.Add(at))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serve samples the node as the agent's child does, and returns the next of its
// parts that is what the caller waits for. There is one such library in a process.
func serve(t *testing.T, n *simfake.Node) (next func(what string, is func(*collector.Part) bool) *collector.Part) {
	t.Helper()
	lib, err := fakenvml.Build(t.Context(), t.TempDir(), fakenvml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(fakenvml.EnvFile, n.ValuesFile())
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := nvml.Serve(ctx, w, nvml.Config{
			LibraryPath: lib, ProcFS: n.ProcFS(), CallLimit: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Tiers: [metric.Tiers]time.Duration{metric.Fast: 100 * time.Millisecond, metric.Slow: 100 * time.Millisecond, metric.Inventory: 100 * time.Millisecond},
		})
		done <- err
		w.CloseWithError(err)
	}()
	t.Cleanup(func() {
		cancel()
		go io.Copy(io.Discard, r)
		if err := <-done; err != nil {
			t.Errorf("the sampler ended with %v", err)
		}
	})
	frames := frame.NewReader(r)
	return func(what string, is func(*collector.Part) bool) *collector.Part {
		t.Helper()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			p, err := frames.Read()
			if err != nil {
				t.Fatalf("waiting for %s: %v", what, err)
			}
			if is(p) {
				return p
			}
		}
		t.Fatalf("%v have passed without %s", patience, what)
		return nil
	}
}

// TestSampledNodeIsTheSimulatedOne takes the whole way: model, values file,
// library, go-nvml, sampler. What comes out is what went in.
func TestSampledNodeIsTheSimulatedOne(t *testing.T) {
	n := newNode(t, "e2e")
	want := update(t, n, 0)
	next := serve(t, n)

	got := next("all readings", func(p *collector.Part) bool {
		return len(p.GPUs) == len(want.GPUs) && len(p.Processes) == len(want.Processes) && p.GPUs[7].Has(metric.PowerLimit) && p.GPUs[7].Has(metric.ECCErrors) &&
			!slices.ContainsFunc(p.GPUs, func(g collector.GPU) bool { return !g.Has(metric.SMActivity) }) // wants two samples
	})
	for i, w := range want.GPUs {
		g := got.GPUs[i]
		identity := func(g collector.GPU) []string {
			return []string{g.UUID, g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.Architecture}
		}
		if diff := cmp.Diff(identity(w), identity(g)); diff != "" {
			t.Errorf("GPU %d is another one (-simulated +sampled):\n%s", i, diff)
		}
		compare(t, metric.GPU, g.UUID, w.Readings, g.Readings)
	}
	for i, w := range want.Processes {
		p := got.Processes[i]
		if w.PID != p.PID || w.Start != p.Start || w.UID != p.UID || !strings.HasPrefix(w.Name, p.Name) || p.Name == "" {
			t.Errorf("process %d %q of user %d is sampled as %d %q of user %d", w.PID, w.Name, w.UID, p.PID, p.Name, p.UID)
		}
		compare(t, metric.Process, w.Name, w.Readings, p.Readings)
	}
	for _, v := range got.Node.Versions {
		if !containsVersion(want.Node.Versions, v) {
			t.Errorf("sampled version %v, simulated %v", v, want.Node.Versions)
		}
	}
	if len(got.Node.Versions) != 4 {
		t.Errorf("sampled versions %v", got.Node.Versions)
	}

	update(t, n, 16*time.Second)
	next("Xid 31 on the notebook's GPU", hasXid(6, 31))
	update(t, n, 26*time.Second)
	lost := next("Xid 79 on the lost GPU", hasXid(0, 79))
	if lost.GPUs[0].Present {
		lost = next("a GPU that is lost", func(p *collector.Part) bool { return !p.GPUs[0].Present })
	}
	if !lost.GPUs[1].Present {
		t.Error("the GPUs beside the lost one are gone too")
	}
}

func compare(t *testing.T, e metric.Entity, what string, want, got collector.Readings) {
	t.Helper()
	for _, d := range metric.Of(e) {
		if d.NVML == "" {
			continue
		}
		for i := range d.Width() {
			w, g := want.ValueAt(d, i), got.ValueAt(d, i)
			if !(math.Abs(w-g) <= 1e-9*math.Abs(w) || math.IsNaN(w) && math.IsNaN(g)) {
				t.Errorf("%s: %s/%d is simulated as %v and sampled as %v", what, d, i, w, g)
			}
		}
	}
}

func hasXid(gpu, code int) func(*collector.Part) bool {
	return func(p *collector.Part) bool {
		for _, x := range p.GPUs[gpu].Xids {
			if x.Code == code && x.Count == 1 {
				return true
			}
		}
		return false
	}
}

func containsVersion(all []collector.Version, v collector.Version) bool {
	for _, w := range all {
		if w == v {
			return true
		}
	}
	return false
}

func TestHangIsAFault(t *testing.T) {
	n := newNode(t, "demo")
	hang := func() bool {
		text, err := os.ReadFile(n.ValuesFile())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "gpu7 * !hang\n")
	}
	update(t, n, 7*time.Minute)
	if !hang() {
		t.Error("the calls of the hung GPU return")
	}
	update(t, n, 9*time.Minute)
	if hang() {
		t.Error("the calls of the GPU hang although it answers again")
	}
}

func TestProcFSFollowsTheProcesses(t *testing.T) {
	n := newNode(t, "demo")
	fs, err := procfs.NewFS(n.ProcFS())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Duration{time.Minute, 6 * time.Minute} {
		p := update(t, n, at)
		procs, err := fs.AllProcs()
		if err != nil {
			t.Fatal(err)
		}
		if len(procs) != len(p.Processes) {
			t.Errorf("at %v there are %d processes in %s, want %d", at, len(procs), n.ProcFS(), len(p.Processes))
		}
		for _, pr := range p.Processes {
			proc, err := fs.Proc(pr.PID)
			if err != nil {
				t.Fatal(err)
			}
			stat, err := proc.Stat()
			if err != nil || stat.Starttime != pr.Start || stat.PID != pr.PID {
				t.Errorf("process %d, started at %d, reads %+v, %v", pr.PID, pr.Start, stat, err)
			}
		}
	}
	if err := simfake.WriteProc(filepath.Join(n.ValuesFile(), "below"), &collector.Part{Processes: []collector.Process{{PID: 1}}}); err == nil {
		t.Error("writing below a file succeeds")
	}
}

// TestPageReadsAsTheModelSays reads the inference server's page as the agent does.
func TestPageReadsAsTheModelSays(t *testing.T) {
	n := newNode(t, "saturate")
	server := httptest.NewServer(n)
	defer server.Close()
	source, err := inference.New(inference.Config{Targets: []inference.Target{{URL: server.URL + "/metrics", Engine: "auto"}}, Timeout: patience, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var got *collector.Part
	var want *collector.Part
	for _, at := range []time.Duration{40 * time.Minute, 41 * time.Minute} {
		want = update(t, n, at)
		if got, err = source.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(got.Endpoints) != 1 || got.Endpoints[0].Model != want.Endpoints[0].Model {
		t.Fatalf("sampled endpoints %+v", got.Endpoints)
	}
	for _, d := range []*metric.Def{metric.RequestsRunning, metric.RequestsWaiting, metric.KVCacheUsage, metric.GeneratedTokens, metric.PromptTokens, metric.Preemptions, metric.Requests} {
		if g, w := got.Endpoints[0].Value(d), want.Endpoints[0].Value(d); math.Abs(g-w) > 1e-9 {
			t.Errorf("%s is simulated as %v and read as %v", d, w, g)
		}
	}
	g, w := got.Endpoints[0].Value(metric.QueueTimeP95), want.Endpoints[0].Value(metric.QueueTimeP95)
	if !(g > 0.6*w && g < 1.6*w) {
		t.Errorf("the queue-time p95 is simulated as %v and read from the histogram as %v", w, g)
	}
}

func TestNoPageWhileTheServerLoads(t *testing.T) {
	n := newNode(t, "e2e")
	status := func() int {
		w := httptest.NewRecorder()
		n.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Code
	}
	if code := status(); code != 200 {
		t.Errorf("a server that runs answers %d", code)
	}
	update(t, n, 85*time.Second)
	if code := status(); code != 503 {
		t.Errorf("a server whose driver is being replaced answers %d", code)
	}
}

func TestRunFollowsTheClock(t *testing.T) {
	sc, err := sim.ScenarioByName("e2e")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(sim.Config{Start: time.Now(), Scenario: sc})
	if err != nil {
		t.Fatal(err)
	}
	n, err := simfake.NewNode(s, t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(n.ValuesFile())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, 20*time.Millisecond) }()
	changed := false
	for deadline := time.Now().Add(patience); !changed && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(n.ValuesFile())
		changed = err == nil && string(text) != string(first)
	}
	if !changed {
		t.Error("the values stay what they were although time goes by")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
