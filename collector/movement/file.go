package movement

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

// What a file may have in bytes. Files of control groups hold a few lines; those of
// sockets and mounts grow with what is on the node.
const (
	smallFile = 64 << 10
	largeFile = 8 << 20
	maxLine   = 16 << 10
)

var errMalformed = errors.New("the file is not as expected")

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
	case errors.Is(err, proc.ErrGone), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH), errors.Is(err, syscall.ENODEV):
		return reasonGone
	case errors.Is(err, fs.ErrPermission):
		reason = reasonDenied
	case errors.Is(err, proc.ErrTooLarge), errors.Is(err, bufio.ErrTooLong):
		reason = reasonTooLarge
	case errors.Is(err, errMalformed), errors.Is(err, proc.ErrMalformed):
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
			return proc.ErrTooLarge
		}
		if err := f(scan.Text()); err != nil {
			return err
		}
	}
	if bounded.N <= 0 {
		return proc.ErrTooLarge
	}
	return scan.Err()
}

// read calls f with the lines of a process's file and returns its number, which for
// files of a namespace is one for each namespace.
func read(dir *proc.Dir, name string, limit int64, f func(line string) error) (inode uint64, err error) {
	file, err := dir.File(name)
	if err != nil {
		return 0, err
	}
	return readFile(file, limit, f)
}

func readLines(root *os.Root, name string, limit int64, f func(line string) error) (inode uint64, err error) {
	file, err := root.Open(name)
	if err != nil {
		return 0, err
	}
	return readFile(file, limit, f)
}

// readFile reads the file's lines and closes it.
func readFile(file *os.File, limit int64, f func(line string) error) (inode uint64, err error) {
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
