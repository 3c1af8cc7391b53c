package push

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// segment is a file of records, one behind the other. Only the process that made it
// writes to it.
type segment struct {
	seq   uint64
	size  int64   // up to the end of its last whole record
	waits []place // the records that are not sent yet, oldest first
}

// place is where in a segment a record is.
type place struct {
	from, size int64
	at         time.Time
	samples    int
}

func (s *segment) samples() (n int) {
	for _, p := range s.waits {
		n += p.samples
	}
	return n
}

func (s *segment) newest() time.Time { return s.waits[len(s.waits)-1].at }

// add notes a record that is behind all others.
func (s *segment) add(r *record, waits bool) {
	if waits {
		s.waits = append(s.waits, place{s.size, r.size(), r.at, r.samples})
	}
	s.size += r.size()
}

const suffix = ".seg"

func (b *buffer) path(seq uint64) string {
	return filepath.Join(b.cfg.Dir, fmt.Sprintf("%016x%s", seq, suffix))
}

// load finds what an earlier process has left. What cannot be read costs only itself.
func (b *buffer) load() error {
	if err := os.MkdirAll(b.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the push buffer: %w", err)
	}
	entries, err := os.ReadDir(b.cfg.Dir) // in the order of their names, which is that of time
	if err != nil {
		return fmt.Errorf("read the directory of the push buffer: %w", err)
	}
	at := b.readPosition()
	b.seq = at.seq // also when its file has gone: a number must not come twice
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		seq, err := strconv.ParseUint(name, 16, 64)
		if !ok || err != nil || len(name) != 16 {
			continue
		}
		b.seq = max(b.seq, seq)
		if seq < at.seq {
			b.remove(seq) // it was sent
			continue
		}
		if s := b.scan(seq, at); len(s.waits) > 0 {
			b.segments = append(b.segments, s)
		} else {
			b.remove(seq)
		}
	}
	return nil
}

// scan reads a segment. Behind a record that is damaged nothing can be found any more.
func (b *buffer) scan(seq uint64, sent position) *segment {
	s := &segment{seq: seq}
	content, err := os.ReadFile(b.path(seq))
	if err != nil {
		b.complain("read", err)
		b.lose(damaged, 1)
		return s
	}
	for int64(len(content)) > s.size {
		r, n := parse(content[s.size:])
		if n == 0 {
			b.lose(damaged, 1) // how many samples there were is not known
			break
		}
		s.add(&r, seq != sent.seq || s.size >= sent.offset)
	}
	return s
}

func (b *buffer) remove(seq uint64) {
	if err := os.Remove(b.path(seq)); err != nil && !errors.Is(err, os.ErrNotExist) {
		b.complain("remove", err)
	}
}

// position is up to where everything was sent.
type position struct {
	seq    uint64
	offset int64
}

// positionName is the file that holds the position. It is a hint: a process that is
// killed before it is written sends again what was sent, which receivers take for what it
// is, the same sample.
const positionName = "position"

const positionSize = 8 + 8 + 4

func (b *buffer) readPosition() (p position) {
	content, err := os.ReadFile(filepath.Join(b.cfg.Dir, positionName))
	if err != nil || len(content) != positionSize || crc32.Checksum(content[:16], castagnoli) != binary.LittleEndian.Uint32(content[16:]) {
		return position{}
	}
	return position{binary.LittleEndian.Uint64(content), int64(binary.LittleEndian.Uint64(content[8:]))}
}

func (b *buffer) writePosition(p position) {
	content := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, p.seq), uint64(p.offset))
	content = binary.LittleEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
	f, err := os.OpenFile(filepath.Join(b.cfg.Dir, positionName), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt(content, 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.complain("note what was sent", err)
	}
}
