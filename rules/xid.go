package rules

import "strings"

// XidClass groups Xid codes by what they ask of the node's owner.
type XidClass string

// The classes, from the mildest.
const (
	XidFollowOn XidClass = "follow-on" // a consequence of another error; never told alone
	XidNote     XidClass = "info"      // worth knowing
	XidApp      XidClass = "app"       // the application's fault: only it has to be restarted
	XidWatch    XidClass = "watch"     // look at it in working hours, more so if it repeats
	XidReset    XidClass = "reset"     // the GPU must be drained and reset
	XidFabric   XidClass = "fabric"    // the link between GPUs is broken
	XidNode     XidClass = "node"      // the node must be rebooted or repaired
)

// Severity returns how urgent errors of the class are.
func (c XidClass) Severity() Severity {
	switch c {
	case XidReset, XidFabric, XidNode:
		return Page
	case XidWatch:
		return Ticket
	default:
		return Info
	}
}

// Xid is what is known of one Xid code.
type Xid struct {
	Class    XidClass
	Severity Severity
	Meaning  string // a clause that goes on after "Xid 79: "
	Action   string // the first thing to do, in the imperative
}

// Lost reports whether the code says that the GPU is gone from the bus.
func Lost(code int) bool { return code == 79 }

// NVLink5 reports whether the code is one of those whose severity is in the
// message: "Nonfatal" or "Fatal".
func NVLink5(code int) bool { return code >= 144 && code <= 150 }

// XidInfo returns what is known of a code. A code that the book does not know is
// to be watched.
func XidInfo(code int) Xid {
	for i := range xidBook {
		for _, c := range xidBook[i].codes {
			if c == code {
				return xidBook[i].entry()
			}
		}
	}
	return xidRow{class: XidWatch, meaning: "error that this release does not know", action: askVendor}.entry()
}

// RecoveryXid tells that the recovery which the driver recommends has changed.
const RecoveryXid = 154

// XidOf returns what is known of an error with its message. For NVLink 5 errors
// the message tells the severity; without one they count as fatal, because a
// driver that tells nothing else reports only what is critical. For a changed
// recovery the new recommendation decides.
func XidOf(code int, message string) Xid {
	e := XidInfo(code)
	if r := recoveryOf(message); r != nil && code == RecoveryXid {
		e.Class, e.Severity, e.Action = r.class, r.severity, r.action
	}
	if NVLink5(code) && strings.Contains(message, "Nonfatal") {
		e.Class, e.Severity = XidNote, Info
		e.Meaning += ", not fatal"
		e.Action = "Nothing now; watch whether it repeats on the same link."
	}
	return e
}

type xidRow struct {
	codes   []int
	class   XidClass
	meaning string
	action  string
}

func (r xidRow) entry() Xid {
	return Xid{Class: r.class, Severity: r.class.Severity(), Meaning: r.meaning, Action: r.action}
}

const (
	restartApp  = "Restart the application; if other applications hit it on the same GPU, drain the GPU."
	resetGPU    = "Drain the GPU and reset it; if the error comes back, have the GPU replaced."
	rebootNode  = "Drain the node and power-cycle it; the second time in 30 days, have the GPU replaced."
	checkNVLink = "Drain the node, reset the GPUs of the fabric together, check cables and the fabric manager."
	askVendor   = "Collect a vendor bug report and ask the vendor."
	nothing     = "Nothing: no action is needed."
)
