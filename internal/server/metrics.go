package server

import (
	"math"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The bounds of what may be many. Real nodes stay far below them.
const (
	maxXids     = 32 // codes of one GPU
	maxOwners   = 32 // of one GPU, and as many whom it was given to
	maxVersions = 64 // components of the node
	maxSXids    = 64 // errors of NVSwitches by switch, code and severity
)

// sparePages is how many pages are kept for the next scrapes; only scrapes at the
// same instant need more than one.
const sparePages = 2

// fresh makes the page of one scrape from the last snapshot. It samples nothing and
// calls nobody who could block. The page is good until done is called.
func (s *Server) fresh() (e *exposition, done func()) {
	select {
	case e = <-s.spare:
	default:
		e = newExposition(s.layout)
	}
	e.reset()
	now := time.Now()
	s.fill(e, now)
	if snap := s.cfg.Snapshot(); s.cfg.DCGM && snap != nil && !stale(snap, now) {
		e.dcgm = dcgmFamilies(snap)
	}
	return e, func() {
		select {
		case s.spare <- e:
		default:
		}
	}
}

// Gather returns the page of one scrape. It is good until done is called.
func (s *Server) Gather() (families []*dto.MetricFamily, done func(), err error) {
	e, done := s.fresh()
	return e.gathered(), done, nil
}

func (s *Server) fill(e *exposition, now time.Time) {
	e.one(metric.AgentInfo, 1, s.cfg.Version.Version, s.cfg.Version.Revision, s.cfg.Version.GoVersion)
	snap, view := s.cfg.Snapshot(), s.cfg.View()
	e.usages = e.usages[:0]
	if snap != nil {
		e.sources(snap, now)
		if !stale(snap, now) {
			e.node(snap, view)
			e.usages = usages(e.usages, snap)
			e.gpus(snap)
			e.instances(snap)
			e.links(snap)
			e.processes(snap, s.cfg.Processes)
			e.endpoints(snap)
			e.sxids(snap)
			e.inventory(snap)
			e.workloads(snap)
			e.interfaces(snap)
		}
	}
	if view != nil {
		e.findings(view)
	}
	booked := &cost.Export{}
	if s.cfg.Booked != nil {
		booked = s.cfg.Booked()
	}
	e.costs(booked)
	e.nobody()
	if s.cfg.Told != nil {
		s.cfg.Told(e.one)
	}
	s.bridge.read(e)
}

// stale reports whether the sampler has stopped publishing: then the snapshot's
// numbers are no longer what is, and none is better than an old one.
func stale(s *collector.Snapshot, now time.Time) bool {
	limit := 10 * time.Second
	for i, src := range s.Sources {
		if held := 3 * src.Interval; i == 0 || held < limit {
			limit = max(held, 10*time.Second)
		}
	}
	return now.Sub(s.Time) > limit
}

func (e *exposition) sources(s *collector.Snapshot, now time.Time) {
	for _, src := range s.Sources {
		t := e.entity(metric.Source, src.Name)
		if t == nil {
			continue
		}
		labels := &t.labels
		// A source that has nothing to look at here, NVML without a driver, is not down.
		if fresh := src.Fresh(now); fresh || src.Expected {
			e.add(metric.SourceUp, labels, number(fresh))
		}
		if !src.Last.IsZero() {
			e.add(metric.SourceAge, labels, max(0, now.Sub(src.Last).Seconds()))
			e.add(metric.SourceDuration, labels, src.Duration.Seconds())
		}
		e.add(metric.SourceInterval, labels, src.Interval.Seconds())
		e.add(metric.SourceSamples, labels, float64(src.Samples))
		e.add(metric.SourceErrors, labels, float64(src.Errors))
	}
	for _, p := range s.Pages {
		e.one(metric.SourcePage, 1, p.Source, p.URL, p.Exporter, p.Names, p.Utilization)
	}
}

func (e *exposition) node(s *collector.Snapshot, v *detect.View) {
	e.one(metric.NodeInfo, 1, s.Node.Name, strconv.FormatBool(s.Simulated))
	versions := s.Node.Versions
	if extra := len(versions) - maxVersions; extra > 0 {
		cappedVersions.Add(extra)
		versions = versions[:maxVersions]
	}
	for _, v := range versions {
		e.one(metric.VersionInfo, 1, v.Component, v.Value)
	}
	if t := e.entity(metric.Node); t != nil {
		e.readings(metric.Node, t, s.Node.Readings)
		if v != nil {
			e.versionChanges(t, s.Node.Versions, v.VersionChanges)
		}
	}
}

// versionChanges is 0 for a component whose version is known and never changed.
func (e *exposition) versionChanges(t *thing, versions []collector.Version, changes map[string]uint64) {
	expanded := e.expand(t, metric.VersionParts)
	for i := range expanded {
		component := metric.VersionParts.Values[i]
		n, changed := changes[component]
		known := slices.ContainsFunc(versions, func(v collector.Version) bool { return v.Component == component })
		if changed || known {
			e.add(metric.VersionChanges, &expanded[i], float64(n))
		}
	}
}

func (e *exposition) gpus(s *collector.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		index := strconv.Itoa(g.Index)
		t := e.entity(metric.GPU, index, g.UUID)
		if t == nil {
			continue
		}
		e.one(metric.GPUInfo, 1, index, g.UUID, g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.Architecture,
			g.ComputeCapability, g.CPUs, g.NUMANodes)
		if e.shows(metric.GPUTopology) {
			for _, p := range g.Paths {
				e.one(metric.GPUTopology, 1, index, g.UUID, p.UUID, p.Level)
			}
		}
		e.add(metric.GPUPresent, &t.labels, number(g.Present))
		e.add(metric.GPUHung, &t.labels, number(g.Hung))
		if at := g.SampledAt(metric.Fast); !at.IsZero() {
			e.add(metric.GPUSampleAge, &t.labels, max(0, s.Time.Sub(at).Seconds()))
		}
		e.readings(metric.GPU, t, g.Readings)
		e.support(index, g)
		e.xids(index, g)
		e.owners(index, g.UUID)
		e.allocations(index, g.UUID, "", g.Allocations)
		e.distributions(t, g)
	}
}

