package server

import (
	"math"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

// The bounds of what may be many. Real nodes stay far below them.
const (
	maxXids     = 32 // codes of one GPU
	maxOwners   = 32 // of one GPU
	maxVersions = 64 // components of the node
)

// gather makes the page of one scrape from the last snapshot. It samples nothing
// and calls nobody who could block.
func (s *Server) gather() ([]*dto.MetricFamily, error) {
	now := time.Now()
	e := s.layout.page()
	e.one(metric.AgentInfo, 1, s.cfg.Version.Version, s.cfg.Version.Revision, s.cfg.Version.GoVersion)
	snap, view := s.cfg.Snapshot(), s.cfg.View()
	if snap != nil {
		e.sources(snap, now)
		if !stale(snap, now) {
			e.node(snap)
			e.gpus(snap)
			e.instances(snap)
			e.endpoints(snap)
		}
		if view != nil {
			e.versionChanges(snap, view)
		}
	}
	if view != nil {
		e.findings(view)
	}
	s.bridge.read(e)
	return e.gathered(), nil
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
		labels := pairs(metric.Source.Labels(), src.Name)
		if !e.claim("source", labels) {
			continue
		}
		e.add(metric.SourceUp, labels, number(src.Fresh(now)))
		if !src.Last.IsZero() {
			e.add(metric.SourceAge, labels, max(0, now.Sub(src.Last).Seconds()))
			e.add(metric.SourceDuration, labels, src.Duration.Seconds())
		}
		e.add(metric.SourceInterval, labels, src.Interval.Seconds())
		e.add(metric.SourceSamples, labels, float64(src.Samples))
		e.add(metric.SourceErrors, labels, float64(src.Errors))
	}
}

func (e *exposition) node(s *collector.Snapshot) {
	e.one(metric.NodeInfo, 1, s.Node.Name, strconv.FormatBool(s.Simulated))
	versions := s.Node.Versions
	if extra := len(versions) - maxVersions; extra > 0 {
		cappedVersions.Add(extra)
		versions = versions[:maxVersions]
	}
	for _, v := range versions {
		e.one(metric.VersionInfo, 1, v.Component, v.Value)
	}
	e.readings(metric.Node, nil, s.Node.Readings)
}

// versionChanges is 0 for a component whose version is known and never changed.
func (e *exposition) versionChanges(s *collector.Snapshot, v *detect.View) {
	for i, component := range metric.VersionParts.Values {
		n, changed := v.VersionChanges[component]
		known := slices.ContainsFunc(s.Node.Versions, func(v collector.Version) bool { return v.Component == component })
		if changed || known {
			e.add(metric.VersionChanges, e.values[metric.VersionParts][i:i+1], float64(n))
		}
	}
}

func (e *exposition) gpus(s *collector.Snapshot) {
	holders := memoryHeld(s.Processes)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		base := pairs(metric.GPU.Labels(), strconv.Itoa(g.Index), g.UUID)
		if !e.claim("gpu", base) {
			continue
		}
		e.add(metric.GPUInfo, with(base, pairs(metric.GPUInfo.Labels, g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.Architecture)...), 1)
		e.add(metric.GPUPresent, base, number(g.Present))
		e.add(metric.GPUHung, base, number(g.Hung))
		if at := g.SampledAt(metric.Fast); !at.IsZero() {
			e.add(metric.GPUSampleAge, base, max(0, s.Time.Sub(at).Seconds()))
		}
		e.readings(metric.GPU, base, g.Readings)
		e.support(base, g)
		e.xids(g)
		e.owners(base, g, holders[g.UUID])
	}
}

