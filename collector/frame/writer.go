package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Writer writes parts as a stream of frames. It is not for use by several
// goroutines at once.
type Writer struct {
	w      io.Writer
	enc    encoder
	buf    []byte
	header bool // written
	err    error
}

// NewWriter returns a Writer to w. Nothing is written before the first part.
func NewWriter(w io.Writer) *Writer {
	rows := make(map[*metric.Def]uint64)
	for i, d := range metric.All() {
		rows[d] = uint64(i)
	}
	return &Writer{w: w, enc: encoder{strings: make(map[string]uint64), rows: rows}}
}

// Write writes one part with one call of the underlying writer. A part that is
// too large for a frame is an error that leaves the stream whole; an error of the
// underlying writer breaks it, and every later Write returns it again.
func (w *Writer) Write(p *collector.Part) error {
	if w.err != nil {
		return w.err
	}
	w.enc.part(p)
	if w.enc.err != nil {
		return fmt.Errorf("encode a frame: %w", w.enc.err)
	}
	w.buf = w.buf[:0]
	if !w.header {
		w.buf = appendHeader(w.buf, catalogue())
	}
	start := len(w.buf)
	w.buf = append(w.buf, make([]byte, frameLen)...)
	w.buf = w.enc.appendPayload(w.buf)
	payload := w.buf[start+frameLen:]
	if len(payload) > MaxFrame {
		return fmt.Errorf("encode a frame: %d bytes are more than a frame holds (%d)", len(payload), MaxFrame)
	}
	putLength(w.buf[start:], payload)
	if _, err := w.w.Write(w.buf); err != nil {
		w.err = fmt.Errorf("write a frame: %w", err)
		return w.err
	}
	w.header = true
	return nil
}

// putLength writes the length and the checksum of payload into b.
func putLength(b, payload []byte) {
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(payload, castagnoli))
}
