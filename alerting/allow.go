package alerting

import (
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Allow reports whether the receiver of this name is to hear of an incident that it
// does not know: it is severe enough, and the first week is over for it.
func (o *Outbox) Allow(_ string, least rules.Severity, i *detect.Incident) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return i.Severity >= least && !o.inShadow(i, time.Now())
}
