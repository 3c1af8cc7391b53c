package movement

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector/proc"
	"gpuvigil/internal/metric"
)

// devFile has a number of its own in each network namespace, and everybody may look
// at it: the namespace's own file (ns/net) is for those who may trace the process.
const devFile = "net/dev"

// namespace is a network namespace that is not the host's.
type namespace struct {
	users    map[*owned]bool
	received map[string]uint64 // by interface
	sent     map[string]uint64
	failed   string // why it could not be read
	remotes  remotes
}

func (s *scene) lookAtNetwork(o *owned, dir *proc.Dir) {
	n := &namespace{users: map[*owned]bool{}, received: map[string]uint64{}, sent: map[string]uint64{}}
	inode, err := read(dir, devFile, smallFile, n.device)
	switch {
	case s.hostNet == 0: // whose it is cannot be told
		o.unknownNet = reasonUnreadable
		return
	case inode == 0:
		if reason := failed("net_dev", err); reason != reasonGone {
			o.unknownNet = reason
		}
		return
	}
	if inode == s.hostNet {
		o.inHost = true
		return
	}
	if !slices.Contains(o.namespaces, inode) {
		o.namespaces = append(o.namespaces, inode)
	}
	if known := s.namespaces[inode]; known != nil {
		known.users[o] = true
		return
	}
	if err != nil {
		n.failed = failed("net_dev", err)
	}
	n.remotes.read(dir)
	n.users[o] = true
	s.namespaces[inode] = n
}

// device reads a line of net/dev. No blank needs to follow the colon, and a name may
// hold one: it ends at the last.
func (n *namespace) device(line string) error {
	at := strings.LastIndexByte(line, ':')
	if at < 0 {
		return nil // the two lines of headings
	}
	name, fields := strings.TrimSpace(line[:at]), strings.Fields(line[at+1:])
	if len(fields) < 16 {
		return errMalformed
	}
	received, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return errMalformed
	}
	sent, err := strconv.ParseUint(fields[8], 10, 64)
	if err != nil {
		return errMalformed
	}
	n.received[name], n.sent[name] = received, sent
	return nil
}

// carriers are the beginnings of names of interfaces whose bytes another one counts,
// too: bridges and what is plugged into them, bonds, tunnels.
var carriers = []string{"docker", "br-", "veth", "virbr", "cni", "cbr", "bond", "team", "dummy", "ifb", "tunl", "sit", "gre", "ip6tnl", "vxlan", "flannel", "cali"}

// counted reports whether the interface's bytes count: it is not loopback, and not
// one whose bytes are those of another in the namespace.
func (n *namespace) counted(name string) bool {
	if name == "lo" {
		return false
	}
	if base, _, vlan := strings.Cut(name, "."); vlan {
		if _, there := n.received[base]; there {
			return false
		}
	}
	return !slices.ContainsFunc(carriers, func(c string) bool { return strings.HasPrefix(name, c) })
}

// network tells what the owner's own namespaces moved and whom they talk to.
func (f *facts) network() {
	switch {
	case f.unknownNet != "":
		f.caveat("network", f.unknownNet)
		return
	case f.inHost:
		f.caveat("network", "host_network")
		return
	}
	for _, id := range f.owned.namespaces {
		n := f.scene.namespaces[id]
		if len(n.users) > 1 {
			f.caveat("network", "shared_network")
			return
		}
		if n.failed != "" {
			f.caveat("network", n.failed)
			return
		}
		if n.remotes.failed != "" {
			f.caveat("remotes", n.remotes.failed)
		}
	}
	for _, id := range f.owned.namespaces {
		n := f.scene.namespaces[id]
		f.tally.tell(metric.WorkloadNetworkBytes, true)
		for at, counters := range []map[string]uint64{n.received, n.sent} {
			for _, name := range slices.Sorted(maps.Keys(counters)) {
				if n.counted(name) {
					// In between another owner may have joined the namespace, or its number be another one's.
					f.tally.addExclusive(metric.WorkloadNetworkBytes, at, counterOf("net", id, name), counters[name])
				}
			}
		}
	}
	f.countRemotes()
}
