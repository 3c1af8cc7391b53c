package inventory

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// maxAncestors bounds the search for the process that holds a worker's port.
const maxAncestors = 4

// tables are the sockets that listen, by network namespace. To list those of one
// namespace takes the kernel milliseconds, and many processes share it.
type tables struct {
	procfs    string
	low, high int // ports from here to there are chosen by the kernel

	mu sync.Mutex
	of map[string][]listener
}

func newTables(procfs string) *tables {
	t := &tables{procfs: procfs, of: map[string][]listener{}}
	t.low, t.high = chosenPorts(procfs)
	return t
}

// in returns the sockets of a process's namespace, but those whose port the kernel
// chose: that is how the ranks of a job find each other.
func (t *tables) in(namespace string, p *process) ([]listener, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, ok := t.of[namespace]; ok {
		return found, nil
	}
	found, err := p.listeners()
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(l listener) bool { return l.port >= t.low && l.port <= t.high })
	t.of[namespace] = found
	return found, nil
}

// serves returns the ports that the process waits at, or that the processes do
// which it was started by and which run the same program: a server of models leaves
// the GPU to its workers.
func (p *process) serves(t *tables) ([]listener, error) {
	network, err := p.Link("ns/net")
	if err != nil {
		return nil, err
	}
	sockets, err := t.in(network, p)
	if err != nil {
		return nil, err
	}
	found, err := p.holds(sockets)
	if err != nil {
		return nil, err
	}
	program, err := p.Link("exe")
	if err != nil {
		return nil, err
	}
	st, err := p.status()
	for range maxAncestors {
		if err != nil || st.parent <= 1 {
			break
		}
		var more []listener
		if more, st, err = servedBy(t.procfs, st.parent, program, network, sockets); err == nil {
			found = append(found, more...)
		}
	}
	return found, nil
}

// errOther is of a parent that is another program: what it does is its own.
var errOther = errors.New("another program")

func servedBy(procfs string, pid int, program, network string, sockets []listener) (found []listener, st status, err error) {
	p, err := openProcess(procfs, pid, 0)
	if err != nil {
		return nil, st, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	exe, exeErr := p.Link("exe")
	ns, nsErr := p.Link("ns/net")
	if err := errors.Join(exeErr, nsErr); err != nil {
		return nil, st, err
	}
	if exe != program || ns != network {
		return nil, st, errOther
	}
	if found, err = p.holds(sockets); err != nil {
		return nil, st, err
	}
	st, err = p.status()
	return found, st, err
}

// chosenPorts is the range from which the kernel gives ports to those who ask for
// any.
func chosenPorts(procfs string) (low, high int) {
	text, err := os.ReadFile(procfs + "/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		if n, err := fmt.Sscan(string(text), &low, &high); err == nil && n == 2 {
			return low, high
		}
	}
	return 32768, 60999 // the kernel's default
}
