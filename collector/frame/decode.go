package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxKnown bounds the bytes of the strings that a decoder keeps from frame to
// frame so that a uuid is not allocated each time.
const maxKnown = 1 << 20

// decoder reads one payload from b. The first error stays in err, and everything
// read after it is zero.
type decoder struct {
	*mapping
	b      []byte
	base   time.Time // the part's time
	table  []string  // the frame's strings
	budget int       // list elements that the payload may still have
	err    error

	known      map[string]string // nil: keep none
	knownBytes int
}

func (d *decoder) part(payload []byte) (*collector.Part, error) {
	d.b, d.table, d.budget, d.err = payload, d.table[:0], maxElements, nil
	p := new(collector.Part)
	rest := d.enter()
	for range d.list(maxElements) {
		d.table = append(d.table, d.literal())
	}
	d.leave(rest)
	rest = d.enter()
	d.base = d.absolute()
	p.Time = d.base
	p.Boot = d.time()
	p.Simulated = d.uvarint()&flagSimulated != 0
	d.leave(rest)
	for len(d.b) > 0 && d.err == nil {
		id := d.uvarint()
		rest := d.enter()
		d.section(p, id)
		d.leave(rest)
	}
	if d.err != nil {
		return nil, d.err
	}
	return p, nil
}

// section reads one section; one of a later release is left to be skipped.
func (d *decoder) section(p *collector.Part, id uint64) {
	switch id {
	case nodeSection:
		if n := records(d, 1, d.vectors(metric.Node), (*decoder).node); len(n) > 0 {
			p.Node = n[0]
		}
	case gpuSection:
		p.GPUs = records(d, maxGPUs, d.vectors(metric.GPU), (*decoder).gpu)
	case instanceSection:
		p.Instances = records(d, maxInstances, d.vectors(metric.Instance), (*decoder).instance)
	case processSection:
		p.Processes = records(d, maxProcesses, d.vectors(metric.Process), (*decoder).process)
	case endpointSection:
		p.Endpoints = records(d, maxEndpoints, d.vectors(metric.Endpoint), (*decoder).endpoint)
	case eventSection:
		p.Events = records(d, maxEvents, vector{}, (*decoder).event)
	}
}

// vector is where a record's readings go: memory of the catalogue's length, and
// for each column of the stream the catalogue's column.
type vector struct {
	values []float64
	cols   []int
	width  int
}

func (d *decoder) vectors(e metric.Entity) vector {
	return vector{cols: d.cols[e], width: metric.VectorLen(e)}
}

// records reads a section's records. Their vectors share one piece of memory.
func records[T any](d *decoder, limit int, v vector, read func(*decoder, *T, vector)) []T {
	n := d.list(limit)
	if n == 0 {
		return nil
	}
	out := make([]T, n)
	all := make([]float64, n*v.width)
	for i := range all {
		all[i] = math.NaN()
	}
	for i := range out {
		rest := d.enter()
		v.values = all[i*v.width : (i+1)*v.width : (i+1)*v.width]
		read(d, &out[i], v)
		d.leave(rest)
	}
	return out
}

func (d *decoder) node(n *collector.Node, v vector) {
	n.Name = d.str()
	n.Versions = list(d, func(v *collector.Version) { v.Component, v.Value = d.str(), d.str() })
	n.Readings = d.readings(v)
}

func (d *decoder) gpu(g *collector.GPU, v vector) {
	g.Index = d.int()
	for _, s := range [...]*string{&g.UUID, &g.Model, &g.PCIBusID, &g.Serial, &g.VBIOS, &g.Architecture} {
		*s = d.str()
	}
	flags := d.uvarint()
	g.Present, g.Hung, g.MIG = flags&flagPresent != 0, flags&flagHung != 0, flags&flagMIG != 0
	g.Owners = d.owners()
	g.Unsupported = d.unsupported()
	g.Dropped = d.dropped()
	g.Xids = list(d, func(x *collector.XidCount) { x.Code, x.Count, x.Last = d.int(), d.uvarint(), d.time() })
	g.Readings = d.readings(v)
}

func (d *decoder) instance(i *collector.Instance, v vector) {
	i.GPU, i.UUID, i.MIGUUID = d.int(), d.str(), d.str()
	i.GI, i.CI, i.Profile = d.int(), d.int(), d.str()
	i.Owners = d.owners()
	i.Readings = d.readings(v)
}

func (d *decoder) process(p *collector.Process, v vector) {
	p.PID, p.Start, p.Name, p.UID = d.int(), d.uvarint(), d.str(), d.int()
	p.GPU, p.UUID, p.MIG = d.int(), d.str(), d.str()
	d.owner(&p.Owner)
	p.Readings = d.readings(v)
}

func (d *decoder) endpoint(p *collector.Endpoint, v vector) {
	p.URL, p.Engine, p.Model = d.str(), d.str(), d.str()
	p.GPUs = list(d, func(s *string) { *s = d.str() })
	p.Readings = d.readings(v)
}

func (d *decoder) event(v *collector.Event, _ vector) {
	v.Time, v.Kind, v.UUID, v.Code = d.time(), collector.EventKind(d.str()), d.str(), d.int()
	v.Component, v.From, v.To, v.Text = d.str(), d.str(), d.str(), d.str()
}

