package server

import (
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestApproximateSignalsAreExported(t *testing.T) {
	w := fullNode(nil, nil)
	w.snap.Endpoints = []collector.Endpoint{{URL: "http://chat/metrics", Engine: "tgi", Readings: everything(metric.Endpoint, nil, nil),
		Approximate: []*metric.Def{metric.InterTokenLatency}}}
	families, _ := scrapeFamilies(t, w.server(t), "text/plain")
	var got []string
	for _, m := range families[metric.EndpointApproximate.Name].GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == "signal" {
				got = append(got, l.GetValue())
			}
		}
	}
	if len(got) != 1 || got[0] != "inter_token_latency_seconds" {
		t.Errorf("signals marked as approximate are %q, want the one of which the server tells something near", got)
	}
}
