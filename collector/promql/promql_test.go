package promql

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

func TestSamplesOfAnAPIBecomeSnapshots(t *testing.T) {
	e := &engine{}
	e.gpu(noon.Add(-10*time.Second), "GPU-a", 300)
	e.add(noon.Add(-10*time.Second), 1, "__name__", "up", "instance", "gpu-1:9400")
	r := reading(t, e, nil)
	snapshots, err := r.Round(t.Context(), noon)
	if err != nil || len(snapshots) != 1 || len(snapshots[0].GPUs) != 1 {
		t.Fatalf("%d snapshots, %v; there is one node with one GPU", len(snapshots), err)
	}
	g := &snapshots[0].GPUs[0]
	if at := g.SampledAt(metric.Fast); snapshots[0].Node.Name != "gpu-1" || g.Value(metric.PowerDraw) != 300 || !at.Equal(noon.Add(-10*time.Second)) {
		t.Errorf("node %q, power %v as of %v", snapshots[0].Node.Name, g.Value(metric.PowerDraw), at)
	}
	for _, q := range e.asked {
		if strings.Contains(q, `"up"`) || strings.Contains(q, "up|") {
			t.Errorf("asked for a metric of which nothing is made: %s", q)
		}
	}
	if len(e.asked) != 2 {
		t.Errorf("asked %q, want one list of names and one query", e.asked)
	}
}

