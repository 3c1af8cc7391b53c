package rules

import (
	"fmt"
	"slices"
)

// Link is a place in a chain: findings of a rule, all of them or those of some causes.
type Link struct {
	Rule   ID
	Causes []string // empty: all
}

// Chain is what one fault shows as: first what tells most of it, then what follows from
// it or went before it. Findings of a chain on the same part of a node that begin
// within minutes of each other are one incident, headed by the first of them in the
// chain's order. Links of one place are equals.
type Chain struct {
	Name  string
	Links [][]Link
}

// chains are the known ones. That a fault is in two of them costs nothing: what began
// beside it decides.
var chains = []Chain{
	{"a GPU that is lost", [][]Link{
		{{IDXid, xids(79, 167)}},
		{{IDXid, xids(62, 119, 120, 143, 158)}},
		{{IDSuspectMonitor, nil}},
		{{IDGPULost, nil}},
		{{IDXid, xids(32, 80, RecoveryXid)}},
		{{IDUnresponsive, []string{"slow_calls", "restarts"}}, {IDPCIeLink, nil}},
	}},
	{"a GPU that is too hot", [][]Link{
		{{IDXid, xids(79)}},
		{{IDGPULost, nil}},
		{{"hot_gpu", nil}},
		{{IDThrottledGPU, []string{"hw_thermal", "sw_thermal", "hw_slowdown"}}},
	}},
	{"memory that fails", [][]Link{
		{{IDXid, xids(48, 95, 140, 171, 172)}},
		{{IDXid, xids(64)}},
		{{IDXid, xids(63, 92, 94, 156, 157, 160, 161, 168, RecoveryXid)}},
		{{IDGPUMemory, nil}},
	}},
	{"a link between GPUs that fails", [][]Link{
		{{IDSXid, []string{"fatal"}}},
		{{IDXid, xids(74, 136, 144, 145, 146, 147, 148, 149, 150, 155)}},
		{{IDXid, xids(108, 137, RecoveryXid)}, {IDSXid, []string{"non_fatal"}}},
		{{IDNVLink, nil}},
		{{IDUnresponsive, []string{"fabric"}}},
	}},
}

// xids are the causes of rule xid for the codes.
func xids(codes ...int) []string {
	var causes []string
	for _, c := range codes {
		causes = append(causes, XidCause(c))
	}
	return causes
}

// XidCause names the cause of rule xid for a code: xid_79.
func XidCause(code int) string { return fmt.Sprintf("xid_%d", code) }

// Chains returns the chains of the book. They must not be modified.
func Chains() []Chain { return chains }

// place is where in the chain findings of the rule and cause are, -1 if they are not.
func (c *Chain) place(rule ID, cause string) int {
	return slices.IndexFunc(c.Links, func(equals []Link) bool {
		return slices.ContainsFunc(equals, func(l Link) bool {
			return l.Rule == rule && (len(l.Causes) == 0 || slices.Contains(l.Causes, cause))
		})
	})
}

// Chained reports whether findings of the two rules and causes may be of one fault, and
// whether those of the first one head it.
func Chained(rule ID, cause string, other ID, otherCause string) (chained, heads bool) {
	for i := range chains {
		a, b := chains[i].place(rule, cause), chains[i].place(other, otherCause)
		if a >= 0 && b >= 0 {
			return true, a < b
		}
	}
	return false, false
}
