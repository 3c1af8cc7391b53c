package frame

import (
	"encoding/binary"
	"fmt"

	"gpuvigil/internal/metric"
)

// column names one row of a catalogue: that of this release or that of a stream.
type column struct {
	entity string
	name   string
	dim    []string // values of the closed dimension, nil without one
}

func (c column) width() int { return max(len(c.dim), 1) }

// schema is a stream's catalogue as its header tells it.
type schema struct {
	tiers   []string
	columns []column
}

// catalogue returns the schema of this release.
func catalogue() schema {
	var s schema
	for t := range metric.Tiers {
		s.tiers = append(s.tiers, t.String())
	}
	for _, d := range metric.All() {
		c := column{entity: d.Entity.String(), name: d.Name}
		if d.Dim != nil {
			c.dim = d.Dim.Values
		}
		s.columns = append(s.columns, c)
	}
	return s
}

func appendHeader(b []byte, s schema) []byte {
	start := len(b)
	b = append(b, make([]byte, headerLen)...)
	b = appendStrings(b, s.tiers)
	b = binary.AppendUvarint(b, uint64(len(s.columns)))
	for _, c := range s.columns {
		b = appendString(b, c.entity)
		b = appendString(b, c.name)
		b = appendStrings(b, c.dim)
	}
	head, payload := b[start:start+headerLen], b[start+headerLen:]
	copy(head, magic)
	binary.LittleEndian.PutUint16(head[len(magic):], Version)
	putLength(head[len(magic)+2:], payload)
	return b
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func parseSchema(b []byte) (schema, error) {
	var s schema
	d := decoder{b: b, budget: maxElements}
	s.tiers = d.strings()
	for range d.list(maxPerEntity) {
		s.columns = append(s.columns, column{entity: d.literal(), name: d.literal(), dim: d.strings()})
	}
	return s, d.err
}

// mapping says where a stream's columns are in this release's catalogue.
type mapping struct {
	tiers []int                   // -1: unknown here
	rows  []*metric.Def           // nil: unknown here
	cols  map[metric.Entity][]int // -1: unknown here
}

func newMapping(s schema) (*mapping, error) {
	m := &mapping{cols: make(map[metric.Entity][]int)}
	for _, name := range s.tiers {
		m.tiers = append(m.tiers, tierByName(name))
	}
	known := make(map[string]*metric.Def)
	for _, d := range metric.All() {
		known[d.Name] = d
	}
	total := 0
	for _, c := range s.columns {
		d := known[c.name]
		m.rows = append(m.rows, d)
		e, ok := entityByName(c.entity)
		if total += c.width(); total > maxPerEntity {
			return nil, fmt.Errorf("the schema has more than %d columns", maxPerEntity)
		}
		if !ok {
			continue
		}
		for i := range c.width() {
			m.cols[e] = append(m.cols[e], target(d, e, c, i))
		}
	}
	return m, nil
}

// target returns the catalogue's column for the i-th column of c, or -1.
func target(d *metric.Def, e metric.Entity, c column, i int) int {
	if d == nil || d.Entity != e || (d.Dim == nil) != (len(c.dim) == 0) {
		return -1
	}
	if d.Dim == nil {
		return d.Col()
	}
	if j := d.Dim.Index(c.dim[i]); j >= 0 {
		return d.Col() + j
	}
	return -1
}

func tierByName(name string) int {
	for t := range metric.Tiers {
		if t.String() == name {
			return int(t)
		}
	}
	return -1
}

func entityByName(name string) (metric.Entity, bool) {
	for _, e := range vectors {
		if e.String() == name {
			return e, true
		}
	}
	return 0, false
}