// support says what the GPU cannot tell and which of its values made no sense.
func (e *exposition) support(base []*dto.LabelPair, g *collector.GPU) {
	for _, d := range g.Unsupported {
		labels := with(base, pairs(metric.GPUUnsupported.Labels, d.Name)...)
		if e.claim(metric.GPUUnsupported.Name, labels) {
			e.add(metric.GPUUnsupported, labels, 1)
		}
	}
	for _, d := range metric.Of(metric.GPU) {
		if n, ok := g.Dropped[d]; ok {
			e.add(metric.GPUDropped, with(base, pairs(metric.GPUDropped.Labels, d.Name)...), float64(n))
		}
	}
}

func (e *exposition) xids(g *collector.GPU) {
	for _, x := range newest(g.Xids, maxXids) {
		labels := pairs(metric.Xid.Labels(), strconv.Itoa(g.Index), g.UUID, strconv.Itoa(x.Code))
		if !e.claim("xid", labels) {
			continue
		}
		e.add(metric.XidErrors, labels, float64(x.Count))
		e.add(metric.XidLast, labels, unix(x.Last))
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

// held is the device memory that processes hold on one GPU.
type held struct {
	all float64
	by  map[collector.Owner]float64
}

func memoryHeld(processes []collector.Process) map[string]held {
	gpus := map[string]held{}
	for i := range processes {
		p := &processes[i]
		used := p.Value(metric.ProcessMemoryUsed)
		if !(used > 0) {
			continue
		}
		h := gpus[p.UUID]
		if h.by == nil {
			h.by = map[collector.Owner]float64{}
		}
		h.all += used
		h.by[p.Owner] += used
		gpus[p.UUID] = h
	}
	return gpus
}

func (e *exposition) owners(base []*dto.LabelPair, g *collector.GPU, h held) {
	owners := g.Owners
	if extra := len(owners) - maxOwners; extra > 0 {
		cappedOwners.Add(extra)
		owners = owners[:maxOwners]
	}
	for _, o := range owners {
		share := 1 / float64(len(g.Owners))
		if h.all > 0 {
			share = h.by[o] / h.all
		}
		labels := with(base, pairs(metric.OwnerShare.Labels, o.Kind, o.ID, o.Team)...)
		if e.claim(metric.OwnerShare.Name, labels) {
			e.add(metric.OwnerShare, labels, share)
		}
	}
}

func (e *exposition) instances(s *collector.Snapshot) {
	for i := range s.Instances {
		m := &s.Instances[i]
		mig := strconv.Itoa(m.GI) + "/" + strconv.Itoa(m.CI)
		base := pairs(metric.Instance.Labels(), strconv.Itoa(m.GPU), m.UUID, mig, m.Profile)
		if !e.claim("instance", base) {
			continue
		}
		e.add(metric.MIGInfo, with(base, pairs(metric.MIGInfo.Labels, m.MIGUUID)...), 1)
		e.readings(metric.Instance, base, m.Readings)
	}
}

func (e *exposition) endpoints(s *collector.Snapshot) {
	for i := range s.Endpoints {
		p := &s.Endpoints[i]
		base := pairs(metric.Endpoint.Labels(), p.URL, p.Engine, p.Model)
		if e.claim("endpoint", base) {
			e.readings(metric.Endpoint, base, p.Readings)
		}
	}
}

func (e *exposition) findings(v *detect.View) {
	for i := range v.Findings {
		f := &v.Findings[i]
		if f.State != detect.Firing {
			continue
		}
		labels := pairs(metric.Finding.Labels(), string(f.Rule), f.Severity.String(), f.Subject.String(), f.Cause)
		if !e.claim("finding", labels) {
			continue
		}
		e.add(metric.FindingActive, labels, 1)
		e.add(metric.FindingStart, labels, unix(f.Since))
		e.add(metric.FindingObserved, labels, f.Evidence.Observed)
		if want := f.Evidence.Want; want != nil {
			e.add(metric.FindingExpected, labels, *want)
		}
		e.add(metric.FindingScore, labels, f.Score)
	}
	for _, c := range v.Conditions {
		e.one(metric.Condition, number(c.Active), string(c.Rule), c.Subject.String())
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
