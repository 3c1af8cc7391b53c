package inference

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// feed reads pages into a book, one every five seconds, and returns what each says
// of its first model.
func feed(t *testing.T, pages ...string) []collector.Endpoint {
	t.Helper()
	b := newBook(indexes()["auto"], "auto", "")
	at := time.Unix(1790000000, 0)
	var out []collector.Endpoint
	for _, page := range pages {
		at = at.Add(5 * time.Second)
		if _, err := b.read(strings.NewReader(page)); err != nil {
			t.Fatalf("page %q: %v", page, err)
		}
		out = append(out, b.settle("http://x", nil, at)[0])
	}
	return out
}

func queued(counts ...int) string {
	const name = "vllm:request_queue_time_seconds"
	n := counts[len(counts)-1]
	return fmt.Sprintf("# TYPE %s histogram\n%[1]s_bucket{model_name=\"m\",le=\"1\"} %[2]d\n%[1]s_bucket{model_name=\"m\",le=\"2\"} %[3]d\n"+
		"%[1]s_bucket{model_name=\"m\",le=\"+Inf\"} %[4]d\n%[1]s_count{model_name=\"m\"} %[4]d\n%[1]s_sum{model_name=\"m\"} %[4]d\n", name, counts[0], counts[1], n)
}

func TestQueueTimeIsOfNow(t *testing.T) {
	// A day of fast requests, then ten that waited between 1 and 2 s.
	said := feed(t, queued(100000, 100000, 100000), queued(100000, 100010, 100010))
	if said[0].Has(metric.QueueTimeP95) {
		t.Errorf("a single page gives a queue time of %v: that is over the whole life of the server", said[0].Value(metric.QueueTimeP95))
	}
	if got := said[1].Value(metric.QueueTimeP95); math.Abs(got-1.95) > 1e-9 {
		t.Errorf("queue-time p95 = %v, want 1.95: only the ten new requests count", got)
	}
}

func TestHistogramSurvivesARestart(t *testing.T) {
	said := feed(t, queued(10, 20, 30), queued(11, 22, 33), queued(1, 2, 4), queued(1, 3, 6))
	var counts []uint64
	for _, e := range said {
		counts = append(counts, e.Histograms[0].Count())
	}
	if got := fmt.Sprint(counts); got != "[30 33 37 39]" {
		t.Errorf("requests in the queue so far: %s, want 4 and 2 more after the restart", got)
	}
}

// Lines that make no histogram are none; the rest of the page stands.
func TestBrokenHistogramIsAbsent(t *testing.T) {
	for name, page := range map[string]string{
		"counts that fall": queued(9, 5, 10),
		"no sum":           strings.ReplaceAll(queued(1, 2, 3), "_sum", "_total"),
		"odd bound":        strings.ReplaceAll(queued(1, 2, 3), `le="2"`, `le="two"`),
		"no buckets":       "vllm:request_queue_time_seconds_sum{model_name=\"m\"} 3\nvllm:request_queue_time_seconds_count{model_name=\"m\"} 3\n",
	} {
		e := feed(t, page+"vllm:num_requests_running{model_name=\"m\"} 5\n")[0]
		if len(e.Histograms) != 0 || e.Value(metric.RequestsRunning) != 5 {
			t.Errorf("%s: %d histograms, running=%v", name, len(e.Histograms), e.Value(metric.RequestsRunning))
		}
	}
	noInf := strings.ReplaceAll(queued(1, 2, 3), `le="+Inf"`, `le="5"`)
	if e := feed(t, noInf)[0]; len(e.Histograms) != 1 || e.Histograms[0].Count() != 3 {
		t.Errorf("without a last bucket the count stands for it: %v", e.Histograms)
	}
}

