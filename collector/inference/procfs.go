package inference

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

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
