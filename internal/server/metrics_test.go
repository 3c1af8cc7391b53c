package server

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

// gather returns a page that no later scrape uses again.
func gather(t testing.TB, s *Server) []*dto.MetricFamily {
	t.Helper()
	families, _, err := s.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func gatherer(s *Server) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, _, err := s.Gather()
		return families, err
	})
}

// rendered writes the page in a format, without the agent's own counters: their
// values depend on the tests that ran before.
func rendered(t *testing.T, s *Server, format expfmt.Format) string {
	t.Helper()
	return encode(t, gather(t, s), format)
}

func encode(t *testing.T, families []*dto.MetricFamily, format expfmt.Format) string {
	t.Helper()
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		d, err := metric.ByName(f.GetName())
		if err != nil {
			t.Errorf("%s is on the page and not in the catalogue", f.GetName())
			continue
		}
		if d.Entity == metric.Agent && d.Kind == metric.Counter {
			continue
		}
		if err := enc.Encode(f); err != nil {
			t.Errorf("writing %s: %v", f.GetName(), err)
		}
	}
	if err := enc.(expfmt.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func plainText(t *testing.T, s *Server) string {
	return rendered(t, s, expfmt.NewFormat(expfmt.TypeTextPlain))
}

func TestPageOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := node(time.Now()).server(t)
		golden.Check(t, filepath.Join("testdata", "node.metrics"), plainText(t, s), "the scrape page is another")
		golden.Check(t, filepath.Join("testdata", "node.openmetrics"), rendered(t, s, expfmt.FmtOpenMetrics_1_0_0), "the OpenMetrics page is another")
	})
}

func TestPageObeysPrometheus(t *testing.T) {
	s := node(soon()).server(t)
	g := gatherer(s)
	problems, err := testutil.GatherAndLint(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("promlint on %s: %s", p.Metric, p.Text)
	}
	if _, err := (prometheus.Gatherers{g}).Gather(); err != nil {
		t.Errorf("a registry would refuse the page: %v", err)
	}
}

// parse reads a page in the plain text format back.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the page cannot be read back: %v\n%s", err, text)
	}
	return families
}

func TestPageSurvivesTheWayThroughItsFormats(t *testing.T) {
	s := node(soon()).server(t)
	families := gather(t, s)
	read := parse(t, plainText(t, s))
	for _, f := range families {
		if d, err := metric.ByName(f.GetName()); err != nil || d.Entity == metric.Agent {
			continue
		}
		if got, want := read[f.GetName()].String(), f.String(); got != want && !strings.Contains(f.GetName(), "age_seconds") {
			t.Errorf("%s after a round trip:\n%s\nbefore:\n%s", f.GetName(), got, want)
		}
	}
	om := rendered(t, s, expfmt.FmtOpenMetrics_1_0_0)
	if !strings.HasSuffix(om, "# EOF\n") || !strings.Contains(om, "# TYPE vigil_gpu_energy_joules counter\n") {
		t.Errorf("not OpenMetrics: no EOF, or a counter that keeps _total in its family name:\n%s", om)
	}
	if got, want := samples(om), samples(plainText(t, s)); got != want {
		t.Errorf("OpenMetrics has %d samples, the plain format %d", got, want)
	}
}

func samples(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

func TestSeriesBudget(t *testing.T) {
	w := node(soon())
	perGPU := map[string]int{}
	host := 0
	families := gather(t, w.server(t))
	for _, f := range families {
	samples:
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "uuid" {
					perGPU[l.GetValue()]++
					continue samples
				}
			}
			host++
		}
	}
	for uuid, n := range perGPU {
		if n > 150 {
			t.Errorf("%s has %d series, the budget is 150", uuid, n)
		}
	}
	if host > 400 {
		t.Errorf("the host has %d series, the budget is 400", host)
	}
	t.Logf("GPU 0: %d series, host: %d", perGPU[w.snap.GPUs[0].UUID], host)
}

