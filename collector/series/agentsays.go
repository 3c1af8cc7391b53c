package series

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// cutNumber reads GI/CI.
func cutNumber(s string) (gi, ci int, ok bool) {
	before, after, _ := strings.Cut(s, "/")
	gi, err := strconv.Atoi(before)
	ci, err2 := strconv.Atoi(after)
	return gi, ci, err == nil && err2 == nil
}

// instant is a time in seconds since 1970; zero if it cannot be one.
func instant(v float64) time.Time {
	if !(v > 0) || v > 1e11 {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Round(v * 1e3))).UTC()
}

func span(v float64) time.Duration {
	if !(v > 0) || v > 1e9 {
		return 0
	}
	return time.Duration(v * float64(time.Second))
}

func count(v float64) uint64 {
	if !(v > 0) || v > 1<<53 {
		return 0
	}
	return uint64(v)
}

func (r *agentReader) nodeInfo(at identity, _ float64) {
	r.part.Node.Name = at.text("node")
	r.said.simulated = r.said.simulated || string(at.raw("simulated")) == "true"
}

func (r *agentReader) version(at identity, _ float64) {
	if len(r.part.Node.Versions) < maxThings {
		r.part.Node.Versions = append(r.part.Node.Versions, collector.Version{Component: at.text("component"), Value: at.text("version")})
	}
}

func (r *agentReader) sxid(at identity, v float64) {
	x, _ := find(r, at, &r.said.sxids, metric.Node, "switch", "sxid", "severity")
	if x == nil {
		return
	}
	x.Switch, x.Code, x.Fatal = at.text("switch"), at.number("sxid"), string(at.raw("severity")) == "fatal"
	if at.row == metric.SXidLast {
		x.Last = instant(v)
	} else {
		x.Count = count(v)
	}
}

func (r *agentReader) gpuInfo(at identity, _ float64) {
	g := r.gpu(at)
	g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.Architecture = at.text("model"), at.text("pci_bus_id"), at.text("serial"), at.text("vbios"), at.text("architecture")
	g.ComputeCapability, g.CPUs, g.NUMANodes = at.text("compute_capability"), at.text("cpus"), at.text("numa_nodes")
}

func (r *agentReader) topology(at identity, _ float64) {
	labels := at.row.Labels
	if g := r.gpu(at); len(g.Paths) < maxThings {
		g.Paths = append(g.Paths, collector.Path{UUID: at.text(labels[0]), Level: at.text(labels[1])})
	}
}

func (r *agentReader) unsupported(at identity, _ float64) {
	if d, err := metric.ByName(string(at.raw("metric"))); err == nil {
		g := r.gpu(at)
		g.Unsupported = append(g.Unsupported, d)
	}
}

func (r *agentReader) dropped(at identity, v float64) {
	if d, err := metric.ByName(string(at.raw("metric"))); err == nil {
		g := r.gpu(at)
		if g.Dropped == nil {
			g.Dropped = map[*metric.Def]uint64{}
		}
		g.Dropped[d] = count(v)
	}
}

func (r *agentReader) verdict(at identity, _ float64) {
	if len(r.said.agent.Verdicts) < maxThings {
		r.said.agent.Verdicts = append(r.said.agent.Verdicts, collector.VerdictTold{UUID: at.text("uuid"), Verdict: at.text("verdict")})
	}
}

func (r *agentReader) xidOf(at identity) *collector.XidCount {
	g, code := r.gpu(at), at.number("xid")
	for i := range g.Xids {
		if g.Xids[i].Code == code {
			return &g.Xids[i]
		}
	}
	if code < 0 || len(g.Xids) >= maxThings {
		return nil
	}
	g.Xids = append(g.Xids, collector.XidCount{Code: code})
	return &g.Xids[len(g.Xids)-1]
}

func (r *agentReader) xid(at identity, v float64) {
	if x := r.xidOf(at); x != nil {
		x.Count = count(v)
	}
}

func (r *agentReader) xidLast(at identity, v float64) {
	if x := r.xidOf(at); x != nil {
		x.Last = instant(v)
	}
}

// share takes in who uses the GPU: most memory comes first.
func (r *agentReader) share(at identity, v float64) {
	o := at.owner()
	if o.Kind == "" || o.Kind == metric.OtherOwners || string(at.raw(metric.ShareOf.Label)) != metric.ShareOf.Values[0] {
		return
	}
	if g := r.gpu(at); len(g.shares) < maxThings {
		g.shares = append(g.shares, shared{o, v})
	}
}

