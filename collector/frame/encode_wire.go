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

// readings writes a bit for each column and the numbers of those that are there.
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
			e.float(x)
		}
	}
}

// float writes a number with its bytes turned round, as gob does it: whole numbers
// then take two to four bytes, zero one.
func (e *encoder) float(x float64) { e.uvarint(bits.ReverseBytes64(math.Float64bits(x))) }

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

// appendString appends a string after its length.
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