func TestNothingIsMadeUp(t *testing.T) {
	now := soon()
	for name, snap := range map[string]*collector.Snapshot{
		"before the first snapshot": nil,
		"a snapshot of nothing":     {Time: now},
		"a GPU without readings":    {Time: now, GPUs: []collector.GPU{{UUID: "GPU-1"}}},
		"the sampler has stopped":   {Time: time.Now().Add(-time.Minute), GPUs: []collector.GPU{h100(0, now)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{snap: snap}
			for n, f := range parse(t, plainText(t, w.server(t))) {
				switch n {
				case "vigil_agent_info", "vigil_node_info", "vigil_gpu_info", "vigil_gpu_present", "vigil_gpu_hung":
				default:
					t.Errorf("%s is on the page: %v", n, f.Metric)
				}
			}
		})
	}
}

func TestValuesThatAreNoneAreNoSeries(t *testing.T) {
	w := node(soon())
	g := &w.snap.GPUs[0]
	set(g.Readings, metric.PowerDraw, math.NaN(), metric.Temperature, math.Inf(1))
	w.view.Findings[0].Evidence.Observed = math.NaN()
	page := plainText(t, w.server(t))
	for _, series := range []string{
		metric.PowerDraw.Series("0", g.UUID), metric.Temperature.Series("0", g.UUID), `vigil_finding_observed{rule="xid",severity="page"`,
		metric.Utilization.Series("7", w.snap.GPUs[7].UUID), `vigil_finding_expected{rule="xid"`, "vigil_finding{rule=\"idle_gpu\"", " NaN", " +Inf", " -Inf",
	} {
		if strings.Contains(page, series) {
			t.Errorf("%s was not reported and is on the page", series)
		}
	}
}

func TestTwiceTheSameThingCostsOnlyItself(t *testing.T) {
	w := node(soon())
	s := w.snap
	before := refusedDuplicate.Get()
	s.GPUs = append(s.GPUs, s.GPUs[0])
	s.Instances = append(s.Instances, s.Instances[0])
	s.Endpoints = append(s.Endpoints, s.Endpoints[0])
	s.Sources = append(s.Sources, s.Sources[0])
	s.Node.Versions = append(s.Node.Versions, s.Node.Versions[0])
	s.GPUs[1].Xids = []collector.XidCount{{Code: 31, Count: 1}, {Code: 31, Count: 2}}
	s.GPUs[1].Unsupported = append(s.GPUs[1].Unsupported, s.GPUs[1].Unsupported[0])
	s.Workloads = append(s.Workloads, s.Workloads[0])
	w.view.Findings = append(w.view.Findings, w.view.Findings[0])
	w.view.Conditions = append(w.view.Conditions, w.view.Conditions[0])
	srv := w.server(t)
	if _, err := (prometheus.Gatherers{gatherer(srv)}).Gather(); err != nil {
		t.Errorf("the page would be refused: %v", err)
	}
	if got := refusedDuplicate.Get() - before; got != 10 {
		t.Errorf("%d duplicates counted, want 10", got)
	}
}

