// Package alerting takes incidents to people: what is said, to whom, and a
// durable outbox that says it exactly as often as needed. It delivers incidents
// as the engine made them and does not regroup.
package alerting

import (
	"context"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Message is one thing to tell one receiver: an incident as it is now.
type Message struct {
	Incident detect.Incident
	Rule     *rules.Rule
	Node     string
	Links    []Link
	Context  Context

	Mark *Mark // what a person said of the incident; nil: nothing

	// Mentions are the ids of those whom the message calls. They come from the
	// configuration only.
	Mentions []string

	// Ring says why a person is to be called again for an incident that the receiver
	// knows; empty if it is enough that its message changes. A notifier whose edits
	// nobody notices says it in a message that is noticed.
	Ring string

	// Rung is how often the incident has called again, with this time if Ring is given:
	// a notifier that finds out that it has rung so often does not do it once more.
	Rung int

	// Words is said in place of the incident's own words; nil: those of the incident.
	Words *Text

	// Chart draws nothing: it returns what a picture of the last hours would show, nil
	// if there is nothing to show. It is nil if nobody can tell.
	Chart func() *Chart

	// Doubt says that an earlier attempt to deliver this may have succeeded, in whole
	// or in part, without us knowing: the connection broke, or the agent was killed. A
	// notifier that can look does so before it delivers again.
	Doubt bool
}

// Link is a place to go on from a message.
type Link struct{ Title, URL string }

// Notifier delivers messages to one receiver: a channel, a webhook.
type Notifier interface {
	// Notify delivers m. ref is what Notify returned when it first delivered the
	// same incident, or empty; a notifier that can edit does so. The error is a
	// *Refusal when trying again makes no sense, a *Wait when the receiver asked
	// for a pause, and anything else when it may succeed later. No error holds a
	// secret. A newRef beside an error is what was delivered before it: the next
	// attempt gets it.
	Notify(ctx context.Context, m Message, ref string) (newRef string, err error)
}

// Refusal is an error that trying again cannot mend.
type Refusal struct {
	Reason string `json:"reason"` // a short closed word: invalid_auth, channel_not_found …
	Hint   string `json:"hint"`   // what to do

	// Content says that it is this message that was refused: another one may pass.
	// Otherwise the receiver takes nothing from us until somebody mends it.
	Content bool `json:"content,omitempty"`
}

// Error says what was refused and what to do.
func (r *Refusal) Error() string {
	if r.Hint == "" {
		return "refused: " + r.Reason
	}
	return "refused: " + r.Reason + ": " + r.Hint
}

// Wait is a receiver's wish to be left alone for a while.
type Wait struct{ For time.Duration }

// Error says how long.
func (w *Wait) Error() string { return "rate limited: try again in " + w.For.String() }
