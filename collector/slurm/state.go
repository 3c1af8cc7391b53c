package slurm

import (
	"slices"
	"strings"
)

// State is a job's state in Slurm's words: RUNNING, PENDING.
type State string

// ParseState reads a state. Of several, as newer versions tell them, the one that
// takes the job's end first counts; CANCELLED by 1001 is CANCELLED. A state that is
// not known here stays as it is.
func ParseState(words ...string) State {
	var all []string
	for _, w := range words {
		for _, part := range strings.Split(w, "+") {
			if fields := strings.Fields(part); len(fields) > 0 {
				all = append(all, strings.ToUpper(clean(fields[0])))
			}
		}
	}
	if slices.Contains(all, "COMPLETING") {
		return "COMPLETING"
	}
	if len(all) == 0 {
		return ""
	}
	return State(all[0])
}

// Holds reports whether a job in the state has its GPUs.
func (s State) Holds() bool {
	switch s {
	case "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING":
		return true
	}
	return false
}

// Waits reports whether a job in the state is in the queue.
func (s State) Waits() bool {
	switch s {
	case "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD":
		return true
	}
	return false
}

// NodeState is what a node's GPUs can be used for.
type NodeState string

// The states of nodes. What of a drained node is still used is used.
const (
	NodeUsable   NodeState = "usable"
	NodeDrained  NodeState = "drained"
	NodeReserved NodeState = "reserved" // or in maintenance
	NodeBooting  NodeState = "booting"
	NodeOff      NodeState = "powered_down" // by power saving: it can be booted
	NodeDown     NodeState = "down"         // or not responding
	NodeUnknown  NodeState = "unknown"
)

// suffixes are the marks that sinfo puts behind a state.
var suffixes = map[byte]string{
	'*': "NOT_RESPONDING", '~': "POWERED_DOWN", '#': "POWERING_UP", '!': "POWERING_DOWN", '%': "POWERING_DOWN",
	'$': "MAINTENANCE", '@': "REBOOT_REQUESTED", '^': "REBOOT_ISSUED", '-': "PLANNED",
}

// ParseNodeState reads a state of sinfo (drained*, mixed+drain), of scontrol
// (IDLE+DRAIN) or of slurmrestd (several words). The worst of what it says counts.
func ParseNodeState(words ...string) NodeState {
	said := wordsOf(words)
	for _, s := range []struct {
		state NodeState
		words []string
	}{
		{NodeDown, []string{"DOWN", "FAIL", "FAILING", "ERROR"}},
		{NodeDrained, []string{"DRAIN", "DRAINED", "DRAINING", "UNDRAIN", "DRNG"}},
		{NodeBooting, []string{"POWERING_UP", "POWER_UP", "REBOOT_ISSUED", "BOOT", "REBOOT"}},
		{NodeOff, []string{"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWER_SAVING", "POWERED DOWN"}},
		{NodeDown, []string{"NOT_RESPONDING", "NO_RESPOND"}},
		{NodeReserved, []string{"RESERVED", "RESV", "MAINT", "MAINTENANCE"}},
		{NodeUsable, []string{"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "BLOCKED", "ALLOC", "MIX", "COMP"}},
	} {
		if slices.ContainsFunc(s.words, func(w string) bool { return said[w] }) {
			return s.state
		}
	}
	return NodeUnknown
}

// wordsOf takes a state apart.
func wordsOf(words []string) map[string]bool {
	said := map[string]bool{}
	for _, w := range words {
		for _, part := range strings.Split(w, "+") {
			part = strings.TrimSpace(part)
			for len(part) > 0 && suffixes[part[len(part)-1]] != "" {
				said[suffixes[part[len(part)-1]]] = true
				part = part[:len(part)-1]
			}
			said[strings.ToUpper(part)] = true
		}
	}
	return said
}

// isFull reports whether a state says that all CPUs of the node are given to jobs.
func isFull(words ...string) bool {
	said := wordsOf(words)
	return said["ALLOCATED"] || said["ALLOC"]
}

// isPlanned reports whether the scheduler keeps the node for a job that comes first.
func isPlanned(words ...string) bool { return wordsOf(words)["PLANNED"] }
