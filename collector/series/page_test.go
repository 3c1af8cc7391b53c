package series

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gpuvigil/collector"
	"gpuvigil/collector/inference"
	"gpuvigil/collector/page"
	"gpuvigil/collector/scrape"
	"gpuvigil/internal/metric"
)

// serve serves the page to the source under test.
func serve(t *testing.T, content *[]byte) *page.Page {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(*content) }))
	t.Cleanup(server.Close)
	p, err := page.New(page.Address{URL: server.URL + "/metrics"}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// asSeen is what of a snapshot does not depend on when and where it was taken.
func asSeen(s *collector.Snapshot) collector.Snapshot {
	out := *s
	out.Time, out.Sources, out.Pages, out.Node.Name = time.Time{}, nil, nil, ""
	return out
}

func tiers(d time.Duration) [metric.Tiers]time.Duration {
	return [metric.Tiers]time.Duration{d, d, d, d}
}

// A page that collector/scrape reads and the same page as series are the same node.
func TestSeriesOfAPageSayWhatThePageSays(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, name := range []string{"dcgm-1.x", "dcgm-4.6-percent", "dcgm-4.8", "dcgm-4.9", "dcgm-mig", "nvidia_gpu_exporter", "nvidia_gpu_exporter-mig", "node_exporter"} {
		t.Run(name, func(t *testing.T) {
			content := recorded(t, "../scrape/testdata/"+name+".prom")
			var source collector.Source
			if at := serve(t, &content); name == "node_exporter" {
				source = scrape.NewNode(scrape.NodeConfig{Page: at, Log: quiet})
			} else {
				source = scrape.NewGPUs(scrape.GPUConfig{Page: at, Interval: time.Minute, Log: quiet})
			}
			mixer := collector.NewMixer(collector.SamplerConfig{Tiers: tiers(time.Minute), Log: quiet})
			a := New(Config{})
			if name == "node_exporter" { // a node without GPUs is nobody's
				add(a, noon, []sample{{append(scraped("dcgm", "gpu-117:9400"), Label{"__name__", "DCGM_FI_DEV_GPU_TEMP"}, Label{"UUID", "GPU-x"}), 40}})
			}
			for round := range 2 {
				part, err := source.Sample(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				want := asSeen(mixer.Snapshot(part.Time, []collector.Latest{{Source: "page", Part: part}}))
				at := noon.Add(time.Duration(round) * 15 * time.Second)
				add(a, at, samples(t, content, scraped("exporter", "gpu-117:9400")...))
				got := asSeen(one(t, a.Snapshots(at)))
				if name == "node_exporter" {
					got.GPUs = nil
					got.Node.Set(metric.GPUsExpected, want.Node.Value(metric.GPUsExpected))
				}
				ignore := cmp.Options{sameNumbers, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(collector.Event{}, "Time", "Source"), cmpopts.IgnoreFields(collector.XidCount{}, "Last")}
				if diff := cmp.Diff(want, got, ignore); diff != "" {
					t.Errorf("look %d: the page and its series are not the same node (-page +series):\n%s", round, diff)
				}
			}
		})
	}
}

// The page of an inference server and the same page as series are the same endpoints.
func TestSeriesOfAServerSayWhatItsPageSays(t *testing.T) {
	for _, name := range []string{"vllm-v1", "vllm-v0", "vllm-ray", "vllm-transition", "sglang", "tgi", "triton", "triton-trtllm", "ray-serve", "llamacpp", "lmdeploy", "dynamo", "kserve", "torchserve", "litellm"} {
		t.Run(name, func(t *testing.T) {
			content := recorded(t, "../inference/testdata/"+name+".prom")
			at := serve(t, &content)
			source, err := inference.New(inference.Config{Targets: []inference.Target{{URL: at.URL(), Engine: "auto", Name: "http://10.0.0.7:8000/metrics"}}, Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			part, err := source.Sample(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			a := New(Config{})
			add(a, noon, samples(t, content, scraped("vllm", "10.0.0.7:8000")...))
			got := one(t, a.Snapshots(noon))
			if got.Node.Name != "10.0.0.7" {
				t.Errorf("the node is called %q", got.Node.Name)
			}
			if diff := cmp.Diff(part.Endpoints, got.Endpoints, sameNumbers, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the page and its series are not the same endpoints (-page +series):\n%s", diff)
			}
		})
	}
}
