package fleet

import (
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// maxFindings bounds the findings that have series.
const maxFindings = 5_000

// findings has those that fire. Those of the cluster as a whole are under the names that
// agents use; all of them are under a name of their own, with their node: an agent's is
// exported by that agent already, and must not count twice.
func (f *Fleet) findings(p *page) {
	v := f.View()
	open := [len(severities)]int{}
	for i := range v.Incidents {
		if in := &v.Incidents[i]; in.State == detect.Firing {
			open[in.Severity]++
		}
	}
	for s, n := range open {
		p.add(metric.FleetIncidents, float64(n), rules.Severity(s).String())
	}
	firing := 0
	for firing < len(v.Findings) && v.Findings[firing].State == detect.Firing {
		firing++
	}
	for i := range v.Findings[:f.most(cappedFinding, firing, maxFindings)] {
		m := &v.Findings[i]
		labels := []string{string(m.Rule), m.Severity.String(), m.Subject.String(), m.Cause}
		if m.Node == clusterID {
			p.finding(m, labels)
		}
		p.add(metric.FleetFinding, 1, append([]string{m.Node}, labels...)...)
	}
}

// looks is what judging costs.
func (f *Fleet) looks(p *page) {
	c := &f.watch.costs
	p.add(metric.FleetLooks, float64(c.looks.Load()))
	p.add(metric.FleetLookSeconds, float64(c.nanos.Load())/1e9)
	p.add(metric.FleetRefused, float64(c.refused.Load()))
	if calls := f.cfg.Load().AgentCalls; calls != nil {
		good, failed := calls()
		p.add(metric.FleetAgentCalls, float64(good), "answered")
		p.add(metric.FleetAgentCalls, float64(failed), "failed")
	}
}

var severities = [...]rules.Severity{rules.Info, rules.Ticket, rules.Page}

func (p *page) finding(m *detect.Finding, labels []string) {
	p.add(metric.FindingActive, 1, labels...)
	p.add(metric.FindingStart, float64(m.Since.UnixMilli())/1e3, labels...)
	p.add(metric.FindingObserved, m.Evidence.Observed, labels...)
	if m.Evidence.Want != nil {
		p.add(metric.FindingExpected, *m.Evidence.Want, labels...)
	}
	p.add(metric.FindingScore, m.Score, labels...)
}
