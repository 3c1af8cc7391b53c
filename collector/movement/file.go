package movement

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// What a file may have in bytes. Files of control groups hold a few lines; those of
// sockets and mounts grow with what is on the node.
const (
	smallFile = 64 << 10
	largeFile = 8 << 20
	maxLine   = 16 << 10
)

var (
	errTooLarge  = errors.New("the file is larger than it may be")
	errMalformed = errors.New("the file is not as expected")
)

// Reasons that a read failed for.
const (
	reasonGone       = "gone"
	reasonDenied     = "denied"
	reasonTooLarge   = "too_large"
	reasonMalformed  = "malformed"
	reasonUnreadable = "unreadable"
)

// failed counts the error of a read and returns its reason. A process or group that
// is not there any more is no error.
func failed(file string, err error) string {
	reason := reasonUnreadable
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH), errors.Is(err, syscall.ENODEV):
		return reasonGone
	case errors.Is(err, fs.ErrPermission):
		reason = reasonDenied
	case errors.Is(err, errTooLarge), errors.Is(err, bufio.ErrTooLong):
		reason = reasonTooLarge
	case errors.Is(err, errMalformed):
		reason = reasonMalformed
	}
	vm.GetOrCreateCounter(metric.MovementErrors.Series(file, reason)).Inc()
	return reason
}

// lines calls f with each line of the file, and fails on a file above the limit.
func lines(r io.Reader, limit int64, f func(line string) error) error {
	bounded := &io.LimitedReader{R: r, N: limit + 1}
	scan := bufio.NewScanner(bounded)
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		if bounded.N <= 0 {
			return errTooLarge
		}
		if err := f(scan.Text()); err != nil {
			return err
		}
	}
	if bounded.N <= 0 {
		return errTooLarge
	}
	return scan.Err()
}

// processDir is a directory below /proc that was opened once: a file in it is that
// process's, or there is none. Its pid may be another process's by then.
type processDir struct{ root *os.Root }

// openProcess opens the process that has the pid and began at the clock tick; 0 is
// any.
func openProcess(procfs string, pid int, start uint64) (*processDir, error) {
	root, err := os.OpenRoot(filepath.Join(procfs, strconv.Itoa(pid)))
	if err != nil {
		return nil, err
	}
	p := &processDir{root}
	if start != 0 {
		began, err := p.start()
		if err == nil && began != start {
			err = fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
		}
		if err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return p, nil
}

func (p *processDir) close() {
	p.root.Close() // nothing was written
}

// read calls f with the file's lines and its number, which for files of a namespace
// is one for each namespace.
func (p *processDir) read(name string, limit int64, f func(line string) error) (inode uint64, err error) {
	return readLines(p.root, name, limit, f)
}

func readLines(root *os.Root, name string, limit int64, f func(line string) error) (inode uint64, err error) {
	file, err := root.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return inodeOf(info), lines(file, limit, f)
}

// inodeOf returns the file's number, 0 if it has none.
func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// start returns when the process began, in clock ticks after boot.
func (p *processDir) start() (uint64, error) {
	var all strings.Builder
	if _, err := p.read("stat", smallFile, func(line string) error {
		all.WriteString(line)
		all.WriteByte(' ')
		return nil
	}); err != nil {
		return 0, err
	}
	return parseStart(all.String())
}

func parseStart(stat string) (uint64, error) {
	start, err := collector.ProcessStart(stat)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return start, nil
}

// keyed reads lines of a name and a number, as most files of control groups have
// them. Names that f does not want it ignores.
func keyed(f func(name string, value uint64)) func(string) error {
	return func(line string) error {
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return nil
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64); err == nil {
			f(strings.TrimSuffix(name, ":"), v)
		}
		return nil
	}
}