func (d *decoder) owners() []collector.Owner { return list(d, d.owner) }

func (d *decoder) owner(o *collector.Owner) { o.Kind, o.ID, o.Team = d.str(), d.str(), d.str() }

// unsupported leaves out rows that this release does not have.
func (d *decoder) unsupported() []*metric.Def {
	var rows []*metric.Def
	for range d.list(maxPerEntity) {
		if row := d.row(); row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

// dropped leaves out rows that this release does not have.
func (d *decoder) dropped() map[*metric.Def]uint64 {
	var counts map[*metric.Def]uint64
	for range d.list(maxPerEntity) {
		row, n := d.row(), d.uvarint()
		if row == nil {
			continue
		}
		if counts == nil {
			counts = make(map[*metric.Def]uint64)
		}
		counts[row] = n
	}
	return counts
}

func (d *decoder) readings(v vector) collector.Readings {
	var at [metric.Tiers]time.Time
	for _, t := range d.tiers {
		if when := d.time(); t >= 0 {
			at[t] = when
		}
	}
	if d.uvarint() == 0 || d.err != nil {
		return collector.ReadingsFrom(nil, at)
	}
	mask := d.bytes((len(v.cols) + 7) / 8)
	for i, to := range v.cols {
		if d.err != nil || mask[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		x := math.Float64frombits(bits.ReverseBytes64(d.uvarint()))
		if to >= 0 {
			v.values[to] = x
		}
	}
	return collector.ReadingsFrom(v.values, at)
}

func (d *decoder) row() *metric.Def {
	n := d.uvarint()
	if n >= uint64(len(d.rows)) {
		d.fail("it names row %d of a schema of %d", n, len(d.rows))
		return nil
	}
	return d.rows[n]
}

func (d *decoder) absolute() time.Time {
	sec, nsec := d.varint(), d.uvarint()
	if nsec >= uint64(time.Second) {
		d.fail("a time has %d nanoseconds", nsec)
		return time.Time{}
	}
	return time.Unix(sec, int64(nsec)).UTC()
}

func (d *decoder) time() time.Time {
	switch form := d.uvarint(); form {
	case timeZero:
		return time.Time{}
	case timeSame:
		return d.base
	case timeDelta:
		t := d.absolute()
		return time.Unix(d.base.Unix()+t.Unix(), int64(t.Nanosecond())).UTC()
	default:
		d.fail("a time has the unknown form %d", form)
		return time.Time{}
	}
}

func (d *decoder) str() string {
	n := d.uvarint()
	if n == 0 {
		return ""
	}
	if n > uint64(len(d.table)) {
		d.fail("it names string %d of %d", n, len(d.table))
		return ""
	}
	return d.table[n-1]
}

func (d *decoder) literal() string {
	b := d.bytes(d.length(MaxString))
	if s, ok := d.known[string(b)]; ok {
		return s
	}
	s := string(b)
	if d.known == nil {
		return s
	}
	if d.knownBytes += len(s); d.knownBytes > maxKnown {
		clear(d.known)
		d.knownBytes = len(s)
	}
	d.known[s] = s
	return s
}

func (d *decoder) strings() []string {
	var out []string
	for range d.list(maxPerEntity) {
		out = append(out, d.literal())
	}
	return out
}

// list reads the length of a list, each element of which takes a byte or more.
func list[T any](d *decoder, read func(*T)) []T {
	n := d.list(maxPerEntity)
	if n == 0 {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		read(&out[i])
	}
	return out
}

// list reads the length of a list, each element of which takes a byte or more.
func (d *decoder) list(limit int) int {
	n := d.length(limit)
	if d.budget -= n; d.budget < 0 {
		d.fail("it has more than %d list elements", maxElements)
		return 0
	}
	return n
}

// length reads how many bytes or elements follow: not more than limit and not
// more than there are bytes left.
func (d *decoder) length(limit int) int {
	n := d.uvarint()
	if n > uint64(limit) || n > uint64(len(d.b)) {
		d.fail("a length of %d where at most %d is possible", n, min(limit, len(d.b)))
		return 0
	}
	return int(n)
}

// enter goes into what is sized and returns what follows it.
func (d *decoder) enter() []byte {
	n := d.length(MaxFrame)
	rest := d.b[n:]
	d.b = d.b[:n]
	return rest
}

// leave skips what is left of the sized thing: fields of a later release.
func (d *decoder) leave(rest []byte) { d.b = rest }

func (d *decoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.fail("%d bytes where %d are left", n, len(d.b))
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	u, n := binary.Uvarint(d.b)
	return take(d, u, n)
}

func (d *decoder) varint() int64 {
	i, n := binary.Varint(d.b)
	return take(d, i, n)
}

func take[T int64 | uint64](d *decoder, v T, n int) T {
	if n <= 0 || d.err != nil {
		d.fail("a number is cut off or too large")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int {
	i := d.varint()
	if int64(int(i)) != i {
		d.fail("the number %d is too large here", i)
		return 0
	}
	return int(i)
}

var errPayload = errors.New("its content cannot be read")

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errPayload, fmt.Sprintf(format, args...))
	}
	d.b = nil
}
