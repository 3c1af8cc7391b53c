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
		x := d.float()
		if to >= 0 {
			v.values[to] = x
		}
	}
	return collector.ReadingsFrom(v.values, at)
}

func (d *decoder) float() float64 { return math.Float64frombits(bits.ReverseBytes64(d.uvarint())) }

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

// list reads a list.
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
