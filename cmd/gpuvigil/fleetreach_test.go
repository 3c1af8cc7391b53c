package main

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/collector/history"
	"gpuvigil/collector/page"
	"gpuvigil/collector/series"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// A GPU that is lost on one node stops the job on all of its nodes: that is what it costs.
func TestReachOfAnIncidentOverNodes(t *testing.T) {
	cfg := &config.Config{}
	perHour := 2.5
	cfg.Prices.Own = []config.Price{{GPU: "NVIDIA H100*", PerGPUHour: &perHour, Currency: "USD", Kind: "contracted"}}
	prices, err := newFleetPrices(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	role := fleet.New(fleet.Config{Log: slog.New(slog.DiscardHandler), Price: prices.of})
	var all []*collector.Snapshot
	for n := range 3 {
		s := &collector.Snapshot{Time: reachStart, Node: collector.Node{Name: fmt.Sprintf("n%d", n), Readings: collector.NewReadings(metric.Node)}}
		for k := range 8 {
			g := collector.GPU{Index: k, UUID: fmt.Sprintf("GPU-%d-%d", n, k), Model: "NVIDIA H100 80GB HBM3", Present: true, Readings: collector.NewReadings(metric.GPU)}
			if n < 2 {
				g.Owners = []collector.Owner{reachJob}
			}
			s.GPUs = append(s.GPUs, g)
		}
		all = append(all, s)
	}
	all[1].Endpoints = []collector.Endpoint{{URL: "http://10.0.0.7:8000/metrics", Engine: "vllm", Model: "chat-70b", GPUs: []string{"GPU-1-3"}, Readings: collector.NewReadings(metric.Endpoint)}}
	role.Observe(reachStart, all)
	i := reachIncident(rules.IDGPULost, rules.Page, detect.Subject{Kind: "gpu", ID: "GPU-0-3"}, 3, reachJob)
	i.Members[0].Node = "n0"
	want := alerting.Context{Cluster: "eu-1", Owners: []collector.Owner{reachJob}, GPUs: 16, Models: []string{"chat-70b (vllm)"}, Money: &alerting.Money{Currency: "USD", PerHour: 40, GPUs: 16}}
	if diff := cmp.Diff(want, reachAcross("eu-1", role.View(), i)); diff != "" {
		t.Errorf("a GPU lost of a job on two nodes reaches otherwise (-want +got):\n%s", diff)
	}
	i = reachIncident(rules.IDSpend, rules.Ticket, detect.Subject{Kind: "team", ID: "nlp"}, -1, collector.Owner{})
	i.Members[0].Node = "cluster"
	if c := reachAcross("", role.View(), i); c.GPUs != 16 || c.Money == nil || c.Money.PerHour != 40 {
		t.Errorf("a team with 16 GPUs on two nodes is told to have %d, %+v", c.GPUs, c.Money)
	}
}

// pastServer is a Prometheus that has one GPU's power for the last hours: 600 W, and 150 W
// since the given time.
type pastServer struct {
	mu      sync.Mutex
	name    string
	labels  string
	since   time.Time
	queries []string
}

func (p *pastServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/values") {
		fmt.Fprintf(w, `{"status":"success","data":[%q]}`, p.name)
		return
	}
	query := r.FormValue("query")
	p.queries = append(p.queries, query)
	at, err := strconv.ParseFloat(r.FormValue("time"), 64)
	_, window, _ := strings.Cut(query, "}[")
	ms, err2 := strconv.Atoi(strings.TrimSuffix(window, "ms]"))
	if err != nil || err2 != nil {
		http.Error(w, "no range selector", http.StatusBadRequest)
		return
	}
	var values []string
	to := time.Unix(int64(at), 0)
	for t := to.Add(-time.Duration(ms) * time.Millisecond).Truncate(time.Minute).Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		v := 600 + t.Unix()/60%10
		if !t.Before(p.since) {
			v = 150
		}
		values = append(values, fmt.Sprintf(`[%d,"%d"]`, t.Unix(), v))
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":%q,%s},"values":[%s]}]}}`, p.name, p.labels, strings.Join(values, ","))
}

