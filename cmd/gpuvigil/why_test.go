package main

import (
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/server"
)

func TestWhyTellsOfAllModelsOfAnEndpoint(t *testing.T) {
	const link = "http://chat:8000/metrics"
	second := collector.EndpointKey{URL: link, Engine: "vllm", Model: "big"}
	a := &answer{
		snapshot: &server.Snapshot{Endpoints: []server.Endpoint{
			{URL: link, Engine: "vllm", Model: "small", GPUs: []string{"GPU-0"}}, {URL: link, Engine: "vllm", Model: "big", GPUs: []string{"GPU-0"}},
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
