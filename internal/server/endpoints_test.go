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

// A rule that cannot judge single clients must not look as if it had found nothing.
func TestWhatNoServerTellsIsExported(t *testing.T) {
	w := fullNode(nil, nil)
	w.snap.Endpoints = []collector.Endpoint{{URL: "http://chat/metrics", Engine: "vllm", Model: "chat", Readings: everything(metric.Endpoint, nil, nil)}}
	families, _ := scrapeFamilies(t, w.server(t), "text/plain")
	all := families[metric.EndpointNotAvailable.Name].GetMetric()
	if len(all) != 1 || all[0].GetGauge().GetValue() != 1 {
		t.Errorf("there are %d series of %s, want one of value 1", len(all), metric.EndpointNotAvailable)
	}
}
