package movement

import (
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

// mostListed is how many open files are counted one by one where the kernel does not
// tell the number: listing more of them takes the process's own time.
const mostListed = 128 << 10

// openFiles is of that process of an owner which has come nearest to its limit.
type openFiles struct {
	told   bool
	open   float64
	limit  float64 // +Inf: none
	failed map[string]bool
}

// nearer reports whether a process is closer to its limit, or has more open where
// neither comes any closer.
func (o *openFiles) nearer(open, limit float64) bool {
	a, b := open/limit, o.open/o.limit
	return !o.told || a > b || a == b && open > o.open
}

func (o *openFiles) fail(reason string) {
	if o.failed == nil {
		o.failed = map[string]bool{}
	}
	o.failed[reason] = true
}

func (s *scene) lookAtOpenFiles(o *owned, dir *proc.Dir) {
	n, err := dir.OpenFiles()
	switch {
	case err == nil && n == 0 && !s.cfg.Privileged:
		o.files.fail("not_enabled")
		return
	case err == nil && n == 0: // who uses a GPU has its device open: the kernel is an old one
		n, err = listOpenFiles(dir)
	}
	if err != nil {
		o.files.fail(failed("fd", err))
		return
	}
	limit, err := openFilesLimit(dir)
	if err != nil {
		o.files.fail(failed("limits", err))
		return
	}
	if open := float64(n); o.files.nearer(open, limit) {
		o.files.told, o.files.open, o.files.limit = true, open, limit
	}
}

// listOpenFiles counts the entries of /proc/PID/fd, which its own user and an
// administrator may list.
func listOpenFiles(dir *proc.Dir) (n int64, err error) {
	list, err := dir.File("fd")
	if err != nil {
		return 0, err
	}
	defer list.Close()
	for n <= mostListed {
		names, err := list.Readdirnames(1024)
		n += int64(len(names))
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, proc.Gone(err)
		}
	}
	return 0, proc.ErrTooLarge
}

// openFilesLimit returns the soft limit of a process, +Inf if it has none.
func openFilesLimit(dir *proc.Dir) (limit float64, err error) {
	limit = math.NaN()
	_, err = read(dir, "limits", smallFile, func(line string) error {
		rest, ok := strings.CutPrefix(line, "Max open files ")
		if !ok {
			return nil
		}
		limit, err = parseSoftLimit(rest)
		return err
	})
	if err == nil && math.IsNaN(limit) {
		err = errMalformed
	}
	return limit, err
}

// parseSoftLimit reads the first column of a line of /proc/PID/limits.
func parseSoftLimit(columns string) (float64, error) {
	soft, _, _ := strings.Cut(strings.TrimSpace(columns), " ")
	if soft == "unlimited" {
		return math.Inf(1), nil
	}
	v, err := strconv.ParseUint(soft, 10, 64)
	if err != nil || v == 0 {
		return 0, errMalformed
	}
	return float64(v), nil
}

// openFiles tells of the process that was nearest, and of what could not be read.
func (f *facts) openFiles() {
	files := &f.owned.files
	for reason := range files.failed {
		f.caveat("open_files", reason)
	}
	if !files.told || !metric.WorkloadOpenFiles.Plausible(files.open) {
		return
	}
	f.readings.Set(metric.WorkloadOpenFiles, files.open)
	if metric.WorkloadOpenFilesLimit.Plausible(files.limit) {
		f.readings.Set(metric.WorkloadOpenFilesLimit, files.limit)
	}
}
