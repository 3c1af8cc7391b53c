package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// dcgmNode is a node of which everything is known, with an NVLink and a MIG
// instance, behind a server that speaks DCGM's names.
func dcgmNode(t *testing.T) (*world, *Server) {
	t.Helper()
	w := fullNode(nil, nil)
	g := &w.snap.GPUs[0]
	w.snap.Links = []collector.Link{{GPU: g.Index, UUID: g.UUID, Number: 0, Readings: everything(metric.Link, nil, nil)}}
	w.snap.Instances = []collector.Instance{{GPU: g.Index, UUID: g.UUID, MIGUUID: "MIG-1", GI: 7, Profile: "1g.10gb", Readings: everything(metric.Instance, nil, nil)}}
	w.snap.Node.Versions = []collector.Version{{Component: "driver", Value: "580.95.05"}}
	cfg := w.server(t).cfg
	cfg.DCGM = true
	return w, New(cfg)
}

func scrapeFamilies(t *testing.T, s *Server, accept string) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, r)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatalf("the page with DCGM's names cannot be read: %v", err)
	}
	return families, answer.Header().Get("Content-Type")
}

// Every field of dcgm-exporter's files is there, under both names, with the type
// that its users' rules and dashboards rely on.
func TestDCGMNamesAndTypes(t *testing.T) {
	_, s := dcgmNode(t)
	families, _ := scrapeFamilies(t, s, "text/plain")
	n := 0
	for _, d := range metric.All() {
		for _, name := range d.DCGM {
			f := families[name.Name]
			if f == nil {
				t.Errorf("%s, which is %s, is not served", name.Name, d)
				continue
			}
			n++
			want := dto.MetricType_GAUGE
			if name.Kind == metric.Counter {
				want = dto.MetricType_COUNTER
			}
			if f.GetType() != want {
				t.Errorf("%s is a %s, dcgm-exporter says %s", name.Name, f.GetType(), want)
			}
		}
	}
	if n < 70 {
		t.Errorf("only %d names were looked for: the test would prove nothing", n)
	}
	if families["vigil_gpu_temperature_celsius"] == nil {
		t.Error("with DCGM's names our own are gone")
	}
}

func TestDCGMValuesAndLabels(t *testing.T) {
	w, s := dcgmNode(t)
	g := &w.snap.GPUs[0]
	g.Set(metric.Utilization, 0.98)
	g.Set(metric.MemoryUsed, 1.5*(1<<20))
	g.Xids = []collector.XidCount{{Code: 79, Count: 1, Last: w.snap.Time}, {Code: 31, Count: 5, Last: w.snap.Time.Add(-1)}}
	families, _ := scrapeFamilies(t, s, "text/plain")
	labels := func(m *dto.Metric) map[string]string {
		out := map[string]string{}
		for _, l := range m.GetLabel() {
			out[l.GetName()] = l.GetValue()
		}
		return out
	}
	of := func(name, instance string) (*dto.Metric, map[string]string) {
		t.Helper()
		for _, m := range families[name].GetMetric() {
			if l := labels(m); l["UUID"] == g.UUID && l["GPU_I_ID"] == instance {
				return m, l
			}
		}
		t.Fatalf("%s has no series of the first GPU (instance %q)", name, instance)
		return nil, nil
	}
	for name, want := range map[string]float64{
		"DCGM_FI_DEV_GPU_UTIL": 98, "DCGM_FI_DEV_GPU_UTIL_RATIO": 0.98,
		"DCGM_FI_DEV_FB_USED": 1, "DCGM_FI_DEV_FB_USED_BYTES": 1.5 * (1 << 20), // the old one has whole MiB
		"DCGM_FI_DEV_XID_ERRORS": 79,
	} {
		if m, _ := of(name, ""); m.GetGauge().GetValue() != want {
			t.Errorf("%s = %v, want %v", name, m.GetGauge().GetValue(), want)
		}
	}
	_, before := of("DCGM_FI_DEV_GPU_UTIL", "")
	_, since := of("DCGM_FI_DEV_GPU_UTIL_RATIO", "")
	if before["Hostname"] != "gpu-117" || before["hostname"] != "" || before["DCGM_FI_DRIVER_VERSION"] != "580.95.05" || before["device"] != "nvidia0" || before["gpu"] != "0" {
		t.Errorf("labels up to 4.8 are %v", before)
	}
	if since["hostname"] != "gpu-117" || since["Hostname"] != "" || since["DCGM_FI_SYSTEM_DRIVER_VERSION"] != "580.95.05" {
		t.Errorf("labels since 4.9 are %v", since)
	}
	if _, mig := of("DCGM_FI_DEV_FB_USED", "7"); mig["GPU_I_PROFILE"] != "1g.10gb" {
		t.Errorf("labels of a MIG instance are %v", mig)
	}
}

