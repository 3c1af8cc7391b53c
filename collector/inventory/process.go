package inventory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gpuvigil/collector"

	"golang.org/x/sys/unix"
)

// errGone is of a process that has ended, or whose number is another's by now.
var errGone = errors.New("the process has ended")

// process is a handle on /proc/PID. Once the process has ended it reads nothing
// more, also if its number is given to another one.
type process struct{ fd int }

// openProcess opens the process that has the pid and began at start, in clock ticks
// after boot; 0 is any.
func openProcess(procfs string, pid int, start uint64) (*process, error) {
	fd, err := unix.Open(filepath.Join(procfs, strconv.Itoa(pid)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("look at process %d: %w", pid, gone(err))
	}
	p := &process{fd}
	if start == 0 {
		return p, nil
	}
	stat, err := p.read("stat", 4<<10)
	if err == nil {
		var began uint64
		if began, err = collector.ProcessStart(string(stat)); err == nil && began != start {
			err = errGone
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at process %d: %w", pid, err), p.close())
	}
	return p, nil
}

func gone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	return err
}

func (p *process) close() error { return unix.Close(p.fd) }

func (p *process) open(name string) (*os.File, error) {
	fd, err := unix.Openat(p.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open its %s: %w", name, gone(err))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// read returns what a file begins with.
func (p *process) read(name string, limit int64) (content []byte, err error) {
	f, err := p.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if content, err = io.ReadAll(io.LimitReader(f, limit)); err != nil {
		return nil, fmt.Errorf("read its %s: %w", name, gone(cause(err)))
	}
	return content, nil
}

// link returns where a link of the kernel's points, without following it.
func (p *process) link(name string) (string, error) {
	to := make([]byte, 4096)
	n, err := unix.Readlinkat(p.fd, name, to)
	if err != nil {
		return "", fmt.Errorf("read its link %s: %w", name, gone(err))
	}
	return string(to[:n]), nil
}

func (p *process) root() (*root, error) {
	r, err := openRoot(p.fd, "root")
	if err != nil {
		return nil, gone(err)
	}
	return r, nil
}

// status are the lines of /proc/PID/status that are looked at.
type status struct {
	parent int
	mapped string // code of libraries that is mapped: another one is loaded if it changes
}

func (p *process) status() (status, error) {
	var st status
	text, err := p.read("status", 16<<10)
	if err != nil {
		return st, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "PPid":
			if st.parent, err = strconv.Atoi(value); err != nil {
				return st, fmt.Errorf("read its status: the number of its parent is %q", value)
			}
		case "VmLib":
			st.mapped = value
		}
	}
	return st, nil
}