// One of two replicas restarts, then goes, then another comes: what was generated
// never falls, and nothing counts twice.
func TestCountersOfPartsThatComeAndGo(t *testing.T) {
	page := func(parts ...any) string {
		var b strings.Builder
		for i := 0; i < len(parts); i += 2 {
			fmt.Fprintf(&b, "vllm:generation_tokens_total{engine=\"%v\",model_name=\"m\"} %v\n", parts[i], parts[i+1])
		}
		return b.String()
	}
	said := feed(t, page(0, 100, 1, 1000), page(0, 110, 1, 5), page(0, 120), page(0, 130, 2, 7), page(0, 130, 2, 7, 1, 9))
	var got []float64
	for _, e := range said {
		got = append(got, e.Value(metric.GeneratedTokens))
	}
	// +10 and 5 after the restart; +10; +10 and 7 of the new one; 4 of the one that is back.
	if s := fmt.Sprint(got); s != "[1100 1115 1125 1142 1146]" {
		t.Errorf("tokens page after page: %s, want [1100 1115 1125 1142 1146]", s)
	}
}

// A server that was away for long may count further than before: its start says
// that all of it is new.
func TestRestartIsToldByTheProcessItself(t *testing.T) {
	page := func(start, tokens int) string {
		return fmt.Sprintf("process_start_time_seconds %d\nvllm:generation_tokens_total{model_name=\"m\"} %d\n", start, tokens)
	}
	said := feed(t, page(1, 100), page(1, 150), page(2, 400))
	if got := said[2].Value(metric.GeneratedTokens); got != 550 {
		t.Errorf("%v tokens, want 150 and 400", got)
	}
}

// Triton and TorchServe tell no more than sums: 20 requests in 5 s that waited 3 s
// together.
func TestMeansOfSums(t *testing.T) {
	page := func(n, queue, all int) string {
		return fmt.Sprintf("nv_inference_request_success{model=\"m\",version=\"1\"} %d\nnv_inference_queue_duration_us{model=\"m\",version=\"1\"} %d\n"+
			"nv_inference_request_duration_us{model=\"m\",version=\"1\"} %d\n", n, queue, all)
	}
	e := feed(t, page(1000, 5_000_000, 90_000_000), page(1020, 8_000_000, 100_000_000))[1]
	for d, want := range map[*metric.Def]float64{metric.QueueTimeMean: 0.15, metric.RequestDurationMean: 0.5, metric.ServiceRate: 4} {
		if got := e.Value(d); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", d, got, want)
		}
	}
}

// With priorities, the row without one is the total; ranks repeat it.
func TestSGLangPrioritiesAndRanks(t *testing.T) {
	var b strings.Builder
	for rank := range 4 {
		for priority, n := range map[string]int{"": 9, "high": 2, "low": 7} {
			fmt.Fprintf(&b, "sglang:num_queue_reqs{model_name=\"m\",dp_rank=\"0\",tp_rank=\"%d\",priority=%q} %d\n", rank, priority, n)
		}
	}
	b.WriteString("sglang:num_queue_reqs{model_name=\"m\",dp_rank=\"1\",tp_rank=\"0\"} 4\n")
	if got := feed(t, b.String())[0].Value(metric.RequestsWaiting); got != 13 {
		t.Errorf("%v requests wait, want 9 of one data-parallel rank and 4 of the other", got)
	}
}

func TestManyModels(t *testing.T) {
	var b strings.Builder
	for i := range maxModels + 10 {
		fmt.Fprintf(&b, "vllm:num_requests_running{model_name=\"model-%03d\"} %d\n", i, i)
	}
	before := modelsCapped.Get()
	s := source(t, "auto", serve([]byte(b.String())))
	for range 3 {
		if n := len(sampleOf(t, s).Endpoints); n != maxModels {
			t.Errorf("%d models have series, the limit is %d", n, maxModels)
		}
	}
	if modelsCapped.Get() == before {
		t.Error("models were left out and nothing says so")
	}
}

func TestModelNamesAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 300)
	page := "vllm:num_requests_running{model_name=\"" + long + "\"} 1\nvllm:num_requests_running{model_name=\"caf\xff\"} 2\nvllm:num_requests_running{model_name=\"a\\\\b\\\"c\\n\"} 3\n" +
		"vllm:num_requests_running{model_name=\"x\x00\x1b[31my\"} 4\n"
	part := sampleOf(t, source(t, "auto", serve([]byte(page))))
	var names []string
	for _, e := range part.Endpoints {
		names = append(names, e.Model)
	}
	want := []string{"a\\b\"c", "caf\uFFFD", "x [31my", strings.Repeat("ü", maxName-1) + "…"}
	if strings.Join(names, "|") != strings.Join(want, "|") {
		t.Errorf("models %q, want %q", names, want)
	}
}

// What is no longer on the page is forgotten after a while, and its tokens stay
// counted.
func TestModelsThatAreGoneAreForgotten(t *testing.T) {
	b := newBook(indexes()["auto"], "auto", "")
	at := time.Unix(1790000000, 0)
	read := func(model string) {
		t.Helper()
		if _, err := b.read(strings.NewReader(fmt.Sprintf("vllm:generation_tokens_total{model_name=%q} 5\n", model))); err != nil {
			t.Fatal(err)
		}
		b.settle("http://x", nil, at)
		at = at.Add(time.Minute)
	}
	read("old")
	for range 20 {
		read("new")
	}
	if len(b.models) != 1 || b.tokens != 5 {
		t.Errorf("%d models are remembered, %v tokens of those that are gone; want 1 and 5", len(b.models), b.tokens)
	}
}

func TestStaleQueueIsKnownAsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(indexes()["auto"], "auto", "")
		page := recorded(t, "vllm-v1.prom")
		var last collector.Endpoint
		for range 30 {
			if _, err := b.read(strings.NewReader(string(page))); err != nil {
				t.Fatal(err)
			}
			last = b.settle("http://x", nil, time.Now())[0]
			time.Sleep(5 * time.Second)
		}
		if last.Value(metric.EndpointStale) != 1 || last.Value(metric.RequestsWaiting) != 12 {
			t.Errorf("a queue that does not move for two minutes: stale=%v waiting=%v", last.Value(metric.EndpointStale), last.Value(metric.RequestsWaiting))
		}
	})
}

// Energy and GPUs come from the last snapshot: 5000 tokens in the time in which
// two GPUs drew 10 kJ.
func TestTokensPerJouleAndGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		joules, tokens := 1e6, 0
		snap := func() *collector.Snapshot {
			s := &collector.Snapshot{Time: time.Now()}
			for _, uuid := range []string{"GPU-a", "GPU-b"} {
				g := collector.GPU{UUID: uuid, Present: true, Readings: collector.NewReadings(metric.GPU)}
				g.Set(metric.Energy, joules)
				g.Stamp(metric.Energy.Tier, time.Now())
				s.GPUs = append(s.GPUs, g)
			}
			return s
		}
		tt := &target{Target: Target{GPUs: []string{"GPU-a", "GPU-b"}}, book: newBook(indexes()["auto"], "auto", "")}
		for range 2 {
			if _, err := tt.book.read(strings.NewReader(fmt.Sprintf("vllm:generation_tokens_total{model_name=\"m\"} %d\n", tokens))); err != nil {
				t.Fatal(err)
			}
			tt.output = collector.NewReadings(metric.Target)
			tt.book.settle("http://x", tt.GPUs, time.Now())
			tt.measure(snap(), time.Now())
			time.Sleep(5 * time.Second)
			joules, tokens = joules+5000, tokens+5000
		}
		if a, b := tt.output.Value(metric.TokensPerGPU), tt.output.Value(metric.TokensPerJoule); a != 500 || b != 0.5 {
			t.Errorf("%v tokens a second on each GPU, %v a joule; want 500 and 0.5", a, b)
		}
	})
}

