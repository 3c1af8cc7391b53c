package frame

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"time"
	"unicode/utf8"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// encoder appends one part to b and its strings to table. The first error stays in
// err.
type encoder struct {
	b        []byte
	table    []byte                 // the frame's strings, each after its length
	strings  map[string]uint64      // their numbers, from 1
	rows     map[*metric.Def]uint64 // the catalogue's rows, by number
	base     time.Time              // the part's time
	elements int
	err      error
}

func (e *encoder) part(p *collector.Part) {
	e.b, e.table, e.base, e.elements, e.err = e.b[:0], e.table[:0], p.Time, 0, nil
	clear(e.strings)

	head := len(e.b)
	e.absolute(p.Time)
	e.time(p.Boot)
	e.uvarint(bit(p.Simulated, flagSimulated))
	e.size(head)

	e.node(&p.Node)
	e.section(gpuSection, len(p.GPUs), maxGPUs, func(i int) { e.gpu(&p.GPUs[i]) })
	e.section(instanceSection, len(p.Instances), maxInstances, func(i int) { e.instance(&p.Instances[i]) })
	e.section(processSection, len(p.Processes), maxProcesses, func(i int) { e.process(&p.Processes[i]) })
	e.section(endpointSection, len(p.Endpoints), maxEndpoints, func(i int) { e.endpoint(&p.Endpoints[i]) })
	e.section(eventSection, len(p.Events), maxEvents, func(i int) { e.event(&p.Events[i]) })
}

// appendPayload appends the strings and then what refers to them.
func (e *encoder) appendPayload(b []byte) []byte {
	var buf [binary.MaxVarintLen64]byte
	count := buf[:binary.PutUvarint(buf[:], uint64(len(e.strings)))]
	b = binary.AppendUvarint(b, uint64(len(count)+len(e.table)))
	b = append(b, count...)
	b = append(b, e.table...)
	return append(b, e.b...)
}

func (e *encoder) section(id uint64, n, limit int, record func(i int)) {
	if n == 0 || !e.fits(n, limit) {
		return
	}
	e.uvarint(id)
	start := len(e.b)
	e.uvarint(uint64(n))
	for i := range n {
		at := len(e.b)
		record(i)
		e.size(at)
	}
	e.size(start)
}

func (e *encoder) node(n *collector.Node) {
	e.section(nodeSection, 1, 1, func(int) {
		e.str(n.Name)
		e.list(len(n.Versions))
		for _, v := range n.Versions {
			e.str(v.Component)
			e.str(v.Value)
		}
		e.readings(n.Readings, metric.Node)
	})
}

func (e *encoder) gpu(g *collector.GPU) {
	e.varint(int64(g.Index))
	for _, s := range [...]string{g.UUID, g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.Architecture} {
		e.str(s)
	}
	e.uvarint(bit(g.Present, flagPresent) | bit(g.Hung, flagHung) | bit(g.MIG, flagMIG))
	e.owners(g.Owners)
	e.list(len(g.Unsupported))
	for _, d := range g.Unsupported {
		e.row(d)
	}
	e.list(len(g.Dropped))
	if len(g.Dropped) > 0 {
		for _, d := range metric.All() { // in the catalogue's order: the same part gives the same bytes
			if n, ok := g.Dropped[d]; ok {
				e.row(d)
				e.uvarint(n)
			}
		}
	}
	e.list(len(g.Xids))
	for _, x := range g.Xids {
		e.varint(int64(x.Code))
		e.uvarint(x.Count)
		e.time(x.Last)
	}
	e.readings(g.Readings, metric.GPU)
}

func (e *encoder) instance(i *collector.Instance) {
	e.varint(int64(i.GPU))
	e.str(i.UUID)
	e.str(i.MIGUUID)
	e.varint(int64(i.GI))
	e.varint(int64(i.CI))
	e.str(i.Profile)
	e.owners(i.Owners)
	e.readings(i.Readings, metric.Instance)
}

func (e *encoder) process(p *collector.Process) {
	e.varint(int64(p.PID))
	e.uvarint(p.Start)
	e.str(p.Name)
	e.varint(int64(p.UID))
	e.varint(int64(p.GPU))
	e.str(p.UUID)
	e.str(p.MIG)
	e.owner(p.Owner)
	e.readings(p.Readings, metric.Process)
}

