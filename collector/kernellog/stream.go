package kernellog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxLine    = 64 << 10 // a longer line is skipped
	maxBacklog = 1 << 20  // bytes of a file that are read when it is first opened
)

// stream reads the lines of something that grows: /dev/kmsg, which gives one
// record at a time, a FIFO, or a log file that is rotated or truncated. It never
// waits.
type stream struct {
	path    string
	file    *os.File
	conn    syscall.RawConn
	readFD  func(fd int, b []byte) (int, error)
	regular bool
	inode   uint64
	offset  int64 // of what was read from the file
	buf     []byte
	rest    []byte // read and not used yet
	skip    bool   // the line at the beginning of rest was too long or not seen from its start
}

func openStream(path string) (*stream, error) {
	s := &stream{path: path, buf: make([]byte, 16<<10), readFD: unix.Read}
	return s, s.open()
}

func (s *stream) open() error {
	file, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", s.path)
	}
	var conn syscall.RawConn
	if err == nil {
		conn, err = file.SyscallConn()
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	s.file, s.conn, s.offset, s.rest, s.skip = file, conn, 0, nil, false
	s.regular, s.inode = info.Mode().IsRegular(), inode(info)
	return nil
}

func inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

func (s *stream) close() error { return s.file.Close() }

// seek goes on where an earlier stream of the same file has stopped, else it
// begins at most so many bytes before the end. What is no file has one place only.
func (s *stream) seek(file uint64, offset, backlog int64) error {
	if !s.regular {
		return nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if file != s.inode || offset > info.Size() {
		offset = max(0, info.Size()-backlog)
		s.skip = offset > 0 && backlog > 0
	}
	s.offset, err = s.file.Seek(offset, io.SeekStart)
	return err
}

// position is where the first line begins that was not given out.
func (s *stream) position() int64 { return s.offset - int64(len(s.rest)) }

// read reads once, without waiting. It returns false if there is nothing.
func (s *stream) read() (bool, error) {
	var n int
	var err error
	raw := s.conn.Read(func(fd uintptr) bool {
		for {
			n, err = s.readFD(int(fd), s.buf)
			if err != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case raw != nil:
		return false, raw
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return s.turn()
	}
	s.offset += int64(n)
	s.rest = append(s.rest, s.buf[:n]...)
	return true, nil
}

// turn looks at the end of a file whether it was rotated or truncated.
func (s *stream) turn() (bool, error) {
	if !s.regular {
		return false, nil
	}
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil // between the old file and the new one
	case err != nil:
		return false, err
	case inode(info) != s.inode:
		old := s.file
		if err := s.open(); err != nil {
			s.file = old
			return false, err
		}
		return true, old.Close()
	case info.Size() < s.offset:
		s.rest, s.skip = nil, false
		s.offset, err = s.file.Seek(0, io.SeekStart)
		return err == nil, err
	}
	return false, nil
}

// line returns the next whole line, without its end. It returns false if there is
// none yet. The line is good until the next call.
func (s *stream) line() ([]byte, bool, error) {
	for {
		if i := bytes.IndexByte(s.rest, '\n'); i >= 0 {
			line := s.rest[:i]
			s.rest = s.rest[i+1:]
			if !s.skip {
				return line, true, nil
			}
			s.skip = false
			continue
		}
		if len(s.rest) > maxLine {
			s.rest, s.skip = nil, true
		}
		s.rest = append([]byte(nil), s.rest...)
		if more, err := s.read(); !more {
			return nil, false, err
		}
	}
}
