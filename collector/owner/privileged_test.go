package owner

import (
	"fmt"
	"testing"
)

func TestPrivilegedContainers(t *testing.T) {
	const (
		all      = "000001ffffffffff"
		usual    = "00000000a80425fb" // Docker's and containerd's default
		ofNode   = "         0          0 4294967295\n"
		ofItsOwn = "         0     100000      65536\n"
	)
	for name, c := range map[string]struct {
		cgroup, capabilities, users string
		want                        bool
	}{
		"every capability on the node":             {inPodA, all, ofNode, true},
		"an older kernel":                          {inPodA, "0000003fffffffff", ofNode, true},
		"the usual ones":                           {inPodA, usual, ofNode, false},
		"every one in a user namespace":            {inPodA, all, ofItsOwn, false},
		"some more":                                {inPodA, "00000000a82425fb", ofNode, false},
		"no container, so nothing to break out of": {"0::/user.slice/user-1000.slice/session-1.scope\n", all, ofNode, false},
		"a status that cannot be understood":       {inPodA, "-", ofNode, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.process(7, 1000, 0, c.cgroup)
			n.write(fmt.Sprintf("Name:\ta\nUid:\t1000\t0\t0\t0\nCapEff:\t%s\n", c.capabilities), "proc", "7", "status")
			n.write(c.users, "proc", "7", "uid_map")
			part := n.sample(n.source())
			if len(part.Attributions) != 1 || part.Attributions[0].Privileged != c.want {
				t.Errorf("told as %+v, want privileged: %v", part.Attributions, c.want)
			}
		})
	}
}
