package push

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"
)

// bufferConfig says where a buffer is and what it may hold.
type bufferConfig struct {
	Dir      string
	MaxBytes int64
	MaxAge   time.Duration
	Log      *slog.Logger
}

// maxMemory is what is kept in memory while the disk takes nothing.
const maxMemory = 8 << 20

// loss is why samples were dropped that nobody was sent.
type loss int

// The losses, in the order of metric.PushLosses.
const (
	tooMuch loss = iota
	tooOld
	damaged // where their number is not known, each damaged part counts as one
	diskFull
	otherFormat
	losses
)

// buffer keeps records in files until they are sent, oldest first. A file goes as soon as
// all of it is sent, so that while the receiver answers hardly anything reaches the disk
// itself. What the disk does not take stays in memory, as much as fits there.
type buffer struct {
	cfg bufferConfig

	mu       sync.Mutex
	seq      uint64 // of the newest segment
	segments []*segment
	writing  *os.File
	memory   []*record // that are not on the disk, behind those that are
	held     int64     // bytes of memory
	failing  bool      // the disk, and that is logged
	state    state
}

// state is what others may see without waiting for the disk.
type state struct {
	mu      sync.Mutex
	bytes   int64
	records int
	oldest  time.Time
	lost    [losses]uint64
}

func openBuffer(cfg bufferConfig) *buffer {
	b := &buffer{cfg: cfg}
	if err := b.load(); err != nil {
		b.complain("open", err)
	}
	b.tell()
	return b
}

func (b *buffer) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seal()
}

// put keeps a record. It never fails: what can be kept nowhere is the oldest, and lost.
func (b *buffer) put(r *record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memory = append(b.memory, r)
	b.held += r.size()
	b.flush()
	for b.held > maxMemory && len(b.memory) > 1 {
		b.lose(diskFull, b.memory[0].samples)
		b.forget()
	}
	for len(b.segments) > 1 && b.segments[0].newest().Before(r.at.Add(-b.cfg.MaxAge)) {
		b.drop(tooOld)
	}
	b.tell()
}

// forget removes the oldest record from memory.
func (b *buffer) forget() {
	b.held -= b.memory[0].size()
	b.memory[0] = nil
	b.memory = b.memory[1:]
}

// flush writes what is in memory, as far as the disk takes it.
func (b *buffer) flush() {
	for len(b.memory) > 0 {
		if err := b.write(b.memory[0]); err != nil {
			b.complain("write to", err)
			return
		}
		b.forget()
	}
	if b.failing {
		b.failing = false
		b.cfg.Log.Info("The push buffer's disk takes data again.")
	}
}