func TestLabelsAreCleanAndBounded(t *testing.T) {
	for in, want := range map[string]string{
		"caf\xe9":                      "caf\uFFFD",
		"":                             "",
		strings.Repeat("x", 1000):      strings.Repeat("x", maxLabel),
		"a" + strings.Repeat("ü", 200): "a" + strings.Repeat("ü", 99),
		strings.Repeat("\xbf", 1000):   "\uFFFD",
	} {
		if got := label(in); got != want {
			t.Errorf("label(%q) = %q, want %q", in, got, want)
		}
	}
	w := node(soon())
	w.snap.GPUs[0].Model = "Tesla\xff\n\"\\"
	w.snap.Endpoints[0].Model = "<!channel>\xf0\x28"
	w.view.Findings[0].Cause = "x\x80"
	w.snap.GPUs[0].Owners[0].ID = "caf\xe9"
	page := parse(t, plainText(t, w.server(t)))
	got := page["vigil_gpu_info"].Metric[0].Label[2].GetValue()
	if want := "Tesla\uFFFD\n\"\\"; got != want {
		t.Errorf("model label %q, want %q", got, want)
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("caf\xe9")
	f.Add(strings.Repeat("ü", 150))
	f.Fuzz(func(t *testing.T, s string) {
		got := label(s)
		if len(got) > maxLabel+2 { // the last byte may become the replacement character
			t.Errorf("%d bytes", len(got))
		}
		if strings.ToValidUTF8(got, "") != got {
			t.Errorf("%q is not UTF-8", got)
		}
	})
}

func TestManyOfAKindAreCapped(t *testing.T) {
	now := soon()
	w := node(now)
	g := &w.snap.GPUs[0]
	g.Xids, g.Owners = nil, nil
	for i := range 50 {
		g.Xids = append(g.Xids, collector.XidCount{Code: i, Count: 1, Last: now.Add(-time.Duration(i) * time.Hour)})
		o := collector.Owner{Kind: "pod", ID: fmt.Sprintf("%02d", i)}
		process(w.snap, 0, i+1, "x", o, 1<<20, 0)
		g.Allocations = append(g.Allocations, collector.Allocation{UUID: g.UUID, Owner: o, Source: "kubelet"})
		w.snap.Node.Versions = append(w.snap.Node.Versions, collector.Version{Component: fmt.Sprint("c", i), Value: "1"}, collector.Version{Component: fmt.Sprint("d", i), Value: "1"})
	}
	w.snap.SXids = nil
	for i := range 100 {
		w.snap.SXids = append(w.snap.SXids, collector.SXidCount{Switch: "0000:a9:00.0", Code: i, Fatal: i%2 == 0, Count: 1, Last: now})
	}
	sxids := cappedSXids.Get()
	xids, owners, versions, given := cappedXids.Get(), cappedOwners.Get(), cappedVersions.Get(), cappedAllocations.Get()
	page := parse(t, plainText(t, w.server(t)))
	if got := len(page["vigil_gpu_xid_errors_total"].Metric); got != maxXids+1 {
		t.Errorf("%d Xid series, want %d of GPU 0 and one of GPU 6", got, maxXids)
	}
	if got := page["vigil_gpu_xid_errors_total"].Metric[31].Label[2].GetValue(); got != "31" {
		t.Errorf("the last code kept is %s, want 31: those that fell last, in order", got)
	}
	if got := len(page["vigil_nvswitch_sxid_errors_total"].Metric); got != maxSXids || cappedSXids.Get()-sxids != 36 {
		t.Errorf("%d series of switch errors and %d left out, want %d and the rest of 100", got, cappedSXids.Get()-sxids, maxSXids)
	}
	counted := []uint64{cappedXids.Get() - xids, cappedOwners.Get() - owners, cappedVersions.Get() - versions, cappedAllocations.Get() - given}
	// 50 pods beside the job, of those who use and of those who were given the GPU.
	if diff := cmp.Diff([]uint64{18, 19, 40, 19}, counted); diff != "" {
		t.Errorf("left out Xids, owners, versions, allocations (-want +counted): %s", diff)
	}
	sum := map[string]float64{}
	for _, m := range page["vigil_owner_gpu_share_ratio"].Metric {
		if m.Label[0].GetValue() == "0" {
			sum[m.Label[2].GetValue()] += m.GetGauge().GetValue()
		}
	}
	if sum["memory"] < 0.999 || sum["memory"] > 1.001 {
		t.Errorf("the shares of a GPU with too many owners sum to %v, want 1", sum)
	}
}

func TestOwnersShareAGPU(t *testing.T) {
	w := node(soon())
	g5, g6 := &w.snap.GPUs[5], &w.snap.GPUs[6]
	g5.Set(metric.UnattributedMemory, g5.Value(metric.MemoryUsed))
	process(w.snap, 5, 99, "python", collector.Owner{}, 1<<30, 0.25)
	g6.Owners = []collector.Owner{{Kind: "job", ID: "a"}} // was given it and does not use it
	g6.Allocations = []collector.Allocation{{UUID: g6.UUID, Owner: g6.Owners[0], Resource: "gres/gpu", Source: "slurm"}}
	page := plainText(t, w.server(t))
	share := func(gpu int, of, kind, id, team string) string {
		return metric.OwnerShare.Series(fmt.Sprint(gpu), w.snap.GPUs[gpu].UUID, of, kind, id, team)
	}
	for series, want := range map[string]string{
		share(4, "memory", "pod", "chat/chat-70b-0", "assistants"):                                                 "0.8333333333333334",
		share(4, "memory", "pod", "chat/reranker-1", "assistants"):                                                 "0.16666666666666666",
		share(5, "sm", metric.Unattributed, metric.Unattributed, ""):                                               "1",
		metric.AllocationInfo.Series("6", g6.UUID, "", "job", "a", "", "", "gres/gpu", "slurm"):                    "1",
		metric.OwnerInfo.Series("pod", "chat/chat-70b-0", "assistants", "cc-140", "customer", "inference", "true"): "1",
		metric.OwnerInfo.Series(metric.Unattributed, metric.Unattributed, "", "", "", "", "false"):                 "1",
	} {
		if !strings.Contains(page, series+" "+want+"\n") {
			t.Errorf("%s is not %s on the page", series, want)
		}
	}
	if strings.Contains(page, share(6, "memory", "job", "a", "")) {
		t.Error("an owner who was given a GPU and does not use it has a share of its use")
	}
}

// TestSharesSumToOne is the promise to whoever divides a bill by them.
func TestSharesSumToOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w := node(soon())
		w.snap.Processes = nil
		for i := range rng.IntN(60) {
			o := collector.Owner{Kind: "pod", ID: fmt.Sprint(rng.IntN(40))}
			if rng.IntN(4) == 0 {
				o = collector.Owner{}
			}
			process(w.snap, rng.IntN(3), i+1, "x", o, float64(rng.IntN(1<<30)), rng.Float64())
		}
		for i := range 3 {
			w.snap.GPUs[i].Set(metric.UnattributedMemory, float64(rng.IntN(1<<30)))
		}
		sums := map[string]float64{}
		for _, m := range parse(t, plainText(t, w.server(t)))["vigil_owner_gpu_share_ratio"].GetMetric() {
			sums[m.Label[0].GetValue()+m.Label[2].GetValue()] += m.GetGauge().GetValue()
		}
		for key, sum := range sums {
			if math.Abs(sum-1) > 1e-9 {
				t.Fatalf("the shares of %s sum to %v, want 1", key, sum)
			}
		}
	}
}

