package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

var (
	reachStart = time.Date(2026, 3, 14, 3, 12, 0, 0, time.UTC)
	reachJob   = collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	reachPod   = collector.Owner{Kind: "pod", ID: "serving/chat-0", Team: "chat"}
)

// reachNode has a training on GPUs 0 to 2, a model on GPU 3, and GPU 4 free, at 2.50 an hour.
func reachNode() (*collector.Snapshot, *collector.Money) {
	s := &collector.Snapshot{Time: reachStart, Node: collector.Node{Name: "n1", Readings: collector.NewReadings(metric.Node)}}
	m := &collector.Money{Currency: "USD"}
	for k := range 5 {
		g := collector.GPU{Index: k, UUID: "GPU-" + string(rune('a'+k)), Present: true}
		switch {
		case k < 3:
			g.Owners = []collector.Owner{reachJob}
		case k == 3:
			g.Owners = []collector.Owner{reachPod}
		}
		s.GPUs = append(s.GPUs, g)
		m.Prices = append(m.Prices, collector.GPUPrice{UUID: g.UUID, PerHour: 2.5})
	}
	s.Endpoints = []collector.Endpoint{{URL: "http://10.0.0.7:8000/metrics", Engine: "vllm", Model: "chat-70b", GPUs: []string{"GPU-d"}}}
	s.Processes = []collector.Process{{PID: 7, Name: "vllm", GPU: 3, UUID: "GPU-d", Owner: reachPod}}
	w := collector.Workload{Owner: reachJob, Readings: collector.NewReadings(metric.Workload)}
	w.Set(metric.WorkloadCheckpoint, float64(reachStart.Add(-time.Hour).Unix()))
	s.Workloads = []collector.Workload{w}
	return s, m
}

func reachIncident(rule rules.ID, severity rules.Severity, of detect.Subject, gpu int, whose collector.Owner) *detect.Incident {
	return &detect.Incident{Rule: rule, Severity: severity, State: detect.Firing, Opened: reachStart, Updated: reachStart,
		Members: []detect.Finding{{Rule: rule, Subject: of, GPUIndex: gpu, Owner: whose, Since: reachStart, State: detect.Firing}}}
}

