package owner

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector/proc"
)

// maxProcFile bounds what is read of one file of a process: thirteen controllers with
// the longest path that the kernel allows take less.
const maxProcFile = 64 << 10

// readProcess returns the cgroup and the real uid of the process with the pid and
// start time.
func readProcess(procfs string, pid int, start uint64) (where place, err error) {
	none := place{uid: -1}
	dir, err := proc.Open(procfs, pid, start)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	cgroup, err := dir.Read("cgroup", maxProcFile)
	if err != nil {
		return none, err
	}
	p := parseCgroup(string(cgroup))
	if p.kind == kindPod || p.kind == kindContainer {
		p.privileged, err = privileged(dir)
		return p, err // the uid in a container is of nobody on the node
	}
	if p.uid >= 0 {
		return p, nil
	}
	status, err := dir.Read("status", maxProcFile)
	if err != nil {
		return none, err
	}
	if p.uid, err = realUID(string(status)); err != nil {
		return none, err
	}
	return p.orUser(), nil
}

// everyCapability are the capabilities that all kernels of the last ten years have.
const everyCapability = 1<<38 - 1

// privileged reports whether the process has every capability, and has them on the
// node: in a user namespace of its own they are worth nothing outside of it.
func privileged(dir *proc.Dir) (bool, error) {
	status, err := dir.Read("status", maxProcFile)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(status)) {
		rest, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
		if err != nil || mask&everyCapability != everyCapability {
			return false, nil
		}
		users, err := dir.Read("uid_map", maxProcFile)
		if err != nil {
			return false, err
		}
		return slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"}), nil
	}
	return false, nil
}

// orUser is the process's user where its cgroup says nothing. Root is in no user's
// place: what runs as root outside of any known runtime is nobody's in particular.
func (p place) orUser() place {
	if p.kind == "" && p.uid > 0 {
		p.kind = kindUser
	}
	return p
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
