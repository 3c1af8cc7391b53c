package inference

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// expected is what a page says of one model. What is not listed is not on the page.
type expected struct {
	engine, model  string
	running, wait  float64 // NaN: not on the page
	kv             float64
	outcomes       string // success/error/cancelled/rejected/unknown
	prompt, tokens float64
	preemptions    float64
	histograms     string // count/sum of queue time, first token, between tokens, duration
}

var recordings = map[string]struct {
	want string // the engine in the configuration
	says []expected
}{
	// Two engines: queues add up, the fuller KV cache counts, the split by reason is not
	// added, and what the client cancelled is no error.
	"vllm-v1.prom": {"auto", []expected{{"vllm", "acme/chat-8b", 42, 12, 0.96875, "472/1/7/-/-", 431253, 206222, 17,
		"480/1534.5 480/1908.6 205742/9811.5 480/11646.3"}}},
	"vllm-v0.prom": {"auto", []expected{{"vllm", "acme/chat-8b", 6, 3, 0.8125, "447/-/-/-/-", 182034, 64210, 4,
		"- 447/151.2 63763/1849.1 447/2301.4"}}},
	// Both names of the KV cache and of the time between tokens: one of them counts.
	"vllm-transition.prom": {"auto", []expected{{"vllm", "acme/chat-8b", 4, 1, 0.5, "-/-/-/-/-", nan, nan, nan, "- - 1000/40.5 -"}}},
	"vllm-ray.prom":        {"auto", []expected{{"vllm", "acme/chat-8b", 7, 1, 0.5, "-/-/-/-/-", nan, nan, nan, "- - - -"}}},
	// Absent is not zero: it has served nobody yet.
	"vllm-no-samples-yet.prom": {"auto", []expected{{"vllm", "", nan, nan, nan, "-/-/-/-/-", nan, nan, nan, "- - - -"}}},
	// Two ranks say the same.
	"sglang.prom": {"auto", []expected{{"sglang", "acme/chat-8b", 24, 7, 0.83, "-/-/41/-/20110", 3.5e7, 1.2e6, 5,
		"20110/8100.7 20110/19011.2 1179000/31201 20110/60120"}}},
	"sglang-old.prom": {"auto", []expected{{"sglang", "acme/chat-8b", 161, 2826, 0.28, "-/-/-/-/-", 8.128902e6, 7.557572e6, nan,
		"- 11008/235189.7 7400757/866964 11005/311680.3"}}},
	"tgi.prom": {"auto", []expected{{"tgi", "", 5, 3, nan, "139/-/1/10/-", 70112, 9012, nan, "139/44.5 - 139/7.25 139/612.25"}}},
	"triton.prom": {"auto", []expected{
		{"triton", "embed", nan, 0, nan, "9001/0/1/0/-", nan, nan, nan, "- - - -"},
		{"triton", "ranker", nan, 4, nan, "161/2/0/5/-", nan, nan, nan, "- 161/9.8 - -"}}},
	// The states are label values of one family, and the cache is used of its maximum.
	"triton-trtllm.prom": {"auto", []expected{
		{"triton", "ensemble", nan, 3, nan, "70/-/-/-/-", nan, nan, nan, "- - - -"},
		{"triton", "tensorrt_llm", 8, 3, 0.625, "0/0/-/-/-", nan, nan, nan, "- - - -"}}},
	"nim.prom": {"nim", []expected{{"nim", "acme/chat-70b", 3, 1, 0.41, "234/3/-/-/-", 91822, 30110, nan, "- 234/40 30110/601 234/1200"}}},
	// Replicas and handles add up; milliseconds are not seconds.
	"ray-serve.prom":    {"auto", []expected{{"ray-serve", "agent/Runtime", 7, 20, nan, "1770/3/-/-/-", nan, nan, nan, "- - - 900/310"}}},
	"trtllm-serve.prom": {"auto", []expected{{"trtllm-serve", "acme/chat-8b", 9, 2, 0.625, "320/-/-/-/-", nan, nan, nan, "320/30.5 320/50.25 40100/1002.5 320/900.5"}}},
	"trtllm-metrics-is-json.json": {"auto", []expected{{"trtllm-serve", "", 1, 3, 127.0 / 3253, "-/-/-/-/-", nan, nan, nan,
		"- - - -"}}},
	// What is queued is in flight, too.
	"dynamo.prom":           {"auto", []expected{{"dynamo", "acme/chat-8b", 8, 4, nan, "550/6/-/-/-", 210000, 50650, nan, "- 550/300.5 50100/1300.25 550/2200.75"}}},
	"llamacpp.prom":         {"auto", []expected{{"llamacpp", "", 4, 46, nan, "-/-/-/-/-", 51200, 39080, nan, "- - - -"}}},
	"lmdeploy.prom":         {"auto", []expected{{"lmdeploy", "acme/chat-7b", 8, 5, 0.75, "-/-/-/-/-", 120000, 41000, nan, "- - - 200/700.5"}}},
	"kserve.prom":           {"auto", []expected{{"kserve", "iris", nan, nan, nan, "-/-/-/-/-", nan, nan, nan, "- - - 120/9.4"}}},
	"torchserve.prom":       {"auto", []expected{{"torchserve", "resnet18", nan, nan, nan, "-/-/-/-/8", nan, nan, nan, "- - - -"}}},
	"envoy-ai-gateway.prom": {"auto", []expected{{"envoy-ai-gateway", "acme/chat-8b", nan, nan, nan, "400/3/-/-/-", 150000, 30400, nan, "- 400/60.5 30000/600.25 403/1200.75"}}},
	"litellm.prom":          {"auto", []expected{{"litellm", "chat-large", nan, nan, nan, "880/4/-/15/1", nan, nan, nan, "- 500/210.25 - 880/3000.5"}}},
}

