package movement

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

// maxAddresses bounds what is kept of one namespace.
const maxAddresses = 1 << 16

// maxEvidence is how many addresses are kept for the evidence of a finding.
const maxEvidence = 64

// remotes are the two ends of a namespace's established connections.
type remotes struct {
	local, remote map[netip.Addr]bool
	failed        string
}

func (r *remotes) read(dir *proc.Dir) {
	r.local, r.remote = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, file := range []string{"net/tcp", "net/tcp6"} { // the second is not there without IPv6
		if _, err := read(dir, file, largeFile, r.line); err != nil {
			if reason := failed("net_tcp", err); reason != reasonGone {
				r.failed = reason
			}
		}
	}
}

const established = "01"

// line reads a socket: its number, its own end, the remote end, its state.
func (r *remotes) line(line string) error {
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return errMalformed
	}
	if fields[3] != established {
		return nil // the line of headings among them
	}
	local, ok := endpoint(fields[1])
	remote, alsoOK := endpoint(fields[2])
	if !ok || !alsoOK {
		return errMalformed
	}
	if len(r.remote) == maxAddresses {
		return proc.ErrTooLarge
	}
	r.local[local], r.remote[remote] = true, true
	return nil
}

// endpoint reads "0100007F:1F90": the kernel writes addresses as words of the
// machine's own order.
func endpoint(s string) (netip.Addr, bool) {
	digits, _, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != 4 && len(b) != 16 {
		return netip.Addr{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return a.Unmap(), ok
}

// carrierGrade is shared address space (RFC 6598): clouds and overlays use it inside.
var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// private reports whether the address is of a network that is not the Internet.
func private(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLinkLocalUnicast() || carrierGrade.Contains(a)
}

// others returns the remote addresses that are another machine's.
func (r *remotes) others() []netip.Addr {
	var out []netip.Addr
	for a := range r.remote {
		if !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() && !r.local[a] {
			out = append(out, a)
		}
	}
	return out
}

func (f *facts) addresses() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, id := range f.owned.namespaces {
		for _, a := range f.scene.namespaces[id].remotes.others() {
			all[a] = true
		}
	}
	return all
}

// countRemotes tells nothing if a namespace's connections could not all be read.
func (f *facts) countRemotes() {
	for _, id := range f.owned.namespaces {
		if f.scene.namespaces[id].remotes.failed != "" {
			return
		}
	}
	if len(f.owned.namespaces) == 0 {
		return
	}
	var counts [2]float64
	for a := range f.addresses() {
		if private(a) {
			counts[0]++
		} else {
			counts[1]++
		}
	}
	for i, n := range counts {
		f.readings.SetAt(metric.WorkloadRemotes, i, n)
	}
}

// publicAddresses returns the public addresses, in order; none where the network is not
// the owner's own.
func (f *facts) publicAddresses() []netip.Addr {
	if !f.readings.Has(metric.WorkloadRemotes) {
		return nil
	}
	var out []netip.Addr
	for a := range f.addresses() {
		if !private(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

const (
	networkOfIPv4 = 16 // bits: providers move services within such a network
	networkOfIPv6 = 32 // what a provider is given by its registry
	maxNetworks   = 256
)

// networks returns the networks of addresses that are in order, likewise in order; of
// very many the first ones.
func networks(addresses []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range addresses {
		bits := networkOfIPv6
		if a.Is4() {
			bits = networkOfIPv4
		}
		p := netip.PrefixFrom(a.WithZone(""), bits).Masked()
		if len(out) == 0 || out[len(out)-1] != p {
			if len(out) == maxNetworks {
				break
			}
			out = append(out, p)
		}
	}
	return out
}
