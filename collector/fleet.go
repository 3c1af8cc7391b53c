package collector

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gpuvigil/internal/metric"
)

// fleet remembers every GPU that was seen, so that one which is no longer listed
// is shown as gone and keeps its index.
type fleet struct {
	list   []*seenGPU // in the order of their index
	byUUID map[string]*seenGPU
	listed map[int]bool // sources that have listed a GPU before
}

type seenGPU struct {
	identity GPU // without readings, owners and state
	source   int // that last answered for it
	present  bool
	fast     time.Time    // its newest fast reading, of any process
	xids     []xidCounter // as its source counts them
	told     []toldXid    // as they are shown
}

// xidCounter adds up a source's count, which begins anew with each child process.
type xidCounter struct {
	code   int
	before uint64 // counted by earlier processes
	count  uint64
	last   time.Time // as the source told it
	latest time.Time // of all processes, by the clock of today
}

// index replaces a source's idea of a GPU's index with the index that the GPU got
// at first sight.
func (f *fleet) index(uuid string, i *int) {
	if g, ok := f.byUUID[uuid]; ok {
		*i = g.identity.Index
	}
}

// merge returns the GPUs that have been seen, as the inputs know them now, and the
// events with those of GPUs that have come or gone. stale is what must be added to
// a time that is told for the first time.
func (f *fleet) merge(inputs []input, rows []*metric.Def, events []Event, stale func(time.Time) time.Duration) ([]GPU, []Event) {
	for _, in := range inputs {
		f.meet(in)
	}
	if len(f.list) == 0 {
		return nil, events
	}
	gpus := f.vectors()
	for _, in := range inputs {
		for i := range in.GPUs {
			f.join(gpus, &in.GPUs[i], in, rows, stale)
		}
	}
	for _, in := range inputs {
		bind(gpus, in)
		events = f.derive(gpus, in, events)
	}
	return gpus, events
}

// bind says of each GPU which kernel driver has it, as far as the input's source looked.
func bind(gpus []GPU, in input) {
	if in.Bus == nil || !in.fresh {
		return
	}
	for i := range gpus {
		g := &gpus[i]
		at := PCIAddress(g.PCIBusID)
		if at == "" {
			continue
		}
		if driver, there := in.Bus[at]; there {
			g.Bound = driver
		} else {
			g.Bound = NoDevice
		}
	}
}

// derive adds what follows for the GPUs that the input's source answers for.
func (f *fleet) derive(gpus []GPU, in input, events []Event) []Event {
	for i, seen := range f.list {
		if seen.source != in.source {
			continue
		}
		g := &gpus[i]
		seen.remember(g)
		if at := g.SampledAt(metric.Fast); !at.IsZero() {
			seen.fast = at
		}
		if !seen.fast.IsZero() {
			g.Set(metric.GPUSampleAge, max(0, in.present().Sub(seen.fast).Seconds()))
		}
		if in.fresh { // else nobody knows whether it is present
			g.Set(metric.GPUPresent, number(g.Present))
			events = seen.transition(g.Present, in.Time.Add(in.shift), events)
		}
	}
	return events
}

// vectors returns a GPU for each one that was seen, with its identity and an empty
// vector, all in one piece of memory.
func (f *fleet) vectors() []GPU {
	width := metric.VectorLen(metric.GPU)
	all := make([]float64, len(f.list)*width)
	for i := range all {
		all[i] = math.NaN()
	}
	gpus := make([]GPU, len(f.list))
	for i, seen := range f.list {
		gpus[i] = seen.identity
		gpus[i].Readings = Readings{values: all[i*width : (i+1)*width : (i+1)*width]}
	}
	return gpus
}

// meet takes up the GPUs that were not seen before. What no driver answers for is
// not one yet.
func (f *fleet) meet(in input) {
	if len(in.GPUs) == 0 {
		return
	}
	if f.listed == nil {
		f.listed = make(map[int]bool)
	}
	f.adopt(in.source)
	for i := range in.GPUs {
		g := &in.GPUs[i]
		if g.UUID == "" || !g.Present {
			continue
		}
		seen, ok := f.byUUID[g.UUID]
		if !ok {
			// A GPU of the source's first list was there before anybody looked.
			seen = &seenGPU{identity: GPU{Index: f.free(g.Index), UUID: g.UUID}, present: !f.listed[in.source]}
			f.add(seen)
		}
		seen.source = in.source
	}
	f.listed[in.source] = true
}

