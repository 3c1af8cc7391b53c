package push

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// Format is how samples are sent.
type Format uint8

// The formats. Their numbers stand in the buffer's files.
const (
	RemoteWrite Format = 1 // Prometheus remote write 1.0, which all receivers know
	Import      Format = 2 // Prometheus' text with times, as VictoriaMetrics imports it
)

// record is one request that is to be sent.
type record struct {
	at      time.Time // when what is in it was looked at
	samples int
	format  Format
	payload []byte // compressed, as it is sent
}

// headSize is what a record has before its payload: the payload's length, a checksum of
// all behind the checksum, time, samples and format.
const headSize = 4 + 4 + 8 + 4 + 1

// maxPayload is far more than a page of a node needs.
const maxPayload = 16 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r *record) size() int64 { return int64(headSize + len(r.payload)) }

// append writes the record as it is on the disk.
func (r *record) append(b []byte) []byte {
	begin := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.payload)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.at.UnixMilli()))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.samples))
	b = append(append(b, byte(r.format)), r.payload...)
	binary.LittleEndian.PutUint32(b[begin+4:], crc32.Checksum(b[begin+8:], castagnoli))
	return b
}

// parse reads the record at the beginning of b, and returns the bytes it took; 0 if there
// is none that is whole. The payload is a part of b.
func parse(b []byte) (r record, n int) {
	if len(b) < headSize {
		return r, 0
	}
	length := int64(binary.LittleEndian.Uint32(b))
	if length > maxPayload || int64(len(b)) < headSize+length {
		return r, 0
	}
	n = headSize + int(length)
	if crc32.Checksum(b[8:n], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return r, 0
	}
	return record{
		at:      time.UnixMilli(int64(binary.LittleEndian.Uint64(b[8:]))),
		samples: int(binary.LittleEndian.Uint32(b[16:])),
		format:  Format(b[20]),
		payload: b[headSize:n],
	}, n
}