// support says what the GPU cannot tell and which of its values made no sense.
func (e *exposition) support(index string, g *collector.GPU) {
	for _, d := range g.Unsupported {
		if !e.shows(d) {
			continue
		}
		e.one(metric.GPUUnsupported, 1, index, g.UUID, d.Name)
	}
	if len(g.Dropped) == 0 {
		return
	}
	for _, r := range e.plain[metric.GPU] {
		if n, ok := g.Dropped[r.def]; ok {
			e.one(metric.GPUDropped, float64(n), index, g.UUID, r.def.Name)
		}
	}
}

func (e *exposition) xids(index string, g *collector.GPU) {
	for _, x := range newest(g.Xids, maxXids) {
		if t := e.entity(metric.Xid, index, g.UUID, strconv.Itoa(x.Code)); t != nil {
			e.add(metric.XidErrors, &t.labels, float64(x.Count))
			e.add(metric.XidLast, &t.labels, unix(x.Last))
		}
	}
}

// newest returns the codes in their order, or, if there are too many, those
// that fell last.
func newest(xids []collector.XidCount, limit int) []collector.XidCount {
	if len(xids) <= limit {
		return xids
	}
	cappedXids.Add(len(xids) - limit)
	kept := slices.Clone(xids)
	slices.SortStableFunc(kept, func(a, b collector.XidCount) int { return b.Last.Compare(a.Last) })
	kept = kept[:limit]
	slices.SortFunc(kept, func(a, b collector.XidCount) int { return a.Code - b.Code })
	return kept
}

// sxids has the errors of switches; of too many those that fell last.
func (e *exposition) sxids(s *collector.Snapshot) {
	list := s.SXids
	if extra := len(list) - maxSXids; extra > 0 {
		cappedSXids.Add(extra)
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b collector.SXidCount) int { return b.Last.Compare(a.Last) })
		list = list[:maxSXids]
	}
	for _, x := range list {
		severity := "non_fatal"
		if x.Fatal {
			severity = "fatal"
		}
		labels := []string{x.Switch, strconv.Itoa(x.Code), severity}
		e.one(metric.SXidErrors, float64(x.Count), labels...)
		e.one(metric.SXidLast, unix(x.Last), labels...)
	}
}

func (e *exposition) instances(s *collector.Snapshot) {
	for i := range s.Instances {
		m := &s.Instances[i]
		gpu, mig := strconv.Itoa(m.GPU), strconv.Itoa(m.GI)+"/"+strconv.Itoa(m.CI)
		if t := e.entity(metric.Instance, gpu, m.UUID, mig, m.Profile); t != nil {
			e.one(metric.MIGInfo, 1, gpu, m.UUID, mig, m.Profile, m.MIGUUID)
			e.readings(metric.Instance, t, m.Readings)
			e.allocations(gpu, m.UUID, mig, m.Allocations)
		}
	}
}

// links has series in the full profile only: all their rows are details.
func (e *exposition) links(s *collector.Snapshot) {
	if !e.full {
		return
	}
	for i := range s.Links {
		k := &s.Links[i]
		if t := e.entity(metric.Link, strconv.Itoa(k.GPU), k.UUID, strconv.Itoa(k.Number)); t != nil {
			e.readings(metric.Link, t, k.Readings)
		}
	}
}

func (e *exposition) findings(v *detect.View) {
	for i := range v.Findings {
		f := &v.Findings[i]
		if f.State != detect.Firing {
			continue
		}
		t := e.entity(metric.Finding, string(f.Rule), f.Severity.String(), f.Subject.String(), f.Cause)
		if t == nil {
			continue
		}
		e.add(metric.FindingActive, &t.labels, 1)
		e.add(metric.FindingStart, &t.labels, unix(f.Since))
		e.add(metric.FindingObserved, &t.labels, f.Evidence.Observed)
		if want := f.Evidence.Want; want != nil {
			e.add(metric.FindingExpected, &t.labels, *want)
		}
		e.add(metric.FindingScore, &t.labels, f.Score)
	}
	for i := range v.Verdicts {
		d := &v.Verdicts[i]
		e.one(metric.GPUVerdict, 1, strconv.Itoa(d.Index), d.GPU, string(d.Name))
	}
	if e.shows(metric.RuleNeed) {
		e.standings(v)
	}
	for _, c := range v.Conditions {
		e.one(metric.Condition, number(c.Active), string(c.Rule), c.Subject.String())
	}
}

// standings say what rules that tell by statistics need to be believed.
func (e *exposition) standings(v *detect.View) {
	for _, s := range v.Standings {
		if !s.Statistical {
			continue
		}
		e.one(metric.RuleNeed, s.Need, string(s.Rule), rules.Ticket.String())
		e.one(metric.RuleNeed, s.NeedPage, string(s.Rule), rules.Page.String())
		e.one(metric.RuleClean, s.CleanWeeks, string(s.Rule))
		e.one(metric.RuleProof, s.ProofWeeks, string(s.Rule))
	}
}

// number is 1 for true, as the text format has no truth.
func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// unix returns seconds, or NaN (no sample) for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return math.NaN()
	}
	return float64(t.UnixMilli()) / 1e3
}
