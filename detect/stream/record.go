package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// recordWriter packs the state of a statistic: four bytes that name it, its version,
// its fields, and a CRC-32C over all of that, in little-endian order.
type recordWriter struct{ b []byte }

func newRecord(name string, version uint8, size int) *recordWriter {
	w := &recordWriter{b: make([]byte, 0, size)}
	w.b = append(append(w.b, name...), version)
	return w
}

func (w *recordWriter) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}
func (w *recordWriter) u32(v uint32)  { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *recordWriter) i64(v int64)   { w.b = binary.LittleEndian.AppendUint64(w.b, uint64(v)) }
func (w *recordWriter) f32(v float32) { w.u32(math.Float32bits(v)) }
func (w *recordWriter) f64(v float64) { w.i64(int64(math.Float64bits(v))) }

func (w *recordWriter) finish() []byte {
	w.u32(crc32.Checksum(w.b, crc32.MakeTable(crc32.Castagnoli)))
	return w.b
}

// errRecord is why a state cannot be taken up; the statistic then begins anew.
var errRecord = errors.New("the remembered state cannot be taken up")

// recordReader reads what a recordWriter packed. Reading past the end gives zeros and
// makes finish fail.
type recordReader struct {
	b       []byte
	short   bool
	version uint8
}

// openRecord checks name, version and checksum. Versions between the oldest that is still
// understood and the newest are.
func openRecord(data []byte, name string, oldest, newest uint8) (*recordReader, error) {
	body := len(data) - crc32.Size
	if body < len(name)+1 || string(data[:len(name)]) != name {
		return nil, fmt.Errorf("%w: %d bytes are no record %q", errRecord, len(data), name)
	}
	version := data[len(name)]
	if version < oldest || version > newest {
		return nil, fmt.Errorf("%w: record %q has version %d, needed: %d to %d", errRecord, name, version, oldest, newest)
	}
	if crc32.Checksum(data[:body], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(data[body:]) {
		return nil, fmt.Errorf("%w: record %q is damaged: its checksum is wrong", errRecord, name)
	}
	return &recordReader{b: data[len(name)+1 : body], version: version}, nil
}

func (r *recordReader) take(n int) []byte {
	if len(r.b) < n {
		r.short, r.b = true, nil
		return make([]byte, n)
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *recordReader) bool() bool   { return r.take(1)[0] != 0 }
func (r *recordReader) u32() uint32  { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *recordReader) i64() int64   { return int64(binary.LittleEndian.Uint64(r.take(8))) }
func (r *recordReader) f32() float32 { return math.Float32frombits(r.u32()) }
func (r *recordReader) f64() float64 { return math.Float64frombits(uint64(r.i64())) }

func (r *recordReader) finish() error {
	if r.short || len(r.b) > 0 {
		return fmt.Errorf("%w: it has another length than its version has", errRecord)
	}
	return nil
}