func (r *agentReader) allocation(at identity, _ float64) {
	if len(r.part.Allocations) >= maxThings {
		return
	}
	r.part.Allocations = append(r.part.Allocations, collector.Allocation{
		UUID: at.text("uuid"), MIG: at.text("mig"), Owner: at.owner(), Container: at.text("container"), Resource: at.text("resource"), Source: at.text("source"),
	})
}

func (r *agentReader) migInfo(at identity, _ float64) {
	if i := r.instance(at); i != nil {
		i.MIGUUID = at.text("mig_uuid")
	}
}

func (r *agentReader) interfaceInfo(at identity, _ float64) {
	if i := r.port(at); i != nil {
		i.LinkLayer, i.State, i.PhysicalState = at.text("link_layer"), at.text("state"), at.text("physical_state")
	}
}

func (r *agentReader) ownerInfo(at identity, _ float64) {
	if w := r.workload(at); w != nil {
		w.CostCenter, w.Sensitivity, w.Stage, w.Critical = at.text("cost_center"), at.text("sensitivity"), at.text("stage"), string(at.raw("critical")) == "true"
	}
}

func (r *agentReader) ownerLabel(at identity, _ float64) {
	if w := r.workload(at); w != nil && len(w.Labels) < maxThings {
		w.Labels = append(w.Labels, collector.Label{Name: at.text("label"), Value: at.text("value")})
	}
}

func (r *agentReader) quality(at identity, v float64) {
	if w := r.workload(at); w != nil && len(w.Quality) < maxThings && !math.IsNaN(v) && !math.IsInf(v, 0) {
		w.Quality = append(w.Quality, collector.Figure{Name: at.text("name"), Value: v})
	}
}

func (r *agentReader) caveat(at identity, _ float64) {
	c := collector.Caveat{Fact: at.text("fact"), Reason: at.text("reason")}
	if w := r.workload(at); w != nil && slices.Contains(metric.WorkloadFact, c.Fact) && slices.Contains(metric.CaveatReason, c.Reason) {
		w.Caveats = append(w.Caveats, c)
	}
}

func (r *agentReader) approximate(at identity, _ float64) {
	d, err := metric.ByName("vigil_inference_" + string(at.raw("signal")))
	if e := r.endpoint(at); err == nil && e != nil {
		e.Approximate = append(e.Approximate, d)
	}
}

func (r *agentReader) page(at identity, _ float64) {
	p := collector.Page{Source: at.text("source"), URL: at.text("endpoint"), Exporter: at.text("exporter"), Names: at.text("names"), Utilization: at.text("utilization")}
	p.GPUs = p.Exporter != "node_exporter"
	if len(r.part.Pages) < maxThings {
		r.part.Pages = append(r.part.Pages, p)
	}
}

// source takes in how well the agent itself looks.
func (r *agentReader) source(at identity, v float64) {
	s, _ := find(r, at, &r.said.sources, metric.Source, "source")
	if s == nil {
		return
	}
	s.Name = at.text("source")
	switch at.row {
	case metric.SourceUp:
		s.Expected = true
		if v != 1 {
			s.Err = "the agent says that it is not up"
		}
	case metric.SourceAge:
		s.Last = r.part.Time.Add(-span(v))
	case metric.SourceDuration:
		s.Duration = span(v)
	case metric.SourceInterval:
		s.Interval = span(v)
	case metric.SourceSamples:
		s.Samples = count(v)
	case metric.SourceErrors:
		s.Errors = count(v)
	}
}

func (r *agentReader) finding(at identity, v float64) {
	f, isNew := find(r, at, &r.said.agent.Findings, metric.Finding, "rule", "severity", "subject", "cause")
	if f == nil {
		return
	}
	if isNew {
		*f = collector.Told{Rule: at.text("rule"), Severity: at.text("severity"), Subject: at.text("subject"), Cause: at.text("cause"),
			Observed: math.NaN(), Expected: math.NaN(), Score: math.NaN()}
	}
	switch at.row {
	case metric.FindingStart:
		f.Since = instant(v)
	case metric.FindingObserved:
		f.Observed = v
	case metric.FindingExpected:
		f.Expected = v
	case metric.FindingScore:
		f.Score = v
	}
}

// tell puts into the snapshot what the agent says beside its part. The sources are the
// agent's own in place of the page's.
func (r *agentReader) tell(s *collector.Snapshot, instance string) {
	agent := r.said.agent
	agent.Instance = instance
	s.Agent, s.SXids, s.Money = &agent, r.said.sxids, r.said.money
	if len(r.said.sources) > 0 {
		s.Sources = r.said.sources
	}
}
