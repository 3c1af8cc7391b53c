package inventory

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector/proc"
)

// The bounds of looking for listening sockets.
const (
	maxTable     = 4 << 20
	maxListeners = 1024 // of one table
	maxOpenFiles = 16384
)

// The scopes of an address that a process listens at, from the widest.
const (
	scopeAny      = "any"
	scopePublic   = "public"
	scopePrivate  = "private"
	scopeLoopback = "loopback"
)

var scopes = []string{scopeAny, scopePublic, scopePrivate, scopeLoopback}

// wider returns the scope from which more can reach a port. An empty one is unknown.
func wider(a, b string) string {
	for _, s := range scopes {
		if s == a || s == b {
			return s
		}
	}
	return ""
}

// listener is a socket that waits for connections.
type listener struct {
	port  int
	scope string
	inode uint64
}

// readListeners reads the text of /proc/PID/net/tcp or tcp6. The kernel lists the
// sockets that listen first: the rest, which may be a hundred thousand, is left.
func readListeners(r io.Reader) ([]listener, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxTable))
	var out []listener
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || !strings.HasSuffix(fields[0], ":") {
			continue // the heading
		}
		const listening = "0A"
		if fields[3] != listening || len(out) == maxListeners {
			break
		}
		address, err := parseAddress(fields[1])
		if err != nil {
			return nil, err
		}
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read a listening socket: its inode is %q", fields[9])
		}
		out = append(out, listener{int(address.Port()), scopeOf(address.Addr()), inode})
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("read the listening sockets: %w", proc.Gone(err))
	}
	return out, nil
}

// parseAddress reads 0100007F:1F90: words of four bytes in the machine's order.
func parseAddress(text string) (netip.AddrPort, error) {
	digits, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(digits)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, fmt.Errorf("read a listening socket: its address is %q", text)
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	address, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(address.Unmap(), uint16(number)), nil
}

// shared is the range that carriers and clusters use within themselves (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

func scopeOf(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return scopeAny
	case a.IsLoopback():
		return scopeLoopback
	case a.IsPrivate(), a.IsLinkLocalUnicast(), shared.Contains(a):
		return scopePrivate
	}
	return scopePublic
}

// listeners returns the sockets that listen in the process's network namespace,
// whoever holds them.
func (p *process) listeners() ([]listener, error) {
	var all []listener
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		f, err := p.File(table)
		if errors.Is(err, proc.ErrGone) && table == "net/tcp6" {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		found, err := readListeners(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// holds returns those of the sockets that the process has open.
func (p *process) holds(sockets []listener) ([]listener, error) {
	if len(sockets) == 0 {
		return nil, nil
	}
	f, err := p.File("fd")
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(maxOpenFiles)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("list its open files: %w", proc.Gone(err))
	}
	open := map[uint64]bool{}
	for _, name := range names {
		to, err := p.Link("fd/" + name)
		switch {
		case errors.Is(err, proc.ErrGone):
			continue // closed meanwhile
		case err != nil:
			return nil, err
		}
		if number, ok := strings.CutPrefix(to, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); err == nil {
				open[inode] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(sockets), func(l listener) bool { return !open[l.inode] }), nil
}
