package inventory

import (
	"fmt"
	"strconv"
	"strings"

	"gpuvigil/collector/proc"
)

// process is a handle on /proc/PID.
type process struct{ *proc.Dir }

// openProcess opens the process that has the pid and began at start, in clock ticks
// after boot; 0 is any.
func openProcess(procfs string, pid int, start uint64) (*process, error) {
	dir, err := proc.Open(procfs, pid, start)
	if err != nil {
		return nil, err
	}
	return &process{dir}, nil
}

func (p *process) root() (*root, error) {
	fd, err := p.Root()
	if err != nil {
		return nil, err
	}
	return &root{fd}, nil
}

// maxStatus is more than the kernel writes into status.
const maxStatus = 64 << 10

// status are the lines of /proc/PID/status that are looked at.
type status struct {
	parent int
	mapped string // code of libraries that is mapped: another one is loaded if it changes
}

func (p *process) status() (status, error) {
	var st status
	text, err := p.Read("status", maxStatus)
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
