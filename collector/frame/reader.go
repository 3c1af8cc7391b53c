package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"gpuvigil/collector"
)

// growth is how much memory a frame's claimed length buys before its bytes have
// come.
const growth = 256 << 10

// Reader reads a stream of frames. It is not for use by several goroutines at
// once.
type Reader struct {
	r      *bufio.Reader
	buf    []byte
	dec    decoder
	offset int64
	err    error // the stream cannot be read on
}

// NewReader returns a Reader of r. Nothing is read before the first Read.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), dec: decoder{known: make(map[string]string)}}
}

// Read returns the next part. At the end of the stream, between two frames, it
// returns io.EOF, which an empty stream does too; within a frame or the header an
// error that wraps io.ErrUnexpectedEOF: a recorder was killed while it wrote.
//
// Bytes that cannot be a frame are a *CorruptError. Read may be called again after
// one: it goes on with the next frame if the bad one's end is known, else it
// returns the same error.
func (r *Reader) Read() (*collector.Part, error) {
	if r.err == nil && r.dec.mapping == nil {
		r.err = r.readHeader()
	}
	if r.err != nil {
		return nil, r.err
	}
	at := r.offset
	var head [frameLen]byte
	if err := r.fill(head[:]); err != nil {
		return nil, r.broken(at, err, true)
	}
	payload, err := r.payload(head[:], MaxFrame)
	if err != nil {
		return nil, r.broken(at, err, false)
	}
	if err := checksum(head[:], payload); err != nil {
		return nil, &CorruptError{Offset: at, Reason: err.Error()}
	}
	p, err := r.dec.part(payload)
	if err != nil {
		return nil, &CorruptError{Offset: at, Reason: err.Error()}
	}
	return p, nil
}

func (r *Reader) readHeader() error {
	var head [headerLen]byte
	if err := r.fill(head[:len(magic)]); err != nil {
		return r.broken(0, err, true)
	}
	if got := head[:len(magic)]; string(got) != magic {
		return &CorruptError{Reason: fmt.Sprintf("it begins with %q: this is no stream of gpuvigil frames", got)}
	}
	if err := r.fill(head[len(magic):]); err != nil {
		return r.broken(0, err, false)
	}
	if v := binary.LittleEndian.Uint16(head[len(magic):]); v != Version {
		return &CorruptError{Reason: fmt.Sprintf("it has format version %d and this release reads version %d: use a release that knows it", v, Version)}
	}
	length := head[len(magic)+2:]
	payload, err := r.payload(length, MaxHeader)
	if err != nil {
		return r.broken(0, err, false)
	}
	if err := checksum(length, payload); err != nil {
		return &CorruptError{Reason: "header: " + err.Error()}
	}
	s, err := parseSchema(payload)
	if err != nil {
		return &CorruptError{Reason: "header: " + err.Error()}
	}
	if r.dec.mapping, err = newMapping(s); err != nil {
		return &CorruptError{Reason: "header: " + err.Error()}
	}
	return nil
}

// payload reads as many bytes as length says, into memory that the next call
// uses again.
func (r *Reader) payload(length []byte, limit int) ([]byte, error) {
	n := int(binary.LittleEndian.Uint32(length))
	if n == 0 || n > limit {
		return nil, fmt.Errorf("%w: its length is %d, possible are 1 to %d", errLength, n, limit)
	}
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		have := len(r.buf)
		step := min(n-have, max(growth, cap(r.buf)-have))
		r.buf = append(r.buf, make([]byte, step)...)
		if err := r.fill(r.buf[have:]); err != nil {
			return nil, err
		}
	}
	return r.buf, nil
}

var errLength = errors.New("no frame can be here")

func checksum(head, payload []byte) error {
	want, got := binary.LittleEndian.Uint32(head[4:]), crc32.Checksum(payload, castagnoli)
	if want != got {
		return fmt.Errorf("the checksum of its %d bytes is %08x, not %08x: it was damaged", len(payload), got, want)
	}
	return nil
}

// fill reads exactly len(b) bytes. It returns io.EOF only if there was none.
func (r *Reader) fill(b []byte) error {
	n, err := io.ReadFull(r.r, b)
	r.offset += int64(n)
	return err
}

// broken keeps an error after which the stream cannot be read on. atBoundary says
// that the stream may end here.
func (r *Reader) broken(at int64, err error, atBoundary bool) error {
	switch {
	case err == io.EOF && atBoundary:
		r.err = io.EOF
	case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
		r.err = fmt.Errorf("frame at byte %d of the stream is cut off: %w", at, io.ErrUnexpectedEOF)
	case errors.Is(err, errLength):
		r.err = &CorruptError{Offset: at, Reason: err.Error()}
	default:
		r.err = fmt.Errorf("read the frame at byte %d of the stream: %w", at, err)
	}
	return r.err
}