func TestReachOfAnIncident(t *testing.T) {
	s, m := reachNode()
	gpu := func(id string) detect.Subject { return detect.Subject{Kind: "gpu", ID: id} }
	f := func(what string, i *detect.Incident, owners []collector.Owner, gpus int, models []string, hour float64, costs int) {
		t.Helper()
		r := reachOf(s, i)
		if diff := cmp.Diff(owners, r.owners()); diff != "" {
			t.Errorf("%s reaches others (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff(models, r.models(s)); diff != "" {
			t.Errorf("%s reaches other models (-want +got):\n%s", what, diff)
		}
		if len(r.held) != gpus {
			t.Errorf("%s reaches work on %d GPUs, want %d", what, len(r.held), gpus)
		}
		switch got := r.money(m, i); {
		case costs == 0 && got != nil:
			t.Errorf("%s costs %+v, want nothing", what, got)
		case costs > 0 && (got == nil || got.PerHour != hour || got.GPUs != costs):
			t.Errorf("%s costs %+v, want %g an hour for %d GPUs", what, got, hour, costs)
		}
	}
	f("a lost GPU of a training", reachIncident(rules.IDGPULost, rules.Page, gpu("GPU-b"), 1, reachJob), []collector.Owner{reachJob}, 3, nil, 7.5, 3)
	f("an idle GPU of a training", reachIncident(rules.IDIdleGPU, rules.Ticket, gpu("GPU-b"), 1, reachJob), []collector.Owner{reachJob}, 3, nil, 2.5, 1)
	f("a hung job", reachIncident(rules.IDJobHung, rules.Page, detect.Subject{Kind: "job", ID: "slurm/4711"}, -1, reachJob), []collector.Owner{reachJob}, 3, nil, 7.5, 3)
	f("a model that is slow", reachIncident(rules.IDQueueing, rules.Ticket, detect.Subject{Kind: "endpoint", ID: s.Endpoints[0].Key().String()}, -1, collector.Owner{}), []collector.Owner{reachPod}, 1, []string{"chat-70b (vllm)"}, 2.5, 1)
	f("a node", reachIncident(rules.IDSuspectMonitor, rules.Page, detect.Subject{Kind: "node", ID: "n1"}, -1, collector.Owner{}), []collector.Owner{reachJob, reachPod}, 4, []string{"chat-70b (vllm)"}, 10, 4)
	f("a team", reachIncident(rules.IDSpend, rules.Ticket, detect.Subject{Kind: "team", ID: "nlp"}, -1, collector.Owner{}), []collector.Owner{reachJob}, 3, nil, 7.5, 3)
	f("a free GPU", reachIncident(rules.IDGPULost, rules.Page, gpu("GPU-e"), 4, collector.Owner{}), nil, 0, nil, 2.5, 1)
	f("a GPU that is gone", reachIncident(rules.IDGPULost, rules.Page, gpu("GPU-x"), 9, collector.Owner{}), nil, 0, nil, 0, 0)
	m.Prices = m.Prices[1:]
	f("a job on a GPU without a price", reachIncident(rules.IDJobHung, rules.Page, detect.Subject{Kind: "job", ID: "slurm/4711"}, -1, reachJob), []collector.Owner{reachJob}, 3, nil, 0, 0)
}

func TestLostSinceTheCheckpoint(t *testing.T) {
	s, m := reachNode()
	i := reachIncident(rules.IDGPULost, rules.Page, detect.Subject{Kind: "gpu", ID: "GPU-b"}, 1, reachJob)
	want := &alerting.Lost{Since: reachStart.Add(-time.Hour), GPUHours: 3, Cost: 7.5, Currency: "USD"}
	if diff := cmp.Diff(want, reachOf(s, i).lost(s, m, i)); diff != "" {
		t.Errorf("an hour of three GPUs since the checkpoint is told differently (-want +got):\n%s", diff)
	}
	want = &alerting.Lost{Since: reachStart.Add(-time.Hour), GPUHours: 3}
	if diff := cmp.Diff(want, reachOf(s, i).lost(s, nil, i)); diff != "" {
		t.Errorf("without prices the hours are told differently (-want +got):\n%s", diff)
	}
	s.Workloads = nil
	if got := reachOf(s, i).lost(s, m, i); got != nil {
		t.Errorf("work that tells of no checkpoint is said to have lost %+v", got)
	}
}

// history is a reading that is about 600 for two hours, and then what is given.
func reachHistory(d *metric.Def, then float64) detect.History {
	h := detect.History{Reading: d}
	for k := range 150 {
		v := 600 + float64(k%10)
		if k >= 120 {
			v = then
		}
		h.Points = append(h.Points, detect.Point{Time: reachStart.Add(time.Duration(k-120) * time.Minute), Min: v - 1, Mean: v, Max: v + 1})
	}
	return h
}

func TestTheChartShowsWhatLeftItsBand(t *testing.T) {
	rule := rules.Get(rules.IDJobHung)
	c := chartOf([]detect.History{reachHistory(metric.Utilization, 605), reachHistory(metric.Temperature, 0), reachHistory(metric.PowerDraw, 150)}, rule, reachStart)
	if c == nil || c.Unit != "W" || !strings.Contains(c.Title, "power") {
		t.Fatalf("of what the rule watches the power left its band, drawn is %+v", c)
	}
	if c.Low != 600 || c.High != 609 || c.Band != "usual before" || len(c.Points) != 150 || c.Points[149].Mean != 150 || !c.Onset.Equal(reachStart) {
		t.Errorf("band %g to %g, %d points, onset %s", c.Low, c.High, len(c.Points), c.Onset)
	}
	short := reachHistory(metric.PowerDraw, 150)
	short.Points = short.Points[110:]
	if c := chartOf([]detect.History{short}, rule, reachStart); c == nil || !math.IsNaN(c.Low) {
		t.Errorf("ten minutes say what is usual: %+v", c)
	}
	if c := chartOf([]detect.History{reachHistory(metric.Temperature, 0)}, rule, reachStart); c != nil {
		t.Errorf("a reading is drawn that the rule does not watch: %s", c.Title)
	}
	ratio := reachHistory(metric.Utilization, 0.5)
	if c := chartOf([]detect.History{ratio}, rule, reachStart); c.Unit != "%" || c.Points[149].Mean != 50 {
		t.Errorf("a ratio is drawn as %g %s", c.Points[149].Mean, c.Unit)
	}
}

func TestADashboardIsLinkedAtTheIncidentsTime(t *testing.T) {
	i := reachIncident(rules.IDGPULost, rules.Page, detect.Subject{Kind: "gpu", ID: "GPU-b"}, 1, reachJob)
	f := func(base, want string) {
		t.Helper()
		if got := dashboardLink(base, "n 1", i); got != want {
			t.Errorf("%q is linked as\n%s, want\n%s", base, got, want)
		}
	}
	f("", "")
	f("https://g.example/d/gpuvigil-overview", "https://g.example/d/gpuvigil-overview?from=1773454320000&to=now&var-gpu=1")
	f("https://g.example/d/x?orgId=2&var-instance={node}:9836&to=now-1h", "https://g.example/d/x?from=1773454320000&orgId=2&to=now-1h&var-gpu=1&var-instance=n+1%3A9836")
	i.State, i.Resolved = detect.Resolved, reachStart.Add(time.Hour)
	f("https://g.example/d/x", "https://g.example/d/x?from=1773454320000&to=1773463320000&var-gpu=1")
}
