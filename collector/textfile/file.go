package textfile

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"gpuvigil/collector/exposition"
)

// maxAhead is how far a file's time may be in the future: the clocks of network file
// systems are not ours.
const maxAhead = time.Minute

// file is one version of a file.
type file struct {
	info    fs.FileInfo
	uid     int
	content content
	refused string // one of metric.TextfileReason; empty: it is read
	why     string // in words, with refused
	accused string // the last reason of which this version was told by its claim
}

// refusal is why a file is not read.
type refusal struct{ reason string }

func (r refusal) Error() string { return r.reason }

// look returns the file as it is, read again only if it has changed; nil if it is gone.
func (s *Source) look(root *os.Root, name string, info fs.FileInfo, err error, now time.Time) *file {
	if old := s.files[name]; err == nil && old != nil && same(old.info, info) && old.refused != "future" {
		return old
	}
	f := &file{info: info, uid: userOf(info)}
	if err == nil {
		err = f.read(root, name, s.cfg.MaxBytes, now)
	}
	if err == nil {
		return f
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.content, f.refused, f.why = content{}, "unreadable", err.Error()
	var r refusal
	if errors.As(err, &r) {
		f.refused, f.why = r.reason, words[r.reason]
	}
	if old := s.files[name]; old == nil || old.refused != f.refused || !same(old.info, f.info) {
		counted(f.refused).Inc()
		s.tell(name, f.refused, f.why, now)
	}
	return f
}

// same reports whether both are the same version of the same file.
func same(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

// read reads the file. What is no regular file is not opened; one that becomes a pipe
// in between is opened without waiting for it and not read.
func (f *file) read(root *os.Root, name string, limit int64, now time.Time) error {
	if err := f.judge(limit, now); err != nil {
		return err
	}
	opened, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, f.info) {
		return fs.ErrNotExist // replaced in between: the next look sees the new one
	}
	f.info = info
	if err := f.judge(limit, now); err != nil {
		return err
	}
	bounded := &io.LimitedReader{R: opened, N: limit + 1}
	f.content, err = parse(bounded)
	switch {
	case bounded.N == 0:
		return refusal{"too_large"} // it grew
	case errors.Is(err, exposition.ErrCutOff):
		return refusal{"cut_off"}
	case errors.Is(err, exposition.ErrSample), errors.Is(err, exposition.ErrLongLine):
		return refusal{"syntax"}
	}
	return err
}

// judge refuses what may not be read, by what is known of it without reading.
func (f *file) judge(limit int64, now time.Time) error {
	stat, ok := f.info.Sys().(*syscall.Stat_t)
	switch {
	case !f.info.Mode().IsRegular(), !ok, stat.Nlink > 1: // of a second name nobody knows who gave it
		return refusal{"not_regular"}
	case f.info.Size() > limit:
		return refusal{"too_large"}
	case f.info.ModTime().Sub(now) > maxAhead:
		return refusal{"future"} // it would never be old
	}
	f.uid = int(stat.Uid)
	return nil
}

// userOf returns whose the file is; -1 if that is not known.
func userOf(info fs.FileInfo) int {
	if info == nil {
		return -1
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// parse reads a page. A line that is none costs the whole page: it may be half written.
func parse(r io.Reader) (content, error) {
	var c content
	lines := exposition.NewLines(bufio.NewReader(r))
	var labels []exposition.Label
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return content{}, err
		}
		name, rest := exposition.Name(line)
		if name == nil {
			if !blank(line) {
				return content{}, exposition.ErrSample
			}
			continue
		}
		var v float64
		if labels, v, err = exposition.Sample(rest, labels[:0]); err != nil {
			return content{}, err
		}
		c.lay(string(name), labels, v)
	}
}

// blank reports whether the line is a comment or has nothing in it.
func blank(line []byte) bool {
	for _, c := range line {
		switch c {
		case ' ', '\t', '\r':
		default:
			return c == '#'
		}
	}
	return true
}
