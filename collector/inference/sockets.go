package inference

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector/proc"
)

// Bounds of what is read of other processes.
const (
	maxProcFile  = 4 << 20 // bytes of a table of sockets
	maxSmallFile = 64 << 10
	maxFDs       = 1 << 14 // of one process
	maxAncestors = 4
	maxFamily    = 64 // processes
	maxAddresses = 64
)

// Sockets finds the addresses at which processes listen. It reads the links in
// /proc/PID/fd, which needs the processes' user or CAP_SYS_PTRACE.
type Sockets struct {
	ProcFS string
}

// process is what is read of each process to know its relatives.
type process struct {
	pid, parent, session int
	terminal             bool
}

// Listening returns the addresses at which each process or its relatives listen, as
// far as this machine can reach them, in order. A server's API is often in a
// process beside the one on the GPU: its ancestors in the same cgroup and their
// children are relatives. What could be found is there beside an error.
func (s *Sockets) Listening(pids []int) (map[int][]netip.AddrPort, error) {
	all, err := s.processes()
	if err != nil {
		return nil, err
	}
	out := map[int][]netip.AddrPort{}
	var errs []error
	for _, pid := range pids {
		if out[pid], err = s.listening(all, pid); err != nil {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

func (s *Sockets) listening(all map[int]process, pid int) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	var errs []error
	for _, relative := range s.relatives(all, pid) {
		found, err := s.of(relative)
		if errors.Is(err, proc.ErrGone) {
			continue // it has ended meanwhile
		}
		if err != nil {
			errs = append(errs, err)
		}
		out = append(out, found...)
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	out = slices.Compact(out)
	return out[:min(len(out), maxAddresses)], errors.Join(errs...)
}

// processes lists the processes by pid.
func (s *Sockets) processes() (map[int]process, error) {
	dir, err := os.Open(s.ProcFS)
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the processes in %s: %w", s.ProcFS, err)
	}
	all := map[int]process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		content, err := s.read(pid, "stat", maxSmallFile)
		if err != nil {
			continue // it has ended meanwhile
		}
		if p, ok := parseStat(content); ok {
			p.pid = pid
			all[pid] = p
		}
	}
	return all, nil
}

// relatives returns the process, its ancestors and their children, as far as they
// are in its cgroup. A shell at a terminal is no ancestor: its children have
// nothing to do with each other.
func (s *Sockets) relatives(all map[int]process, pid int) []int {
	cgroup, err := s.read(pid, "cgroup", maxSmallFile)
	if err != nil {
		return []int{pid}
	}
	same := func(other int) bool {
		c, err := s.read(other, "cgroup", maxSmallFile)
		return err == nil && bytes.Equal(c, cgroup)
	}
	line := []int{pid}
	for p, ok := all[all[pid].parent]; ok && len(line) <= maxAncestors && p.pid > 0; p, ok = all[p.parent] {
		if p.terminal && p.session == p.pid || !same(p.pid) {
			break
		}
		line = append(line, p.pid)
	}
	out := slices.Clone(line)
	for _, p := range all {
		if slices.Contains(line, p.parent) && !slices.Contains(out, p.pid) && len(out) < maxFamily && same(p.pid) {
			out = append(out, p.pid)
		}
	}
	return out
}

// of returns the addresses at which one process listens.
func (s *Sockets) of(pid int) (found []netip.AddrPort, err error) {
	dir, err := proc.Open(s.ProcFS, pid, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	inodes, err := inodesOf(dir)
	if err != nil && !errors.Is(err, proc.ErrGone) {
		err = fmt.Errorf("look at the sockets of process %d: %w: run the agent as that user or with CAP_SYS_PTRACE, or name the target in the configuration", pid, err)
	}
	if err != nil || len(inodes) == 0 {
		return nil, err
	}
	var bound []netip.AddrPort
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		content, err := begin(dir, table, maxProcFile)
		if err != nil {
			if table == "net/tcp6" && errors.Is(err, proc.ErrGone) {
				continue // a kernel without IPv6
			}
			return nil, err
		}
		for _, l := range parseListening(content) {
			if inodes[l.inode] {
				bound = append(bound, l.at)
			}
		}
	}
	own, err := addressesOf(dir)
	if err != nil {
		return nil, err
	}
	for _, b := range bound {
		if at, ok := reachable(b, own); ok {
			found = append(found, at)
		}
	}
	return found, nil
}

// inodesOf returns those of the process's sockets.
func inodesOf(dir *proc.Dir) (map[uint64]bool, error) {
	f, err := dir.File("fd")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxFDs)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list its open files: %w", proc.Gone(err))
	}
	out := map[uint64]bool{}
	for _, name := range names {
		link, err := dir.Link("fd/" + name)
		if err != nil {
			continue // it was closed meanwhile
		}
		number, isSocket := strings.CutPrefix(link, "socket:[")
		if !isSocket {
			continue
		}
		if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); err == nil {
			out[inode] = true
		}
	}
	return out, nil
}

// addressesOf returns the addresses of the process's network namespace that can be
// reached from here: of this one also the loopback's.
func addressesOf(dir *proc.Dir) ([]netip.Addr, error) {
	theirs, err := dir.Link("ns/net")
	if err != nil {
		return nil, err
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("look at the agent's own network: %w", err)
	}
	if theirs != ours {
		content, err := begin(dir, "net/fib_trie", maxProcFile)
		return parseLocal(content), err
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range interfaces {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out, nil
}

func (s *Sockets) read(pid int, name string, limit int64) (content []byte, err error) {
	dir, err := proc.Open(s.ProcFS, pid, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Read(name, limit)
}

// begin returns what a file of the process begins with: of a table of sockets that is
// longer the rest is left, as the kernel lists those that listen first.
func begin(dir *proc.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.File(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("read its %s: %w", name, proc.Gone(err))
	}
	return content, nil
}
