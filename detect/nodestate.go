package detect

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// bootTime is for how long after a boot a node without work is still coming up.
const bootTime = 10 * time.Minute

// drainedReason is why what began on a drained node is not sent.
const drainedReason = "drained"

// nodeState is what of the node's state bears on who is told: nobody is woken for a node
// that nobody works on.
type nodeState struct {
	drained time.Time // since when; zero: it is not
	quiet   string    // why nobody works on it: "is drained", "boots"; empty if somebody may
}

// look takes up the node's state. Without a word on the drain the last one stands, as
// for readings of any kind; after a restart too.
func (n *nodeState) look(s *collector.Snapshot) {
	switch drained := s.Node.Value(metric.Drained); {
	case drained > 0 && n.drained.IsZero():
		n.drained = s.Time
	case drained == 0:
		n.drained = time.Time{}
	}
	n.quiet = ""
	switch used, known := occupied(s); {
	case used || !known:
	case !n.drained.IsZero():
		n.quiet = "is drained"
	case !s.Boot.IsZero() && s.Time.Sub(s.Boot) < bootTime:
		n.quiet = "boots"
	}
}

// suppresses reports whether what began then is not sent: the node was drained before,
// and nothing runs on it that it could hurt.
func (n *nodeState) suppresses(since time.Time) bool {
	return n.quiet != "" && !n.drained.IsZero() && !since.Before(n.drained)
}

// occupied reports whether a process other than a service runs on a GPU, and whether
// anybody tells. A count without names is believed, unless services explain it.
func occupied(s *collector.Snapshot) (used, known bool) {
	for i := range s.Processes {
		known = true
		if !s.Processes[i].Service() {
			return true, true
		}
	}
	services := known
	for i := range s.GPUs {
		processes := s.GPUs[i].Value(metric.ProcessCount)
		if processes > 0 && !services {
			return true, true
		}
		known = known || processes >= 0
	}
	return false, known
}
