package main

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
)

func TestWhyTellsOfAllModelsOfAnEndpoint(t *testing.T) {
	const link = "http://chat:8000/metrics"
	second := collector.EndpointKey{URL: link, Engine: "vllm", Model: "big"}
	up := server.Readings{metric.EndpointUp.Name: 1}
	a := &answer{
		snapshot: &server.Snapshot{Endpoints: []server.Endpoint{
			{URL: link, Engine: "vllm", Model: "small", GPUs: []string{"GPU-0"}, Readings: up}, {URL: link, Engine: "vllm", Model: "big", GPUs: []string{"GPU-0"}, Readings: up},
		}},
		findings: &server.Findings{Findings: []server.Finding{{Finding: detect.Finding{Subject: detect.Subject{Kind: "endpoint", ID: second.String()}}}}},
	}
	for text, models := range map[string][]string{
		link: {"small", "big"}, "endpoint:" + link: {"small", "big"}, "endpoint:" + second.String(): {"big"},
	} {
		s, err := a.find(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.findings) != 1 {
			t.Errorf("why %s leaves out what is wrong with one of its models", text)
		}
		facts := strings.Join(s.facts, "\n")
		for _, model := range []string{"small", "big"} {
			if wanted := strings.Contains(strings.Join(models, " "), model); strings.Contains(facts, model) != wanted {
				t.Errorf("why %s says %q, of model %s: %t wanted", text, facts, model, wanted)
			}
		}
	}
}

// Of two servers the one that cannot be read is unknown, with the reason, and the other
// is well; the node is not blind.
func TestWhyAServerCannotBeRead(t *testing.T) {
	const good, half = "http://h/grow", "http://h/half"
	a := &answer{
		snapshot: &server.Snapshot{
			Sources:   []server.Source{{Name: "inference", Up: true, Expected: true}},
			Endpoints: []server.Endpoint{{URL: good, Engine: "vllm", Model: "m", Readings: server.Readings{metric.EndpointUp.Name: 1}}, {URL: half, Engine: "auto", Readings: server.Readings{metric.EndpointUp.Name: 0}}},
			Targets:   []server.Target{{URL: good, Readings: server.Readings{metric.TargetUp.Name: 1}}, {URL: half, Readings: server.Readings{metric.TargetFailing.Name + `{reason="cut_off"}`: 1}}},
		},
		findings: &server.Findings{},
	}
	says := func(link string, wanted ...string) {
		t.Helper()
		s, err := a.find(link)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := a.printWhy(&out, s); err != nil {
			t.Fatal(err)
		}
		for _, want := range wanted {
			if !strings.Contains(out.String(), want) {
				t.Errorf("why %s does not say %q: %s", link, want, out.String())
			}
		}
		if strings.Contains(out.String(), "model :") {
			t.Errorf("why %s speaks of a model without a name: %s", link, out.String())
		}
		if unknown := a.exit(s.findings, s.unread) == exitUnknown; unknown != (link != good) {
			t.Errorf("why %s exits as unknown: %t", link, unknown)
		}
	}
	says(good, "nothing is wrong", "vllm, model m")
	says(half, "UNKNOWN: its page cannot be read: its page breaks off (cut_off)")
	says("endpoint:"+half+"#auto", "cut_off")
	var out strings.Builder
	if err := a.printStatus(&out, ""); err != nil || !strings.Contains(out.String(), "1 of 2 servers cannot be read: "+half) || !strings.Contains(out.String(), "nothing is wrong") {
		t.Errorf("status says, with error %v: %s", err, out.String())
	}
	if err := a.exit(nil, ""); err != nil {
		t.Errorf("one server of two makes status exit with %v", err)
	}
	for _, reason := range metric.TargetReasons.Values {
		if reasonWords[reason] == "" {
			t.Errorf("%s has no words", reason)
		}
	}
}

// A GPU's verdict is in why with its evidence, and in status in a word; a job that hangs
// concerns each of its GPUs.
func TestWhyTellsTheVerdict(t *testing.T) {
	job := collector.Owner{Kind: "job", ID: "slurm/4711"}
	now := time.Date(2026, 3, 2, 4, 0, 0, 0, time.UTC)
	hung := detect.Finding{Rule: "job_hung", Subject: detect.Subject{Kind: "job", ID: job.ID}, GPUIndex: -1, Owner: job, State: detect.Firing}
	a := &answer{
		snapshot: &server.Snapshot{Time: now, GPUs: []server.GPU{{Index: 3, UUID: "GPU-3", Present: true, Owners: []collector.Owner{job}}}},
		findings: &server.Findings{Findings: []server.Finding{{Finding: hung}}, Verdicts: []detect.Verdict{
			{GPU: "GPU-3", Index: 3, Owner: job, Name: detect.VerdictHung, Since: now.Add(-6 * time.Minute), Evidence: "7 of 8 GPUs at 100 %", Confidence: detect.VerySure}}},
	}
	s, err := a.find("3")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.findings) != 1 {
		t.Error("why GPU 3 leaves out that its job hangs")
	}
	if facts := strings.Join(s.facts, "\n"); !strings.Contains(facts, "hung since ") || !strings.Contains(facts, "(very sure): 7 of 8 GPUs at 100 %") {
		t.Errorf("why GPU 3 does not tell the verdict:\n%s", facts)
	}
	if s, err = a.find(job.String()); err != nil || !strings.Contains(strings.Join(s.facts, "\n"), "hung)") {
		t.Errorf("why of the job does not tell its GPU's verdict (%v): %q", err, s.facts)
	}
	var out strings.Builder
	if err := a.printStatus(&out, ""); err != nil || !strings.Contains(out.String(), "hung") {
		t.Errorf("status does not tell the verdict (%v):\n%s", err, out.String())
	}
}
