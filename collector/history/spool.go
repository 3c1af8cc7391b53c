package history

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// spool keeps samples on disk by window. Its files are in a directory of its own.
type spool struct {
	dir     string
	files   map[int64]*spooled
	pending []int64 // windows that were not read yet, in order; nil until the first is
	started bool
}

type spooled struct {
	file *os.File
	out  *bufio.Writer
}

// record is one sample of a numbered series.
type record struct {
	id uint32
	point
}

const (
	recordSize = 4 + 8 + 8
	// maxWindows bounds the files that are open at once: at steps of a minute 150 days.
	maxWindows = 600
)

func newSpool() (*spool, error) {
	dir, err := os.MkdirTemp("", "gpuvigil-backtest-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory for samples in the order of time: %w: point TMPDIR at one that can be written", err)
	}
	return &spool{dir: dir, files: map[int64]*spooled{}}, nil
}

func (s *spool) write(window int64, r record) error {
	f := s.files[window]
	if f == nil {
		if len(s.files) >= maxWindows {
			return fmt.Errorf("its samples lie further apart than %d windows of %d steps: choose a time with --from and --to, or a longer --step", maxWindows, fileWindow)
		}
		file, err := os.OpenFile(filepath.Join(s.dir, strconv.FormatInt(window, 10)), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("keep samples in a temporary file: %w", err)
		}
		f = &spooled{file, bufio.NewWriterSize(file, 16<<10)}
		s.files[window] = f
	}
	var b [recordSize]byte
	binary.LittleEndian.PutUint32(b[:], r.id)
	binary.LittleEndian.PutUint64(b[4:], uint64(r.ms))
	binary.LittleEndian.PutUint64(b[12:], math.Float64bits(r.v))
	if _, err := f.out.Write(b[:]); err != nil {
		return fmt.Errorf("keep samples in a temporary file: %w: point TMPDIR at a directory with more space", err)
	}
	return nil
}

func (s *spool) flush() error {
	for _, f := range s.files {
		if err := f.out.Flush(); err != nil {
			return fmt.Errorf("keep samples in a temporary file: %w: point TMPDIR at a directory with more space", err)
		}
	}
	return nil
}

// next returns the windows one after the other.
func (s *spool) next() (int64, bool) {
	if !s.started {
		s.pending, s.started = slices.Sorted(maps.Keys(s.files)), true
	}
	if len(s.pending) == 0 {
		return 0, false
	}
	window := s.pending[0]
	s.pending = s.pending[1:]
	return window, true
}

// read calls each with the samples of a window, in the order of the file.
func (s *spool) read(window int64, each func(record) error) error {
	f := s.files[window].file
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read samples from a temporary file: %w", err)
	}
	in := bufio.NewReaderSize(f, bufferSize)
	for {
		var b [recordSize]byte
		if _, err := io.ReadFull(in, b[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read samples from a temporary file: %w", err)
		}
		r := record{binary.LittleEndian.Uint32(b[:]), point{int64(binary.LittleEndian.Uint64(b[4:])), math.Float64frombits(binary.LittleEndian.Uint64(b[12:]))}}
		if err := each(r); err != nil {
			return err
		}
	}
}

func (s *spool) close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.file.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
