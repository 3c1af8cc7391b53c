package remotewrite

import (
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// errMalformed is all there is to say of bytes that are no such message: what they hold
// is not shown, for anybody may have sent them.
var errMalformed = errors.New("the body is not a message of the protobuf type that Content-Type names")

// span is a part of a request's bytes.
type span struct{ from, to int }

// field is one field of a message: its number and its value, or where its bytes are.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  uint64
	at     span
}

// next reads the field at a position of data[:end], and returns the position behind it.
func next(data []byte, at, end int, f *field) (int, error) {
	number, kind, n := protowire.ConsumeTag(data[at:end])
	if n < 0 {
		return 0, errMalformed
	}
	at += n
	f.number, f.kind = number, kind
	switch kind {
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(data[at:end])
	case protowire.Fixed64Type:
		f.value, n = protowire.ConsumeFixed64(data[at:end])
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(data[at:end])
		f.value = uint64(v)
	case protowire.BytesType:
		var b []byte
		b, n = protowire.ConsumeBytes(data[at:end])
		f.at = span{at + n - len(b), at + n}
	default: // groups, which neither version has
		return 0, errMalformed
	}
	if n < 0 {
		return 0, errMalformed
	}
	return at + n, nil
}

// sample is one value and its time in milliseconds since 1970.
type sample struct {
	at    int64
	value float64
}

// readSample reads a message of a value and a time, whose numbers differ by version.
func readSample(data []byte, m span, value, time protowire.Number) (s sample, err error) {
	var f field
	for at := m.from; at < m.to; {
		if at, err = next(data, at, m.to, &f); err != nil {
			return s, err
		}
		switch {
		case f.number == value && f.kind == protowire.Fixed64Type:
			s.value = math.Float64frombits(f.value)
		case f.number == time && f.kind == protowire.VarintType:
			s.at = int64(f.value)
		case f.number == value || f.number == time:
			return s, errMalformed
		}
	}
	return s, nil
}