func (e *encoder) endpoint(p *collector.Endpoint) {
	e.str(p.URL)
	e.str(p.Engine)
	e.str(p.Model)
	e.list(len(p.GPUs))
	for _, u := range p.GPUs {
		e.str(u)
	}
	e.readings(p.Readings, metric.Endpoint)
}

func (e *encoder) event(v *collector.Event) {
	e.time(v.Time)
	e.str(string(v.Kind))
	e.str(v.UUID)
	e.varint(int64(v.Code))
	e.str(v.Component)
	e.str(v.From)
	e.str(v.To)
	e.str(v.Text)
}

func (e *encoder) owners(owners []collector.Owner) {
	e.list(len(owners))
	for _, o := range owners {
		e.owner(o)
	}
}

func (e *encoder) owner(o collector.Owner) {
	e.str(o.Kind)
	e.str(o.ID)
	e.str(o.Team)
}

// readings writes a bit for each column and the numbers of those that are there.
// A number goes with its bytes turned round, as gob does it: whole numbers then
// take two to four bytes, zero one.
func (e *encoder) readings(r collector.Readings, entity metric.Entity) {
	for t := range metric.Tiers {
		e.time(r.SampledAt(t))
	}
	v, err := vectorOf(r, entity)
	if err != nil {
		e.fail(err)
	}
	if v == nil {
		e.uvarint(0)
		return
	}
	e.uvarint(1)
	mask := len(e.b)
	for range (len(v) + 7) / 8 {
		e.b = append(e.b, 0)
	}
	for i, x := range v {
		if !math.IsNaN(x) {
			e.b[mask+i/8] |= 1 << (i % 8)
			e.uvarint(bits.ReverseBytes64(math.Float64bits(x)))
		}
	}
}

func (e *encoder) row(d *metric.Def) {
	n, ok := e.rows[d]
	if !ok {
		e.fail(fmt.Errorf("metric %s is not a row of the catalogue", d))
	}
	e.uvarint(n)
}

func (e *encoder) absolute(t time.Time) {
	e.varint(t.Unix())
	e.uvarint(uint64(t.Nanosecond()))
}

func (e *encoder) time(t time.Time) {
	switch {
	case t.IsZero():
		e.uvarint(timeZero)
	case t.Equal(e.base):
		e.uvarint(timeSame)
	default:
		e.uvarint(timeDelta)
		e.varint(t.Unix() - e.base.Unix())
		e.uvarint(uint64(t.Nanosecond()))
	}
}

// str writes a string's number in the frame's table: uuids are on every process.
func (e *encoder) str(s string) {
	if s == "" {
		e.uvarint(0)
		return
	}
	s = cut(s)
	n, ok := e.strings[s]
	if !ok {
		n = uint64(len(e.strings) + 1)
		e.strings[s] = n
		e.table = appendString(e.table, s)
		e.fits(1, maxElements)
	}
	e.uvarint(n)
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func (e *encoder) list(n int) {
	if e.fits(n, maxPerEntity) {
		e.uvarint(uint64(n))
	}
}

func (e *encoder) fits(n, limit int) bool {
	e.elements += n
	if n > limit || e.elements > maxElements {
		e.fail(fmt.Errorf("a list of %d is more than a frame holds (%d, and %d in all)", n, limit, maxElements))
	}
	return e.err == nil
}

// size puts the length of what was written since start before it.
func (e *encoder) size(start int) {
	var prefix [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(prefix[:], uint64(len(e.b)-start))
	e.b = append(e.b, prefix[:n]...)
	copy(e.b[start+n:], e.b[start:])
	copy(e.b[start:], prefix[:n])
}

func (e *encoder) uvarint(u uint64) { e.b = binary.AppendUvarint(e.b, u) }
func (e *encoder) varint(i int64)   { e.b = binary.AppendVarint(e.b, i) }

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func bit(set bool, mask uint64) uint64 {
	if set {
		return mask
	}
	return 0
}

// cut shortens s to MaxString bytes without leaving half a rune.
func cut(s string) string {
	if len(s) <= MaxString {
		return s
	}
	n := MaxString
	for n > MaxString-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
