package alerting

import (
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Allow reports whether the receiver of this name is to hear of an incident now, as
// Gate.Allow does.
func (o *Outbox) Allow(receiver string, least rules.Severity, i *detect.Incident) bool {
	return o.gate.Allow(receiver, least, i)
}

// Decide says in words what becomes of an incident at the receiver of this name, as Drill
// does for those of the outbox.
func (o *Outbox) Decide(receiver string, least rules.Severity, i *detect.Incident) Sent {
	d := o.gate.judge(receiver, least, i, time.Now())
	return Sent{receiver, d.words(), d.outcome == told}
}
