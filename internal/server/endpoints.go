package server

import (
	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// endpoints has the models of inference servers and the pages that tell of them.
func (e *exposition) endpoints(s *collector.Snapshot) {
	for i := range s.Endpoints {
		p := &s.Endpoints[i]
		t := e.entity(metric.Endpoint, p.URL, p.Engine, p.Model)
		if t == nil {
			continue
		}
		e.readings(metric.Endpoint, t, p.Readings)
		for _, d := range p.Approximate {
			e.one(metric.EndpointApproximate, 1, p.URL, p.Engine, p.Model, metric.Signal(d))
		}
		e.one(metric.EndpointNotAvailable, 1, p.URL, p.Engine, p.Model, "requests_by_client")
		if o, known := s.OwnerOf(p); known && (i == 0 || s.Endpoints[i-1].URL != p.URL) {
			kind, id, team := e.ownerLabels(o)
			e.one(metric.EndpointOwnerInfo, 1, kind, id, team, p.URL)
		}
		for _, h := range p.Histograms {
			e.classic(&t.labels, h)
		}
	}
	for i := range s.Targets {
		if t := e.entity(metric.Target, s.Targets[i].URL); t != nil {
			e.readings(metric.Target, t, s.Targets[i].Readings)
		}
	}
}