func TestRecordedPages(t *testing.T) {
	covered := map[string]bool{}
	for file, page := range recordings {
		part := sampleOf(t, source(t, page.want, serve(recorded(t, file))))
		if len(part.Endpoints) != len(page.says) {
			t.Errorf("%s: %d models, want %d", file, len(part.Endpoints), len(page.says))
			continue
		}
		for i, want := range page.says {
			if diff := compare(part.Endpoints[i], want); diff != "" {
				t.Errorf("%s: model %q: %s", file, want.model, diff)
			}
			covered[want.engine] = true
		}
		if up := part.Targets[0].Value(metric.TargetUp); up != 1 {
			t.Errorf("%s: the target is up=%v", file, up)
		}
	}
	var names []string
	for _, e := range engines() {
		names = append(names, e.name)
		if !covered[e.name] {
			t.Errorf("engine %s has no recorded page", e.name)
		}
	}
	if fmt.Sprint(names) != fmt.Sprint(metric.Engines) {
		t.Errorf("the table has the engines %v, the configuration allows %v", names, metric.Engines)
	}
}

func sampleOf(t *testing.T, s *Inference) *collector.Part {
	t.Helper()
	part, said := sampled(t.Context(), t, s)
	if said != "" {
		t.Fatalf("a good page is said not to be: %s", said)
	}
	return part
}

// compare says where an endpoint is not what the page says.
func compare(e collector.Endpoint, want expected) string {
	var wrong []string
	differ := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", what, got, want))
		}
	}
	differ("engine", e.Engine, want.engine)
	differ("model", e.Model, want.model)
	differ("up", e.Value(metric.EndpointUp), 1)
	for d, v := range map[*metric.Def]float64{metric.RequestsRunning: want.running, metric.RequestsWaiting: want.wait, metric.KVCacheUsage: want.kv,
		metric.PromptTokens: want.prompt, metric.GeneratedTokens: want.tokens, metric.Preemptions: want.preemptions} {
		differ(d.Name, e.Value(d), v)
	}
	var outcomes []string
	for i := range metric.Outcomes.Values {
		outcomes = append(outcomes, orDash(e.ValueAt(metric.Requests, i)))
	}
	differ("outcomes", strings.Join(outcomes, "/"), want.outcomes)
	var histograms []string
	for _, d := range []*metric.Def{metric.QueueTime, metric.TimeToFirstToken, metric.InterTokenLatency, metric.RequestDuration} {
		said := "-"
		for _, h := range e.Histograms {
			if h.Row == d {
				said = fmt.Sprintf("%d/%.7g", h.Count(), h.Sum)
			}
		}
		histograms = append(histograms, said)
	}
	differ("histograms", strings.Join(histograms, " "), want.histograms)
	return strings.Join(wrong, "; ")
}

func orDash(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprint(v)
}

// A page with names that any exporter might have is taken for NIM's only if the
// configuration says so.
func TestNIMIsNeverGuessed(t *testing.T) {
	s := source(t, "auto", serve(recorded(t, "nim.prom")))
	if _, said := sampled(t.Context(), t, s); !strings.Contains(said, "no inference server that is known") {
		t.Errorf("the page of a NIM that is not declared: %q", said)
	}
}