// OpenMetrics would rename the counters, and with them break what the names are
// there for; what is not known is absent here too.
func TestDCGMPageStaysPlain(t *testing.T) {
	w, s := dcgmNode(t)
	for i := range w.snap.GPUs {
		w.snap.GPUs[i].Readings = collector.NewReadings(metric.GPU)
	}
	w.snap.Instances = nil
	families, contentType := scrapeFamilies(t, s, "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.1")
	if strings.Contains(contentType, "openmetrics") {
		t.Errorf("the page is %s", contentType)
	}
	if families["DCGM_FI_DEV_GPU_TEMP"] != nil {
		t.Error("a temperature that nobody reported is served under DCGM's name")
	}
	plain, _ := scrapeFamilies(t, w.server(t), "text/plain")
	for name := range plain {
		if strings.HasPrefix(name, "DCGM") {
			t.Errorf("%s is served though nobody asked for DCGM's names", name)
		}
	}
}

func TestDCGMLabelsOfHolders(t *testing.T) {
	w, s := dcgmNode(t)
	for i := range w.snap.GPUs {
		w.snap.GPUs[i].Allocations, w.snap.GPUs[i].Owners = nil, nil
	}
	pod := collector.Owner{Kind: "pod", ID: "nlp/train-0"}
	w.snap.GPUs[0].Allocations = []collector.Allocation{{Owner: pod, Container: "main"}, {Owner: pod, Container: "main"}, {Owner: pod, Container: "side"}}
	w.snap.GPUs[1].Allocations = []collector.Allocation{{Owner: collector.Owner{Kind: "job", ID: "slurm/1320003"}}, {Owner: collector.Owner{Kind: "job", ID: "slurm/1320004"}}}
	w.snap.GPUs[2].Owners = []collector.Owner{pod} // uses it, and nobody says to whom it was given
	w.snap.GPUs[3].Owners = []collector.Owner{{Kind: "user", ID: "1000"}}
	families, _ := scrapeFamilies(t, s, "text/plain")
	got := map[string][]string{}
	for _, m := range families["DCGM_FI_DEV_GPU_TEMP"].GetMetric() {
		l := map[string]string{}
		for _, pair := range m.GetLabel() {
			l[pair.GetName()] = pair.GetValue()
		}
		got[l["gpu"]] = append(got[l["gpu"]], strings.Join([]string{l["namespace"], l["pod"], l["container"], l["hpc_job"]}, "|"))
	}
	want := map[string][]string{
		"0": {"nlp|train-0|main|", "nlp|train-0|side|"}, "1": {"|||1320003", "|||1320004"}, "2": {"nlp|train-0||"}, "3": {"|||"},
		"4": {"|||"}, "5": {"|||"}, "6": {"|||"}, "7": {"|||"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("holders of the GPUs as dcgm-exporter labels them (-want +got):\n%s", diff)
	}
}

// A GPU that sixty pods share would have its sixty names sixty times.
func TestDCGMSeriesOfASharedGPUAreBounded(t *testing.T) {
	w, s := dcgmNode(t)
	given := func(pods int) int {
		var all []collector.Allocation
		for i := range pods {
			all = append(all, collector.Allocation{Owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("nlp/replica-%02d", i)}, Container: "main"})
		}
		w.snap.GPUs[0].Allocations = all
		families, _ := scrapeFamilies(t, s, "text/plain")
		n := 0
		for name, f := range families {
			if strings.HasPrefix(name, "DCGM_") {
				n += len(f.GetMetric())
			}
		}
		return n
	}
	few := given(maxHolders)
	before := cappedHolders.Get()
	if many := given(60); many != few {
		t.Errorf("a GPU that 60 pods share has %d series under DCGM's names, one that %d share %d: want no more", many, maxHolders, few)
	}
	if n := cappedHolders.Get() - before; n == 0 {
		t.Error("nobody is told that holders were left out")
	}
}
