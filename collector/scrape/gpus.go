package scrape

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

// frozenAfter is how long a page may stay the same before it is one of an exporter that
// does not look any more. The energy that a GPU has used grows all the time.
const frozenAfter = 5 * time.Minute

// GPUConfig is what the source of GPUs needs.
type GPUConfig struct {
	Page     *page.Page
	Exporter string        // DCGM, SMI, or empty: what the page shows to be
	Interval time.Duration // between two looks
	ProcFS   string        // where the processes that a page lists are looked up; empty: nowhere

	// Describe gives an owner that the page names what the configuration says of it;
	// nil: nothing is said.
	Describe func(o collector.Owner, container string) collector.Workload
	Log      *slog.Logger
}

// GPUs reads the GPUs from the page of dcgm-exporter or nvidia_gpu_exporter. It is used
// from one goroutine.
type GPUs struct {
	cfg    GPUConfig
	pages  pageReader
	reader *GPUReader
}

// GPUReader makes a part of the samples of dcgm-exporter or nvidia_gpu_exporter, of
// one page after the other: between Begin and End it is given one page's samples, in
// whatever way they came. It is used from one goroutine.
type GPUReader struct {
	cfg  GPUReaderConfig
	dcgm *dcgm
	smi  *smi

	shown collector.Page // as it was logged last
	memory
}

// GPUReaderConfig is what a GPUReader needs.
type GPUReaderConfig struct {
	Names    *Names
	URL      string        // of the page, as it is shown
	Exporter string        // see GPUConfig
	Interval time.Duration // between two pages
	ProcFS   string        // see GPUConfig
	Describe func(o collector.Owner, container string) collector.Workload
	Log      *slog.Logger
}

// NewGPUReader returns a reader that has read no page yet.
func NewGPUReader(cfg GPUReaderConfig) *GPUReader {
	return &GPUReader{cfg: cfg, dcgm: &dcgm{uses: cfg.Names.dcgm}, smi: &smi{facts: cfg.Names.smi, ofInstances: cfg.Names.instances}, memory: memory{gpus: map[string]*past{}}}
}

// memory is what a page says only together with those before it.
type memory struct {
	gpus   map[string]*past // by uuid
	energy float64          // of all GPUs
	moved  time.Time        // when that was another one
	unit   string           // of utilization, as it was proved
}

var _ collector.Source = (*GPUs)(nil)

// NewGPUs returns the source.
func NewGPUs(cfg GPUConfig) *GPUs {
	return &GPUs{cfg: cfg, pages: newPageReader(GPUSource, cfg.Page), reader: NewGPUReader(GPUReaderConfig{
		Names: NewNames(), URL: cfg.Page.URL(), Exporter: cfg.Exporter, Interval: cfg.Interval, ProcFS: cfg.ProcFS, Describe: cfg.Describe, Log: cfg.Log,
	})}
}

// Name is GPUSource.
func (s *GPUs) Name() string { return GPUSource }

// Inherit takes over what an earlier source of the same page remembers, so that an error
// which falls while the configuration is read anew is not lost.
func (s *GPUs) Inherit(old *GPUs) {
	if old.cfg.Page.URL() == s.cfg.Page.URL() {
		s.reader.memory, s.reader.shown = old.reader.memory, old.reader.shown
	}
}

// Sample reads the page. A page that cannot be had or is not understood says nothing of
// the GPUs: the part before it grows old.
func (s *GPUs) Sample(ctx context.Context) (*collector.Part, error) {
	s.reader.Begin(time.Now())
	found, err := s.pages.read(ctx, s.reader)
	return s.conclude(found, err, time.Now())
}

// take reads a page that is there already.
func (s *GPUs) take(body io.Reader, now time.Time) (*collector.Part, error) {
	s.reader.Begin(now)
	found, err := s.pages.take(body, s.reader)
	return s.conclude(found, err, now)
}

// conclude makes the part of what was read.
func (s *GPUs) conclude(found []string, err error, now time.Time) (*collector.Part, error) {
	var part *collector.Part
	if err == nil {
		part, err = s.reader.End(now, found)
	}
	if err != nil {
		return nil, s.pages.failed("the GPUs", err)
	}
	return part, nil
}

// Begin begins a page.
func (s *GPUReader) Begin(now time.Time) {
	s.dcgm.begin()
	s.smi.begin(now)
}

// Wants reports whether samples of the name are of interest.
func (s *GPUReader) Wants(name []byte) bool { return s.dcgm.wants(name) || s.smi.wants(name) }

// Sample takes a sample of the page in. The name and labels need be good until it
// returns only. The error is a *page.Failure, after which the page says nothing.
func (s *GPUReader) Sample(name []byte, labels []exposition.Label, v float64) error {
	switch {
	case s.smi.wants(name):
		if s.cfg.Exporter != DCGM {
			return s.smi.sample(name, labels, v)
		}
	case s.cfg.Exporter != SMI:
		return s.dcgm.sample(name, labels, v)
	}
	return nil
}

// Further takes in a sample with the labels of the one before, which was given to
// Sample: what they say of the GPU need not be found out again.
func (s *GPUReader) Further(name []byte, labels []exposition.Label, v float64) error {
	if u := s.dcgm.uses[string(name)]; u != nil && s.cfg.Exporter != SMI {
		s.dcgm.take(u, s.dcgm.last, labels, v)
		return nil
	}
	return s.Sample(name, labels, v)
}

