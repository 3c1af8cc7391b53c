package rules

import "strings"

// recovery is what the driver recommends with Xid 154: it knows best what the GPU
// needs.
type recovery struct {
	words    string // the driver's
	class    XidClass
	severity Severity
	action   string
}

var recoveries = []recovery{
	{"None", XidNote, Info, nothing},
	{"GPU Reset Required", XidReset, Page, resetGPU},
	{"Node Reboot Required", XidNode, Page, "Drain the node and reboot it; if the error comes back, have the GPU replaced."},
	{"Drain P2P", XidWatch, Ticket, "Move jobs that use several GPUs off this one, and reset it when its other jobs have ended."},
	{"Drain and Reset", XidWatch, Ticket, "Give the GPU no new job, and reset it when its jobs have ended."},
	{"Recover IMEX Domain", XidWatch, Ticket, "Restart the IMEX service on the nodes of the NVLink domain."},
}

// RecoveryAction returns the driver's words for the recovery that a message of Xid
// 154 recommends, empty if it names none that the book knows.
func RecoveryAction(message string) string {
	if r := recoveryOf(message); r != nil {
		return r.words
	}
	return ""
}

// recoveryOf looks at the end of a message: before it stands what was recommended
// until now.
func recoveryOf(message string) *recovery {
	message = strings.TrimRight(message, ") \n")
	for i := range recoveries {
		if strings.HasSuffix(message, recoveries[i].words) {
			return &recoveries[i]
		}
	}
	return nil
}