func TestConfiguredEngineIsHeldToItsPage(t *testing.T) {
	s := source(t, "sglang", serve(recorded(t, "vllm-v1.prom")))
	part, said := sampled(t.Context(), t, s)
	if !strings.Contains(said, "nothing of sglang") {
		t.Errorf("vLLM's page on a target that is declared SGLang: %q", said)
	}
	if part.Targets[0].ValueAt(metric.TargetFailing, metric.TargetReasons.Index("other_engine")) != 1 {
		t.Error("the target does not say that it is another engine's")
	}
}

// The name of a model is the target's where the server does not tell it.
func TestModelOfServerThatDoesNotTell(t *testing.T) {
	s := ofTargets(t, patient, Target{URL: serverOf(t, serve(recorded(t, "tgi.prom"))), Engine: "auto", Model: "acme/mistral"})
	if e := sampleOf(t, s).Endpoints[0]; e.Model != "acme/mistral" || e.Value(metric.RequestsWaiting) != 3 {
		t.Errorf("the model is %q with %v waiting", e.Model, e.Value(metric.RequestsWaiting))
	}
}

// A server whose iterations were read by somebody else has told nothing, and works.
func TestEmptyListOfIterations(t *testing.T) {
	s := source(t, "trtllm-serve", serve([]byte("[]")))
	if e := sampleOf(t, s).Endpoints[0]; e.Value(metric.EndpointUp) != 1 || e.Has(metric.RequestsRunning) {
		t.Errorf("up=%v running=%v", e.Value(metric.EndpointUp), e.Value(metric.RequestsRunning))
	}
}

// Odd lines that are of no interest do not cost the page; they cost it if they
// are.
func TestOnlyLinesOfInterestCount(t *testing.T) {
	good := recorded(t, "vllm-v0.prom")
	odd := bytes.Join([][]byte{[]byte("power_state{id=\"0\"} \nfan N/A\n"), good, []byte("version 455.32.00\n")}, nil)
	if e := sampleOf(t, source(t, "auto", serve(odd))).Endpoints[0]; e.Value(metric.RequestsRunning) != 6 {
		t.Errorf("running=%v beside odd lines of others", e.Value(metric.RequestsRunning))
	}
	for _, line := range []string{"vllm:num_requests_running ", "vllm:num_requests_running N/A", "vllm:num_requests_running 0x1p-2", "vllm:num_requests_running 1_000",
		`vllm:num_requests_running{model_name="m} 1`, "vllm:num_requests_running 1\r", "vllm:num_requests_running 1 2 3", `vllm:num_requests_running{model_name=m} 1`} {
		s := source(t, "auto", serve(append([]byte(line+"\n"), good...)))
		if _, said := sampled(t.Context(), t, s); !strings.Contains(said, "text format") {
			t.Errorf("a page with the line %q: %q", line, said)
		}
	}
}

// OpenMetrics is served by who does not look at what was asked for: counters lose
// their suffix in TYPE lines, exemplars stand behind samples, EOF ends it.
func TestOpenMetrics(t *testing.T) {
	page := "# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{model_name=\"m\"} 7.0 # {trace_id=\"x\"} 1.0 1.7e9\n" +
		"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 3.0 1790000000.5\n# EOF"
	e := sampleOf(t, source(t, "auto", serve([]byte(page)))).Endpoints[0]
	if e.Value(metric.GeneratedTokens) != 7 || e.Value(metric.RequestsRunning) != 3 {
		t.Errorf("tokens=%v running=%v", e.Value(metric.GeneratedTokens), e.Value(metric.RequestsRunning))
	}
}

// What a server tells something near to is marked, so that two servers are not
// compared by numbers that mean different things.
func TestApproximateSignalsAreMarked(t *testing.T) {
	for page, want := range map[string][]string{
		"tgi.prom": {"inter_token_latency_seconds"}, "dynamo.prom": {"requests_running", "requests_waiting"}, "vllm-v1.prom": nil,
		"triton.prom": {"time_to_first_token_seconds"},
	} {
		s := source(t, "auto", serve(recorded(t, page)))
		var got []string
		for _, e := range sampleOf(t, s).Endpoints {
			for _, d := range e.Approximate {
				if signal := metric.Signal(d); !slices.Contains(got, signal) {
					got = append(got, signal)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: marked as approximate are %v, want %v", page, got, want)
		}
	}
	for _, e := range engines() {
		for _, d := range e.approximate {
			if len(e.notes) == 0 {
				t.Errorf("%s is approximate of %s, and nobody is told how", d, e.name)
			}
		}
	}
}
