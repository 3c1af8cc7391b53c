package owner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"gpuvigil/collector"
)

// maxProcFile bounds what is read of one file of a process: thirteen controllers with
// the longest path that the kernel allows take less.
const maxProcFile = 64 << 10

// Why a process could not be read.
var (
	errVanished = errors.New("the process has ended")
	errReused   = errors.New("the pid is another process's by now")
)

// readProcess returns the cgroup and the real uid of the process with the pid and
// start time. All files are read through one open directory, which stays that of the
// process when its pid is given to another one.
func readProcess(procfs string, pid int, start uint64) (place, error) {
	none := place{uid: -1}
	dir, err := os.OpenRoot(filepath.Join(procfs, strconv.Itoa(pid)))
	if err != nil {
		return none, gone(err)
	}
	defer dir.Close()
	stat, err := readIn(dir, "stat")
	if err != nil {
		return none, gone(err)
	}
	began, err := collector.ProcessStart(stat)
	if err != nil {
		return none, err
	}
	if began != start {
		return none, errReused
	}
	cgroup, err := readIn(dir, "cgroup")
	if err != nil {
		return none, gone(err)
	}
	p := parseCgroup(cgroup)
	if p.uid >= 0 || p.kind == kindPod || p.kind == kindContainer {
		return p, nil // the uid in a container is of nobody on the node
	}
	status, err := readIn(dir, "status")
	if err != nil {
		return none, gone(err)
	}
	if p.uid, err = realUID(status); err != nil {
		return none, err
	}
	return p.orUser(), nil
}

// orUser is the process's user where its cgroup says nothing. Root is in no user's
// place: what runs as root outside of any known runtime is nobody's in particular.
func (p place) orUser() place {
	if p.kind == "" && p.uid > 0 {
		p.kind = kindUser
	}
	return p
}

// gone says in one way that a process is no more: it shows as a missing directory,
// or, once that is open, as no such process.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return errVanished
	}
	return err
}

func readIn(dir *os.Root, name string) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readBounded(f, maxProcFile)
}

func readBounded(r io.Reader, limit int64) (string, error) {
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", err
	}
	if int64(len(content)) > limit {
		return "", fmt.Errorf("it is larger than %d bytes", limit)
	}
	return string(content), nil
}

// realUID reads the first number of the line Uid in /proc/PID/status.
func realUID(status string) (int, error) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		if fields := strings.Fields(rest); len(fields) > 0 {
			if uid := number(fields[0]); uid >= 0 {
				return uid, nil
			}
		}
		break
	}
	return -1, errors.New("read the user: the process's status file has no line Uid with a number")
}
