package inference

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
		if errors.Is(err, fs.ErrNotExist) {
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

// parseStat reads /proc/PID/stat. A name in it may hold blanks and brackets.
func parseStat(b []byte) (process, bool) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 5 {
		return process{}, false
	}
	var n [4]int
	for i := range n { // ppid, pgrp, session, tty_nr
		v, err := strconv.Atoi(fields[i+1])
		if err != nil {
			return process{}, false
		}
		n[i] = v
	}
	return process{parent: n[0], session: n[2], terminal: n[3] != 0}, true
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
func (s *Sockets) of(pid int) ([]netip.AddrPort, error) {
	inodes, err := s.inodes(pid)
	if err != nil || len(inodes) == 0 {
		return nil, err
	}
	var bound []netip.AddrPort
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		content, err := s.read(pid, table, maxProcFile)
		if err != nil {
			if table == "net/tcp6" && errors.Is(err, fs.ErrNotExist) {
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
	own, err := s.addresses(pid)
	if err != nil {
		return nil, err
	}
	var out []netip.AddrPort
	for _, b := range bound {
		if at, ok := reachable(b, own); ok {
			out = append(out, at)
		}
	}
	return out, nil
}

// inodes returns those of the process's sockets.
func (s *Sockets) inodes(pid int) (map[uint64]bool, error) {
	dir, err := os.Open(filepath.Join(s.ProcFS, strconv.Itoa(pid), "fd"))
	if err != nil {
		return nil, fmt.Errorf("look at the sockets of process %d: %w: run the agent as that user or with CAP_SYS_PTRACE, or name the target in the configuration", pid, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxFDs)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("look at the sockets of process %d: %w", pid, err)
	}
	out := map[uint64]bool{}
	for _, name := range names {
		link, err := os.Readlink(filepath.Join(dir.Name(), name))
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

// listener is a line of /proc/PID/net/tcp in state LISTEN.
type listener struct {
	at    netip.AddrPort
	inode uint64
}

func parseListening(content []byte) []listener {
	var out []listener
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != "0A" {
			continue
		}
		at, ok := parseAddress(f[1])
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if ok && err == nil && inode != 0 {
			out = append(out, listener{at, inode})
		}
	}
	return out
}

// parseAddress reads ADDRESS:PORT as the kernel writes it: in hexadecimal digits, each word of the
// address in the machine's byte order.
func parseAddress(s string) (netip.AddrPort, bool) {
	address, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(address)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || portErr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), true
}

// addresses returns the addresses of the process's network namespace that can be
// reached from here: of this one also the loopback's.
func (s *Sockets) addresses(pid int) ([]netip.Addr, error) {
	theirs, err := os.Readlink(filepath.Join(s.ProcFS, strconv.Itoa(pid), "ns/net"))
	if err != nil {
		return nil, fmt.Errorf("look at the network of process %d: %w", pid, err)
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("look at the agent's own network: %w", err)
	}
	if theirs != ours {
		content, err := s.read(pid, "net/fib_trie", maxProcFile)
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

// parseLocal reads a namespace's own addresses, without the loopback's, from
// /proc/PID/net/fib_trie.
func parseLocal(content []byte) []netip.Addr {
	var out []netip.Addr
	var last netip.Addr
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if a, ok := strings.CutPrefix(text, "|-- "); ok {
			last, _ = netip.ParseAddr(a)
		} else if text == "/32 host LOCAL" && last.IsValid() && !last.IsLoopback() && !slices.Contains(out, last) {
			out = append(out, last)
		}
	}
	return out
}

// reachable turns what a socket is bound to into an address to ask: one that is
// bound to any address is asked at the loopback, or at the first of its own.
func reachable(bound netip.AddrPort, own []netip.Addr) (netip.AddrPort, bool) {
	ip := bound.Addr()
	if ip.IsUnspecified() {
		for _, a := range own {
			if a.IsLoopback() && a.Is4() {
				return netip.AddrPortFrom(a, bound.Port()), true
			}
		}
		for _, a := range own {
			if !a.IsLinkLocalUnicast() {
				return netip.AddrPortFrom(a, bound.Port()), true
			}
		}
		return netip.AddrPort{}, false
	}
	known := slices.Contains(own, ip) || ip.IsLoopback() && slices.ContainsFunc(own, netip.Addr.IsLoopback)
	return bound, known && !ip.IsLinkLocalUnicast()
}

func (s *Sockets) read(pid int, name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(s.ProcFS, strconv.Itoa(pid), name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