func (f *fleet) add(g *seenGPU) {
	if f.byUUID == nil {
		f.byUUID = make(map[string]*seenGPU)
	}
	f.byUUID[g.identity.UUID] = g
	f.list = append(f.list, g)
	slices.SortFunc(f.list, func(a, b *seenGPU) int { return cmp.Compare(a.identity.Index, b.identity.Index) })
}

// free returns the wanted index, or the smallest free one if it is taken.
func (f *fleet) free(want int) int {
	taken := func(i int) bool {
		return slices.ContainsFunc(f.list, func(g *seenGPU) bool { return g.identity.Index == i })
	}
	if want >= 0 && !taken(want) {
		return want
	}
	i := 0
	for taken(i) {
		i++
	}
	return i
}

// join merges one input's view of a GPU into the snapshot's.
func (f *fleet) join(gpus []GPU, src *GPU, in input, rows []*metric.Def, stale func(time.Time) time.Duration) {
	seen, ok := f.byUUID[src.UUID]
	if !ok {
		return
	}
	dst := &gpus[slices.Index(f.list, seen)]
	over(&dst.Model, src.Model)
	over(&dst.PCIBusID, src.PCIBusID)
	over(&dst.Serial, src.Serial)
	over(&dst.VBIOS, src.VBIOS)
	over(&dst.Architecture, src.Architecture)
	over(&dst.BoardPart, src.BoardPart)
	over(&dst.GSP, src.GSP)
	over(&dst.InfoROM, src.InfoROM)
	over(&dst.ComputeCapability, src.ComputeCapability)
	over(&dst.CPUs, src.CPUs)
	over(&dst.NUMANodes, src.NUMANodes)
	over(&dst.Bound, src.Bound)
	dst.Present = dst.Present || src.Present
	dst.Hung = dst.Hung || src.Hung
	dst.MIG = dst.MIG || src.MIG
	overList(&dst.Owners, src.Owners)
	overList(&dst.Unsupported, src.Unsupported)
	overList(&dst.Paths, src.Paths)
	if len(src.Dropped) > 0 {
		dst.Dropped = src.Dropped
	}
	if in.source == seen.source {
		seen.count(src.Xids, stale)
	}
	own := in.of(src.UUID)
	dst.Readings.overlay(own.current(src.Readings, rows))
	if len(src.Distributions) > 0 && own.now.Sub(src.SampledAt(metric.Fast)) <= 3*own.interval[metric.Fast] {
		dst.Distributions = src.Distributions
	}
}

// remember keeps what is still true of the GPU when no source lists it.
func (s *seenGPU) remember(g *GPU) {
	s.identity = GPU{Index: g.Index, UUID: g.UUID, Model: g.Model, PCIBusID: g.PCIBusID, Serial: g.Serial, VBIOS: g.VBIOS,
		Architecture: g.Architecture, BoardPart: g.BoardPart, GSP: g.GSP, InfoROM: g.InfoROM, ComputeCapability: g.ComputeCapability, CPUs: g.CPUs, NUMANodes: g.NUMANodes, Dropped: g.Dropped}
}

// transition adds an event if the GPU has come or gone, unless its source has
// told it itself.
func (s *seenGPU) transition(present bool, at time.Time, events []Event) []Event {
	if present == s.present {
		return events
	}
	s.present = present
	ev := Event{Time: at, Kind: GPUGone, UUID: s.identity.UUID}
	if present {
		ev.Kind = GPUAppeared
	}
	told := slices.ContainsFunc(events, func(o Event) bool { return o.Kind == ev.Kind && o.UUID == ev.UUID })
	if told {
		return events
	}
	return append(events, ev)
}

// count adds up the source's counts since the agent started: a source that was
// restarted counts from zero.
func (s *seenGPU) count(now []XidCount, stale func(time.Time) time.Duration) {
	for i := range s.xids {
		c := &s.xids[i]
		j := slices.IndexFunc(now, func(x XidCount) bool { return x.Code == c.code })
		if j < 0 || now[j].Count < c.count || now[j].Count == c.count && !now[j].Last.Equal(c.last) {
			c.before += c.count
			c.count = 0
		}
	}
	for _, x := range now {
		i := slices.IndexFunc(s.xids, func(c xidCounter) bool { return c.code == x.Code })
		if i < 0 {
			i = len(s.xids)
			s.xids = append(s.xids, xidCounter{code: x.Code})
		}
		c := &s.xids[i]
		// A source that keeps counting keeps the date, by a clock that may have been set.
		if at := x.Last.Add(stale(x.Last)); !x.Last.Equal(c.last) && at.After(c.latest) {
			c.latest = at
		}
		c.count, c.last = x.Count, x.Last
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
