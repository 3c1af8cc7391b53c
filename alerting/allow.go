package alerting

import (
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Allow reports whether the receiver of this name is to hear of an incident now, as
// Gate.Allow does.
func (o *Outbox) Allow(receiver string, least rules.Severity, i *detect.Incident) bool {
	return o.gate.Allow(receiver, least, i)
}