func TestHungGPUIsMarkedAndTheOthersAreServed(t *testing.T) {
	w := node(soon())
	page := plainText(t, w.server(t))
	for _, line := range []string{
		metric.GPUHung.Series("3", w.snap.GPUs[3].UUID) + " 1",
		metric.GPUHung.Series("2", w.snap.GPUs[2].UUID) + " 0",
		metric.GPUSampleAge.Series("3", w.snap.GPUs[3].UUID) + " 42",
		metric.GPUPresent.Series("6", w.snap.GPUs[6].UUID) + " 0",
		metric.Utilization.Series("2", w.snap.GPUs[2].UUID) + " 0.94",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}

func TestFindingIsOnePerSeverity(t *testing.T) {
	w := node(soon())
	f := w.view.Findings[1]
	f.Subject = detect.Subject{Kind: "endpoint", ID: "http://x"}
	w.view.Findings = append(w.view.Findings, f)
	page := plainText(t, w.server(t))
	for _, line := range []string{
		metric.FindingActive.Series("saturated_gpu", "ticket", "endpoint:http://x", "gpu_bound") + " 1",
		metric.FindingExpected.Series("saturated_gpu", "ticket", "endpoint:http://x", "gpu_bound") + " 0.3",
		metric.Condition.Series("saturated_gpu", "gpu:"+w.snap.GPUs[4].UUID) + " 1",
		metric.Condition.Series("saturated_gpu", "gpu:"+w.snap.GPUs[5].UUID) + " 0",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}

func TestPageIsMadeAnewFromWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		calm := node(now)
		calm.view, calm.snap.Instances, calm.snap.Endpoints = nil, nil, nil
		swapped := node(now)
		swapped.snap.GPUs[0], swapped.snap.GPUs[1] = swapped.snap.GPUs[1], swapped.snap.GPUs[0]
		swapped.snap.GPUs[1].Readings = collector.NewReadings(metric.GPU)
		worlds := []*world{node(now), calm, big(5000), swapped, {}, node(now)}
		reused := worlds[0].server(t)
		for i, w := range worlds {
			reused.cfg.Snapshot = func() *collector.Snapshot { return w.snap }
			reused.cfg.View = func() *detect.View { return w.view }
			families, done, err := reused.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := encode(t, families, expfmt.FmtText)
			done()
			if diff := cmp.Diff(strings.Split(plainText(t, w.server(t)), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("page %d remembers an earlier one (-new +reused):\n%s", i, diff)
			}
			if len(reused.spare) != 1 {
				t.Fatalf("%d spare pages, want the one that is used again", len(reused.spare))
			}
		}
	})
}