// End makes the part of the page. found are some of the names that nobody wanted, for
// the error of a page that is not understood, which is a *page.Failure.
func (s *GPUReader) End(now time.Time, found []string) (*collector.Part, error) {
	if err := s.understood(found); err != nil {
		return nil, err
	}
	return s.part(now)
}

// understood says whether the page is of one exporter that is known.
func (s *GPUReader) understood(found []string) error {
	known := DCGM + " and " + SMI
	switch dcgm, smi := len(s.dcgm.devices) > 0, s.smi.samples > 0; {
	case dcgm && smi:
		return page.Failing("unknown_page", "its page is of %s at once: name the one that is to be read with exporter", known)
	case s.dcgm.unlabeled > 0 && !dcgm:
		return page.Failing("unknown_page", "its page is of %s and names no GPU by its uuid: it needs the label UUID", DCGM)
	case smi:
		if err := s.smi.end(); err != nil {
			return err
		}
		if len(s.smi.devices) == 0 {
			return page.Failing("not_collected", "its page is of %s and has no GPU", SMI)
		}
	case dcgm:
	case s.cfg.Exporter != "":
		return page.Failing("other_page", "its page has nothing of %s, which the configuration says it is", s.cfg.Exporter)
	default:
		return strange(known, found)
	}
	return nil
}

// part makes the part of a page that was understood.
func (s *GPUReader) part(now time.Time) (*collector.Part, error) {
	shown := collector.Page{Source: GPUSource, URL: s.cfg.URL, Exporter: SMI, Names: "nvidia_smi", Utilization: unitRatio, GPUs: true}
	b := s.smi.board
	if len(s.dcgm.devices) > 0 {
		b = s.dcgm.board
		if unit := s.dcgm.unit(s.unit); unit == unitPercent || unit == unitRatio {
			s.unit = unit
		}
		shown.Exporter, shown.Names, shown.Utilization = DCGM, s.dcgm.names(), s.dcgm.unit(s.unit)
		s.dcgm.resolve(shown.Utilization)
	}
	if err := s.frozen(b, now); err != nil {
		return nil, err
	}
	part := b.part(now)
	part.Pages = []collector.Page{shown}
	s.settle(b, part, now)
	s.describe(part)
	if err := s.began(part.Processes); err != nil {
		s.cfg.Log.Debug("Of a process on a GPU it is not known when it began.", "err", err)
	}
	if shown != s.shown {
		s.shown = shown
		s.cfg.Log.Info("GPUs are read from another exporter's page, not from the driver.", "endpoint", shown.URL, "exporter", shown.Exporter,
			"names", shown.Names, "utilization", shown.Utilization, "gpus", len(part.GPUs))
	}
	return part, nil
}

// frozen reports a page on which nothing changes any more.
func (s *GPUReader) frozen(b *board, now time.Time) error {
	energy, told := 0.0, false
	for _, d := range b.devices {
		if d.gpu.Has(metric.Energy) {
			energy, told = energy+d.gpu.Value(metric.Energy), true
		}
	}
	if !told || energy != s.energy || s.moved.IsZero() || now.Before(s.moved) {
		s.energy, s.moved = energy, now
		return nil
	}
	if still := now.Sub(s.moved); still > max(frozenAfter, 10*s.cfg.Interval) {
		return page.Failing("frozen", "the energy on its page has not changed for %s: the exporter does not look at the GPUs any more", still.Round(time.Second))
	}
	return nil
}

// settle adds what follows from the pages before: errors that have fallen, and counts.
func (s *GPUReader) settle(b *board, part *collector.Part, now time.Time) {
	for i := range part.GPUs {
		g := &part.GPUs[i]
		d := b.devices[slices.IndexFunc(b.devices, func(d *device) bool { return d.gpu.UUID == g.UUID })]
		f, known := s.memory.gpus[g.UUID]
		if !known {
			f = newPast()
			s.memory.gpus[g.UUID] = f
		}
		for code, at := range f.fell(now, d.fallen, !known) {
			ev := collector.Event{Time: at, Kind: collector.XidEvent, UUID: g.UUID, Code: code}
			if at.Equal(now) {
				ev.Within = s.cfg.Interval + exported
			}
			part.Events = append(part.Events, ev)
		}
		g.Xids, g.Dropped = f.counts, f.drop(g.Dropped)
	}
	for uuid := range s.memory.gpus {
		if !slices.ContainsFunc(part.GPUs, func(g collector.GPU) bool { return g.UUID == uuid }) {
			delete(s.memory.gpus, uuid)
		}
	}
	slices.SortFunc(part.Events, func(a, b collector.Event) int { return a.Code - b.Code })
}

// describe says of the owners what the configuration does.
func (s *GPUReader) describe(part *collector.Part) {
	if s.cfg.Describe == nil {
		return
	}
	for i := range part.Allocations {
		a := &part.Allocations[i]
		w := s.cfg.Describe(a.Owner, a.Container)
		w.Readings = collector.NewReadings(metric.Workload)
		a.Owner = w.Owner
		at := slices.IndexFunc(part.Workloads, func(o collector.Workload) bool { return o.Owner == w.Owner })
		if at < 0 {
			part.Workloads = append(part.Workloads, w)
			continue
		}
		for _, c := range w.Containers {
			if have := &part.Workloads[at].Containers; !slices.Contains(*have, c) {
				*have = append(*have, c)
			}
		}
	}
}