// The chart of an incident is drawn by what the Prometheus has, whoever exports it.
func TestChartOfAnIncidentOfANode(t *testing.T) {
	const uuid = "GPU-6b8f63c5-0000-4000-8000-000000000001"
	since := time.Now().Add(-20 * time.Minute).Truncate(time.Minute)
	for name, c := range map[string]struct {
		server *pastServer
		agent  *collector.Agent
		asks   string
	}{
		"an agent": {&pastServer{name: metric.PowerDraw.Name, labels: `"instance":"n1:9836","job":"gpuvigil","gpu":"3","uuid":"` + uuid + `"`},
			&collector.Agent{Instance: "n1:9836"}, `instance="n1:9836"`},
		"dcgm-exporter": {&pastServer{name: "DCGM_FI_DEV_POWER_USAGE", labels: `"instance":"n1:9400","job":"dcgm","Hostname":"n1","gpu":"3","modelName":"NVIDIA H100","UUID":"` + uuid + `"`},
			nil, `UUID=~"(GPU-)?6b8f63c5`},
	} {
		c.server.since = since
		at := httptest.NewServer(c.server)
		defer at.Close()
		role := fleet.New(fleet.Config{Log: slog.New(slog.DiscardHandler)})
		s := &collector.Snapshot{Time: since, Node: collector.Node{Name: "n1", Readings: collector.NewReadings(metric.Node)}, Agent: c.agent,
			GPUs: []collector.GPU{{Index: 3, UUID: uuid, Present: true, Readings: collector.NewReadings(metric.GPU)}}}
		role.Observe(since, []*collector.Snapshot{s})
		charts := &fleetCharts{
			ask:    history.PrometheusConfig{Address: page.Address{URL: at.URL}, Match: []string{`cluster="a"`}},
			series: series.Config{Lookback: 5 * time.Minute}, view: role.View, log: slog.New(slog.NewTextHandler(io.Discard, nil)), kept: map[string]keptChart{},
		}
		i := reachIncident(rules.IDJobHung, rules.Page, detect.Subject{Kind: "gpu", ID: uuid}, 3, reachJob)
		i.ID, i.Members[0].Node, i.Members[0].Since = "i1", "n1", since
		got := charts.of(t.Context(), i)
		if got == nil || got.Unit != "W" || !strings.Contains(got.Title, "n1/3") || got.Low < 600 || got.High > 609 || len(got.Points) < 190 {
			t.Fatalf("%s: the chart of a GPU whose power fell is %+v; asked was %q", name, got, c.server.queries)
		}
		if last := got.Points[len(got.Points)-1]; last.Mean != 150 {
			t.Errorf("%s: the last minute has %v W, want 150", name, last.Mean)
		}
		if !strings.Contains(c.server.queries[0], c.asks) || !strings.Contains(c.server.queries[0], `cluster="a"`) {
			t.Errorf("%s: more is asked for than the GPU: %s", name, c.server.queries[0])
		}
		before := len(c.server.queries)
		if charts.of(t.Context(), i); len(c.server.queries) != before {
			t.Errorf("%s: the same chart is asked for twice in a minute", name)
		}
		i.Members[0].Node = "gone"
		i.ID = "i2"
		if c := charts.of(t.Context(), i); c != nil {
			t.Errorf("%s: a node that is not known is drawn: %+v", name, c)
		}
	}
	var none *fleetCharts
	if data, err := none.picture(context.Background(), "i1"); data != nil || err != nil {
		t.Errorf("without a Prometheus there is a picture: %v", err)
	}
}

// The page links the chart, and serves it as a picture.
func TestPictureOfAnIncident(t *testing.T) {
	charts := &fleetCharts{kept: map[string]keptChart{}, view: func() *fleet.View {
		return &fleet.View{Incidents: []detect.Incident{*func() *detect.Incident {
			i := reachIncident(rules.IDJobHung, rules.Page, detect.Subject{Kind: "gpu", ID: "GPU-a"}, 3, reachJob)
			i.ID = "i1"
			return i
		}()}}
	}}
	c := &alerting.Chart{Title: "power of n1/3", Unit: "W"}
	for k := range 10 {
		c.Points = append(c.Points, alerting.ChartPoint{Time: reachStart.Add(time.Duration(k) * time.Minute), Min: 1, Mean: 2, Max: 3})
	}
	charts.kept["i1"] = keptChart{time.Now(), c}
	data, err := charts.picture(t.Context(), "i1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.Decode(bytes.NewReader(data)); err != nil {
		t.Errorf("the picture of an incident is none: %v", err)
	}
	if data, err := charts.picture(t.Context(), "other"); data != nil || err != nil {
		t.Errorf("an incident that is not known has a picture: %v", err)
	}
}
