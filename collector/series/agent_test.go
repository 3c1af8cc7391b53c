package series

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/internal/sim"
	"gpuvigil/rules"
)

// agentPage returns the page of an agent that has seen the snapshot.
func agentPage(t testing.TB, snap *collector.Snapshot, view *detect.View) []byte {
	t.Helper()
	agent := server.New(server.Config{
		Snapshot: func() *collector.Snapshot { return snap }, View: func() *detect.View { return view }, Booked: func() *cost.Export { return &cost.Export{} },
		ReleasedUntil: func() time.Time { return time.Time{} }, Authenticated: func() bool { return false }, Full: true, Log: slog.New(slog.DiscardHandler),
	})
	web := httptest.NewServer(agent.Handler())
	defer web.Close()
	resp, err := http.Get(web.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(content, []byte("# EOF\n"))
}

// simulated returns snapshots of a simulated node, the last one of about now: an agent
// shows nothing that is older.
func simulated(t testing.TB, scenario string, n int) []*collector.Snapshot {
	t.Helper()
	s, err := sim.ScenarioByName(scenario)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Hour).Truncate(time.Second)
	node, err := sim.New(sim.Config{Seed: 7, Start: now, Scenario: s, Node: "gpu-9"})
	if err != nil {
		t.Fatal(err)
	}
	mixer := collector.NewMixer(collector.SamplerConfig{Node: "gpu-9", Tiers: [metric.Tiers]time.Duration{time.Second, 15 * time.Second, 15 * time.Second, time.Minute}, Log: slog.New(slog.DiscardHandler)})
	var out []*collector.Snapshot
	for i := range n {
		part := node.Part(now.Add(time.Duration(i) * 15 * time.Second))
		out = append(out, mixer.Snapshot(part.Time, []collector.Latest{{Source: "sim", Part: part}}))
	}
	return out
}

// What an agent's page tells of its snapshot is read back as it was.
func TestAnAgentsPageIsReadBack(t *testing.T) {
	for _, scenario := range []string{"demo", "e2e"} {
		t.Run(scenario, func(t *testing.T) {
			a, prometheus := New(Config{}), scraper{}
			for _, want := range simulated(t, scenario, 3) {
				view := &detect.View{
					Findings: []detect.Finding{{State: detect.Firing, Rule: "gpu_lost", Severity: rules.Page, Subject: detect.Subject{Kind: "gpu", ID: "GPU-x"}, Cause: "xid_79",
						Since: want.Time.Add(-time.Minute), Score: 3, Evidence: detect.Evidence{Observed: 1}}},
					Verdicts: []detect.Verdict{{GPU: "GPU-x", Index: 3, Name: "idle"}},
				}
				prometheus.add(a, want.Time, samples(t, agentPage(t, want, view), scraped("gpuvigil", "10.0.0.9:9836")...))
				got := one(t, a.Snapshots(want.Time))
				if got.Node.Name != "gpu-9" || !got.Simulated {
					t.Fatalf("node %q, simulated %v", got.Node.Name, got.Simulated)
				}
				compareWithAgent(t, want, got)
				finding := collector.Told{Rule: "gpu_lost", Severity: "page", Subject: "gpu:GPU-x", Cause: "xid_79", Since: want.Time.Add(-time.Minute).UTC(), Observed: 1, Score: 3}
				if diff := cmp.Diff(&collector.Agent{Instance: "10.0.0.9:9836", Findings: []collector.Told{finding}, Verdicts: []collector.VerdictTold{{UUID: "GPU-x", Verdict: "idle"}}}, got.Agent,
					cmpopts.IgnoreFields(collector.Told{}, "Expected")); diff != "" {
					t.Errorf("what the agent says (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// compareWithAgent compares what an agent's page has of a snapshot.
func compareWithAgent(t *testing.T, want, got *collector.Snapshot) {
	t.Helper()
	if len(want.GPUs) != len(got.GPUs) || len(want.Endpoints) != len(got.Endpoints) || len(want.Workloads) != len(got.Workloads) || len(want.Interfaces) != len(got.Interfaces) {
		t.Fatalf("%d GPUs, %d endpoints, %d workloads, %d ports; the agent has %d, %d, %d, %d", len(got.GPUs), len(got.Endpoints), len(got.Workloads), len(got.Interfaces),
			len(want.GPUs), len(want.Endpoints), len(want.Workloads), len(want.Interfaces))
	}
	sameReadings(t, "the node", metric.Node, want.Node.Readings, got.Node.Readings)
	for i := range want.GPUs {
		w, g := want.GPUs[i], got.GPUs[i]
		sameReadings(t, "GPU "+w.UUID, metric.GPU, w.Readings, g.Readings)
		w.Readings, g.Readings, w.Distributions = collector.Readings{}, collector.Readings{}, nil
		for n := range w.Allocations {
			w.Allocations[n].Shares = 0 // no series has it
		}
		// Of the simulator's owners the labels tell no order but that of memory.
		byOwner := cmpopts.SortSlices(func(a, b collector.Owner) bool { return a.String() < b.String() })
		if diff := cmp.Diff(w, g, sameNumbers, cmpopts.EquateEmpty(), byOwner, cmpopts.EquateApproxTime(time.Second), cmpopts.IgnoreFields(collector.GPU{}, "Bound", "BoardPart", "GSP", "InfoROM", "Dropped", "Xids")); diff != "" {
			t.Errorf("GPU (-agent +series):\n%s", diff)
		}
	}
	for i := range want.Endpoints {
		w, g := want.Endpoints[i], got.Endpoints[i]
		sameReadings(t, "endpoint "+w.URL, metric.Endpoint, w.Readings, g.Readings)
		if diff := cmp.Diff(w.Histograms, g.Histograms, sameNumbers, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("histograms of %s (-agent +series):\n%s", w.URL, diff)
		}
	}
	for i := range want.Workloads {
		w, g := want.Workloads[i], got.Workloads[i]
		sameReadings(t, "workload "+w.Owner.String(), metric.Workload, w.Readings, g.Readings)
		w.Readings, g.Readings = collector.Readings{}, collector.Readings{}
		if diff := cmp.Diff(w, g, sameNumbers, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(collector.Workload{}, "Remotes", "Networks", "Containers")); diff != "" {
			t.Errorf("workload (-agent +series):\n%s", diff)
		}
	}
	if diff := cmp.Diff(want.Node.Versions, got.Node.Versions); diff != "" {
		t.Errorf("versions (-agent +series):\n%s", diff)
	}
}

// sameReadings compares what the page has of readings.
func sameReadings(t *testing.T, of string, e metric.Entity, want, got collector.Readings) {
	t.Helper()
	for _, d := range metric.Of(e) {
		if len(d.Labels) > 0 || d.Sparse || d.Kind == metric.Info || special[d] != nil {
			continue
		}
		for i := range d.Width() {
			w, g := want.ValueAt(d, i), got.ValueAt(d, i)
			if w != g && !(w != w && g != g) {
				t.Errorf("%s: %s[%d] is %v, the agent has %v", of, d.Name, i, g, w)
			}
		}
	}
}