// A GPU that is not on this node has no tokens, and whoever named it learns so, once.
func TestGPUsThatAreNotHere(t *testing.T) {
	const here, mig, away = "GPU-a", "MIG-b", "GPU-c"
	snap := &collector.Snapshot{GPUs: []collector.GPU{{UUID: here}}, Instances: []collector.Instance{{MIGUUID: mig}}}
	for name, c := range map[string]struct {
		gpus []string
		snap *collector.Snapshot
		told bool
		says int
	}{
		"here": {[]string{here, mig}, snap, true, 0}, "away": {[]string{away}, snap, false, 1}, "one of two": {[]string{here, away}, snap, false, 1},
		"no snapshot yet": {[]string{here}, nil, false, 0}, "no GPUs at all": {[]string{here}, &collector.Snapshot{}, false, 0},
	} {
		var said strings.Builder
		s := &Inference{cfg: Config{Log: slog.New(slog.NewTextHandler(&said, nil))}}
		tt := &target{Target: Target{GPUs: c.gpus}, shown: "chat", book: newBook(indexes()["auto"], "auto", "")}
		at := time.Unix(1790000000, 0)
		for i := range 40 {
			if _, err := tt.book.read(strings.NewReader(fmt.Sprintf("vllm:generation_tokens_total{model_name=\"m\"} %d\n", 100*i))); err != nil {
				t.Fatal(err)
			}
			at = at.Add(5 * time.Second)
			tt.output = collector.NewReadings(metric.Target)
			tt.book.settle("http://x", tt.GPUs, at)
			tt.measure(c.snap, at)
			s.accuse(tt, c.snap, at)
		}
		if tt.output.Has(metric.TokensPerGPU) != c.told {
			t.Errorf("%s: %v tokens a second on each GPU, want them told: %t", name, tt.output.Value(metric.TokensPerGPU), c.told)
		}
		if n := strings.Count(said.String(), "not on this node"); n != c.says || c.says > 0 && !strings.Contains(said.String(), away) {
			t.Errorf("%s: it is said %d times, want %d: %s", name, n, c.says, said.String())
		}
	}
}

// More targets hang than are read side by side: each good one gets its turn.
func TestHangingTargetsDoNotStarveTheOthers(t *testing.T) {
	handlers := make([]http.HandlerFunc, maxAtOnce+8)
	for i := range handlers {
		handlers[i] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	}
	handlers[len(handlers)-1] = serve(recorded(t, "vllm-v1.prom"))
	s := hurriedSource(t, "auto", time.Minute, handlers...)
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		part, _ := sampled(ctx, t, s)
		cancel()
		if part.Targets[0].ValueAt(metric.TargetFailing, metric.TargetReasons.Index("timeout")) != 1 {
			t.Fatal("a target that hangs does not say so")
		}
		if part.Targets[len(handlers)-1].Value(metric.TargetUp) == 1 {
			return
		}
	}
	t.Error("a good target behind many that hang is never read")
}

// A decode server that is fed by prefill servers has nobody in the queue that others
// have: who waits is in the two before it.
func TestQueuesOfADecodeServer(t *testing.T) {
	page := func(queue, prealloc, transfer int) string {
		var b strings.Builder
		for rank := range 2 {
			for name, n := range map[string]int{"num_queue_reqs": queue, "num_decode_prealloc_queue_reqs": prealloc, "num_decode_transfer_queue_reqs": transfer} {
				if n >= 0 {
					fmt.Fprintf(&b, "sglang:%s{model_name=\"m\",engine_type=\"decode\",tp_rank=\"%d\"} %d\n", name, rank, n)
				}
			}
		}
		return b.String() + "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 3\n"
	}
	said := feed(t, page(0, 5, 7), page(2, 0, 1), page(4, -1, -1), page(-1, 5, 7))
	for i, want := range []float64{12, 3, 4} {
		if got := said[i].Value(metric.RequestsWaiting); got != want {
			t.Errorf("page %d: %v requests wait, want %v", i, got, want)
		}
	}
	if said[3].Has(metric.RequestsWaiting) {
		t.Errorf("a page without its queue has %v requests waiting, want none told", said[3].Value(metric.RequestsWaiting))
	}
}
