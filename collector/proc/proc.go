// Package proc opens a process below a procfs, so that what is read of it is that
// process's or nothing. A pid is given to another process as soon as the one that had
// it is gone; the directory that was opened is not. What is read is bounded, and
// neither the process's directory nor a file in it is reached through a symbolic link.
package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"gpuvigil/collector"
)

// Why a process was not read, beside what the kernel says (fs.ErrPermission).
var (
	ErrGone      = errors.New("the process has ended")
	ErrReused    = fmt.Errorf("%w: its pid is another process's by now", ErrGone)
	ErrTooLarge  = errors.New("the file is larger than it may be")
	ErrMalformed = errors.New("the file is not as the kernel writes it")
)

// maxStat is more than the kernel writes into stat: some fifty numbers and a name of
// at most 64 bytes.
const maxStat = 4 << 10

// Dir is a process's directory. Once the process has ended nothing more can be read
// through it, also if its pid is given to another one.
type Dir struct{ fd int }

// Open opens the process that has the pid and began at start, in clock ticks after
// boot; 0 is whichever has the pid now. The error is ErrGone if there is none, ErrReused
// if the pid is another one's.
func Open(procfs string, pid int, start uint64) (*Dir, error) {
	fd, err := unix.Open(filepath.Join(procfs, strconv.Itoa(pid)), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("look at process %d: %w", pid, Gone(err))
	}
	d := &Dir{fd}
	if start == 0 {
		return d, nil
	}
	if err := d.began(start); err != nil {
		return nil, errors.Join(fmt.Errorf("look at process %d: %w", pid, err), d.Close())
	}
	return d, nil
}

func (d *Dir) began(start uint64) error {
	stat, err := d.Read("stat", maxStat)
	if err != nil {
		return err
	}
	switch began, err := collector.ProcessStart(string(stat)); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case began != start:
		return ErrReused
	}
	return nil
}

// Close lets go of the directory.
func (d *Dir) Close() error { return unix.Close(d.fd) }

// File opens a file of the process, such as maps or net/tcp. Errors of reading it
// should go through Gone.
func (d *Dir) File(name string) (*os.File, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open its %s: %w", name, Gone(err))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Read returns a file of at most limit bytes; ErrTooLarge if it has more.
func (d *Dir) Read(name string, limit int64) (content []byte, err error) {
	f, err := d.File(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("read its %s: %w", name, Gone(err))
	}
	return content, nil
}

// OpenFiles returns how many files the process has open, 0 if this kernel does not tell
// everybody: Linux does from 6.2 on.
func (d *Dir) OpenFiles() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, "fd", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, fmt.Errorf("look at its open files: %w", Gone(err))
	}
	return st.Size, nil
}

// Link returns where a link of the kernel's, such as exe or ns/net, points, without
// following it.
func (d *Dir) Link(name string) (string, error) {
	to := make([]byte, 4096)
	n, err := unix.Readlinkat(d.fd, name, to)
	if err != nil {
		return "", fmt.Errorf("read its link %s: %w", name, Gone(err))
	}
	return string(to[:n]), nil
}

// Root opens the process's root directory as a handle to open files below it. The
// caller closes it.
func (d *Dir) Root() (fd int, err error) {
	fd, err = unix.Openat(d.fd, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open its root directory: %w", Gone(err))
	}
	return fd, nil
}

// Gone says in one way that a process is no more: it shows as a missing directory, as
// a missing file once that is open, and as no such process once a file is. Of other
// errors it leaves out the path, which is the handle's and tells nobody anything.
func Gone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