// write appends the record to the newest segment, or to a new one.
func (b *buffer) write(r *record) error {
	for len(b.segments) > 1 && b.bytes()+r.size() > b.cfg.MaxBytes {
		b.drop(tooMuch)
	}
	if b.writing != nil && b.segments[len(b.segments)-1].size+r.size() > b.cfg.MaxBytes/8 {
		if err := b.seal(); err != nil {
			b.complain("close a file of", err)
		}
	}
	if b.writing == nil {
		if err := os.MkdirAll(b.cfg.Dir, 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(b.path(b.seq+1), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		b.seq++
		b.writing = f
		b.segments = append(b.segments, &segment{seq: b.seq})
	}
	s := b.segments[len(b.segments)-1]
	if _, err := b.writing.WriteAt(r.append(nil), s.size); err != nil {
		// What is there of it is behind the end of what counts, and written over.
		if len(s.waits) == 0 {
			b.discard()
		}
		return err
	}
	s.add(r, true)
	return nil
}

// discard takes away the newest segment, in which nothing is.
func (b *buffer) discard() {
	if err := b.writing.Close(); err != nil {
		b.complain("close a file of", err)
	}
	b.writing = nil
	last := b.segments[len(b.segments)-1]
	b.segments = b.segments[:len(b.segments)-1]
	b.remove(last.seq)
}

// seal closes the segment that is written to. It is then on the disk for sure.
func (b *buffer) seal() error {
	if b.writing == nil {
		return nil
	}
	err := errors.Join(b.writing.Sync(), b.writing.Close())
	b.writing = nil
	return err
}

// drop loses the oldest segment.
func (b *buffer) drop(why loss) {
	b.lose(why, b.segments[0].samples())
	b.advance()
}

// advance removes the oldest segment.
func (b *buffer) advance() {
	s := b.segments[0]
	if len(b.segments) == 1 && b.writing != nil {
		if err := b.writing.Close(); err != nil {
			b.complain("close a file of", err)
		}
		b.writing = nil
	}
	b.segments = b.segments[1:]
	b.remove(s.seq)
}

// token says which record next has returned.
type token struct {
	*record
	seq    uint64 // of its segment; 0: it is in memory
	offset int64
}

// next returns the oldest record that is not too old, and nil if there is none. It stays
// until done is called.
func (b *buffer) next(now time.Time) *token {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.tell()
	for {
		t := b.peek()
		if t == nil || !t.at.Before(now.Add(-b.cfg.MaxAge)) {
			return t
		}
		b.lose(tooOld, t.samples)
		b.take(t)
	}
}

func (b *buffer) peek() *token {
	for len(b.segments) > 0 {
		s := b.segments[0]
		r, err := b.read(s)
		if err == nil {
			return &token{r, s.seq, s.waits[0].from}
		}
		b.complain("read", err)
		b.drop(damaged)
	}
	if len(b.memory) > 0 {
		return &token{record: b.memory[0]}
	}
	return nil
}

var errDamaged = errors.New("a record is not what was written")

// read reads the oldest record of the segment.
func (b *buffer) read(s *segment) (*record, error) {
	f, err := os.Open(b.path(s.seq))
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	content := make([]byte, s.waits[0].size)
	if _, err := f.ReadAt(content, s.waits[0].from); err != nil {
		return nil, err
	}
	r, n := parse(content)
	if n != len(content) {
		return nil, errDamaged
	}
	return &r, nil
}

// done forgets the record: it was sent, or nobody wants it. One that has gone in the
// meantime, because there was too much, is no error.
func (b *buffer) done(t *token) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.take(t)
	b.tell()
}

func (b *buffer) take(t *token) {
	if t.seq == 0 {
		if len(b.memory) > 0 && b.memory[0] == t.record {
			b.forget()
		}
		return
	}
	if len(b.segments) == 0 || b.segments[0].seq != t.seq || b.segments[0].waits[0].from != t.offset {
		return
	}
	s := b.segments[0]
	if s.waits = s.waits[1:]; len(s.waits) == 0 {
		b.advance()
		return
	}
	b.writePosition(position{s.seq, s.waits[0].from})
}

// bytes returns what is on the disk, with what was sent of the oldest segment.
func (b *buffer) bytes() (n int64) {
	for _, s := range b.segments {
		n += s.size
	}
	return n
}

func (b *buffer) lose(why loss, samples int) {
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	b.state.lost[why] += uint64(samples)
}

// tell puts down what others may see.
func (b *buffer) tell() {
	records, oldest := len(b.memory), time.Time{}
	if records > 0 {
		oldest = b.memory[0].at
	}
	for i, s := range b.segments {
		if i == 0 {
			oldest = s.waits[0].at
		}
		records += len(s.waits)
	}
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	b.state.bytes, b.state.records, b.state.oldest = b.bytes()+b.held, records, oldest
}

// complain says once that the disk fails.
func (b *buffer) complain(what string, err error) {
	if !b.failing {
		b.failing = true
		b.cfg.Log.Error("Could not "+what+" the push buffer. Samples that wait to be sent are kept in memory, as far as they fit; make room or mend the disk.", "err", err)
	}
}