func TestASeriesThatItsTargetNoLongerHasEnds(t *testing.T) {
	e := &engine{}
	r := reading(t, e, nil)
	for i := range 9 {
		at := noon.Add(time.Duration(i) * 30 * time.Second)
		for _, scrape := range []time.Duration{-17 * time.Second, -2 * time.Second} {
			e.gpu(at.Add(scrape), "GPU-a", 300)
			if i < 4 {
				e.gpu(at.Add(scrape), "GPU-b", 300)
			}
		}
		snapshots, err := r.Round(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		present := 0
		for _, g := range snapshots[0].GPUs {
			if g.Present {
				present++
			}
		}
		if want := 2; i < 4 && present != want {
			t.Errorf("round %d: %d GPUs are present, both are scraped", i, present)
		} else if i >= 7 && present != 1 {
			t.Errorf("round %d: %d GPUs are present, one has not been scraped for %v", i, present, at.Sub(noon.Add(90*time.Second)))
		}
	}
	if r.kept.ended != 1 {
		t.Errorf("%d series ended, one did", r.kept.ended)
	}
}

// Thanos and Mimir take a series of one target from one replica and the next from the
// other, whose scrapes are at other times.
func TestSeriesOfTwoReplicasDoNotEnd(t *testing.T) {
	e := &engine{}
	r := reading(t, e, nil)
	for i := range 20 {
		at := noon.Add(time.Duration(i) * 30 * time.Second)
		if i%2 == 0 {
			e.gpu(at.Add(-29*time.Second), "GPU-a", 300)
			e.gpu(at.Add(-1*time.Second), "GPU-b", 300)
		}
		if _, err := r.Round(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	if r.kept.ended != 0 {
		t.Errorf("%d series are taken to have ended, both go on", r.kept.ended)
	}
}

func TestAnIncompleteAnswerEndsNothing(t *testing.T) {
	for _, tail := range []string{`,"warnings":["store gpu-2 did not answer"]`, `,"isPartial":true`} {
		e := &engine{}
		r := reading(t, e, nil)
		for i := range 8 {
			at := noon.Add(time.Duration(i) * 30 * time.Second)
			e.gpu(at.Add(-time.Second), "GPU-a", 300)
			if i < 3 {
				e.gpu(at.Add(-time.Second), "GPU-b", 300)
			} else {
				e.tail = tail
			}
			if _, err := r.Round(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
		if r.kept.ended != 0 || r.counts.outcomes[partial].Load() != 5 {
			t.Errorf("%s: %d series ended and %d answers counted as partial, want 0 and 5", tail, r.kept.ended, r.counts.outcomes[partial].Load())
		}
	}
}

func TestAnAnswerThatIsTooLargeIsAskedForInHalves(t *testing.T) {
	e := &engine{}
	scrape := func(at time.Time) {
		for _, name := range []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK"} {
			e.add(at, 40, "__name__", name, "gpu", "0", "UUID", "GPU-a", "Hostname", "gpu-1", "instance", "gpu-1:9400", "job", "dcgm")
		}
	}
	scrape(noon)
	r := reading(t, e, func(c *Config) { c.MaxSeries = 2 })
	if _, err := r.Round(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	e.asked = nil
	scrape(noon.Add(30 * time.Second))
	snapshots, err := r.Round(t.Context(), noon.Add(30*time.Second))
	if err != nil || len(e.asked) != 2 {
		t.Fatalf("asked %q, %v; want two halves", e.asked, err)
	}
	if g := &snapshots[0].GPUs[0]; g.Value(metric.Temperature) != 40 || g.Value(metric.PowerDraw) != 40 {
		t.Errorf("temperature %v, power %v: both halves are answered", g.Value(metric.Temperature), g.Value(metric.PowerDraw))
	}
	if r.counts.failures[tooLarge] != 1 {
		t.Errorf("failures %v, want one", r.counts.failures)
	}
}

func TestAServerInTroubleIsNotAskedMore(t *testing.T) {
	e := &engine{}
	for _, name := range r32() {
		e.add(noon, 1, "__name__", name, "instance", "gpu-1:9400", "job", "x")
	}
	r := reading(t, e, nil)
	if _, err := r.Round(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	groups := len(r.groups)
	e.asked = nil
	e.meets = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
		return true
	}
	_, err := r.Round(t.Context(), noon.Add(30*time.Second))
	if err == nil || page.Reason(err) != "status" || len(e.asked) != maxFailures || groups < 4 {
		t.Errorf("asked %d of %d groups, %v", len(e.asked), groups, err)
	}
}

// r32 are names of several sources.
func r32() []string {
	return []string{"node_load1", "node_memory_MemTotal_bytes", "DCGM_FI_DEV_GPU_TEMP", "vllm:num_requests_running", "kube_pod_info", "vigil_gpu_temperature_celsius"}
}

func TestFailuresSayWhy(t *testing.T) {
	f := func(reason string, status int, body string) {
		t.Helper()
		e := &engine{meets: func(w http.ResponseWriter, _ *http.Request, _ string) bool {
			if status >= 300 && status < 400 {
				w.Header().Set("Location", "http://elsewhere.example/")
			}
			w.WriteHeader(status)
			w.Write([]byte(body))
			return true
		}}
		r := reading(t, e, func(c *Config) { c.MaxBytes = 4096 })
		_, err := r.Round(t.Context(), noon)
		if page.Reason(err) != reason {
			t.Errorf("status %d with %.40q: reason %q of %v, want %s", status, body, page.Reason(err), err, reason)
		}
		if r.counts.failures[reason] != 1 || r.counts.up.Load() {
			t.Errorf("%s: counted %v", reason, r.counts.failures)
		}
	}
	f("credentials", 401, "who are you")
	f("credentials", 403, "")
	f("redirect", 302, "")
	f("status", 502, "<html>bad gateway</html>")
	f("status", 429, "")
	f("timeout", 503, `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`)
	f(tooLarge, 422, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`)
	f("rejected", 400, `{"status":"error","errorType":"bad_data","error":"unknown"}`)
	f("rejected", 200, `{"status":"error","error":"no"}`)
	f("html", 200, "<html>login</html>")
	f("syntax", 200, "pong")
	f(tooLarge, 200, strings.Repeat(" ", 5000))
}

func TestSecretsAreSentAndNotShown(t *testing.T) {
	var seen http.Header
	e := &engine{meets: func(w http.ResponseWriter, r *http.Request, _ string) bool {
		seen = r.Header.Clone()
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}}
	r := reading(t, e, func(c *Config) {
		c.Address.Token = func() (string, error) { return "hunter2", nil }
		c.Headers = []Header{{"X-Scope-OrgID", func() (string, error) { return "nlp", nil }}}
		c.Match = []string{`cluster = "a"`}
	})
	_, err := r.Round(t.Context(), noon)
	if seen.Get("Authorization") != "Bearer hunter2" || seen.Get("X-Scope-OrgID") != "nlp" {
		t.Errorf("sent %v", seen)
	}
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
}

func TestMatchersAreInEachQuestion(t *testing.T) {
	e := &engine{}
	e.gpu(noon, "GPU-a", 1)
	var matched string
	e.meets = func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		if m := r.FormValue("match[]"); m != "" {
			matched = m
		}
		return false
	}
	r := reading(t, e, func(c *Config) { c.Match = []string{`cluster=~"a|b"`, `env!="dev"`} })
	if _, err := r.Round(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	const want = `cluster=~"a|b",env!="dev"`
	if matched != "{"+want+"}" || !strings.Contains(e.asked[1], "{"+want+",__name__=") {
		t.Errorf("names are matched by %s, and asked is %s", matched, e.asked[1])
	}
}

func TestConfigurationsThatCannotBeUsed(t *testing.T) {
	f := func(says string, c Config) {
		t.Helper()
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v, want one that says %q", err, says)
		}
	}
	at := func(url string) Config { return Config{Address: page.Address{URL: url}} }
	f("does not begin with http", at("prometheus:9090"))
	f("holds a user", at("http://me:hunter2@prometheus:9090"))
	f("holds a user", at("http://prometheus:9090?token=hunter2"))
	c := at("http://prometheus:9090")
	c.Match = []string{`a="b"} or {x="y"`}
	f("no matcher", c)
	c.Match = []string{`__name__="up"`}
	f("would leave out", c)
	c.Match = nil
	c.Headers = []Header{{Name: "Authorization"}}
	f("Authorization", c)
	c.Headers = []Header{{Name: "a b"}}
	f("no name of a header", c)
}

func TestCPUsAreAddedUpByTheEngine(t *testing.T) {
	e := &engine{}
	e.gpu(noon, "GPU-a", 1)
	e.add(noon, 1, "__name__", "node_cpu_seconds_total", "cpu", "0", "mode", "idle", "instance", "gpu-1:9100", "job", "node")
	e.add(noon, 1, "__name__", "node_load1", "instance", "gpu-1:9100", "job", "node")
	scraped := noon.Add(-3 * time.Second)
	idle, user := 1000.0, 500.0
	e.meets = func(w http.ResponseWriter, r *http.Request, q string) bool {
		const labels = `"instance":"gpu-1:9100","job":"node"`
		vector := func(series ...string) bool {
			w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`))
			return true
		}
		one := func(labels, v string) string {
			return `{"metric":{` + labels + `},"value":[` + r.FormValue("time") + `,"` + v + `"]}`
		}
		switch {
		case strings.HasPrefix(q, "max without (cpu, mode) (timestamp("):
			return vector(one(labels, stamp(scraped)))
		case strings.HasPrefix(q, "count without (cpu, mode)"):
			return vector(one(labels, "128"))
		case strings.HasPrefix(q, "sum without (cpu)"):
			return vector(one(labels+`,"mode":"idle"`, number(idle)), one(`"mode":"user",`+labels, number(user)))
		}
		return false
	}
	r := reading(t, e, nil)
	for i := range 2 {
		at := noon.Add(time.Duration(i) * 30 * time.Second)
		scraped, idle, user = at.Add(-3*time.Second), idle+1000, user+3000
		e.gpu(at, "GPU-a", 1)
		e.add(at, 1, "__name__", "node_load1", "instance", "gpu-1:9100", "job", "node")
		snapshots, err := r.Round(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		n := snapshots[0].Node
		if n.Value(metric.CPUCount) != 128 || n.Has(metric.CPUBusiest) {
			t.Errorf("round %d: %v CPUs, busiest %v; there are 128, and a sum tells of none", i, n.Value(metric.CPUCount), n.Value(metric.CPUBusiest))
		}
		if got := n.Value(metric.CPUBusy); i == 1 && math.Abs(got-0.75) > 1e-9 {
			t.Errorf("CPUs are busy by %v, three quarters of their time were user's", got)
		}
	}
}

func number(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(stamp(time.UnixMilli(int64(v*1000))), "0"), ".")
}

func TestNothingUnderstoodIsNoFailure(t *testing.T) {
	e := &engine{}
	e.add(noon, 1, "__name__", "up")
	var found [][]string
	r := reading(t, e, func(c *Config) { c.Found = func(names []string) { found = append(found, names) } })
	for range 2 {
		if snapshots, err := r.Round(t.Context(), noon); err != nil || len(snapshots) != 0 {
			t.Errorf("%d snapshots, %v", len(snapshots), err)
		}
	}
	e.gpu(noon, "GPU-a", 1)
	if snapshots, err := r.Round(t.Context(), noon); err != nil || len(snapshots) != 1 {
		t.Errorf("after dcgm-exporter came: %d snapshots, %v", len(snapshots), err)
	}
	if len(found) != 2 || len(found[0]) != 0 || len(found[1]) != 1 {
		t.Errorf("found was told %q, want nothing and then one name", found)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, body := range []string{``, `{`, `[]`, `{"status":"success"`, `{"data":{"result":[{"metric":{},"value":[1]}]}}`, `{"data":{"result":[{"metric":3,"value":[1,"2"]}]}}`, `{"status":"success"} x`,
		`{"data":{"result":[{"metric":{},"values":[[1,"a"]]}]}}`, `{"status":"\`, `{"data":{"result":[{"metric":{},"value":[1e300,"2"]}]}}`, `{"x":]}`} {
		if _, err := read([]byte(body), func([]byte, point, int64) {}); err == nil {
			t.Errorf("%q is read as an answer", body)
		} else if f := (*page.Failure)(nil); !errors.As(err, &f) {
			t.Errorf("%q: %v has no reason", body, err)
		}
	}
}
