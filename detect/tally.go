package detect

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/detect/stream"
	"gpuvigil/rules"
)

const (
	tallyMinutes = 60             // of the window that is judged
	tallyMature  = 24 * time.Hour // of time before it, without which nothing is judged
	tallyMemory  = 7 * 24 * 60.0  // minutes before it for which it is remembered
	weeklyLooks  = 7 * 24.0       // windows of an hour that do not overlap in a week
	tallyFalse   = 0.01           // findings of a healthy subject in a week at a score of 1
	tallyWorse   = 5.0            // times as many events as usual, at the least
)

// tally counts what a counter of errors grows by: in each minute of the last hour, and
// in the time before that. The zero tally is ready to use; its exported fields survive a
// restart.
//
// Errors come in bursts, so their number alone says little: a tally is unusual if there
// are both more errors and more bad minutes than the time before explains. A bad minute
// has several times as many errors as a minute usually has.
type tally struct {
	At    time.Time             `json:"at,omitzero"` // of the newest reading
	Value float64               `json:"value"`
	From  time.Time             `json:"from,omitzero"` // beginning of the newest minute
	Errs  [tallyMinutes]float32 `json:"errors"`        // by minute; negative: nobody looked
	Next  int                   `json:"next"`          // place of the newest minute

	// Before the window, with forgetting: errors, bad minutes, minutes looked at.
	Events  float64 `json:"events"`
	Bad     float64 `json:"bad"`
	Minutes float64 `json:"minutes"`

	sum tallyPeers // of the window, made with each reading
}

// add takes up a reading and returns by how much the counter grew since the reading
// before, or 0 if nobody can tell.
func (y *tally) add(at time.Time, value float64) float64 {
	if math.IsNaN(value) || !at.After(y.At) {
		return 0
	}
	grew := value - y.Value
	looked := !y.At.IsZero() && at.Sub(y.At) <= rateGap && grew >= 0
	y.At, y.Value = at, value
	y.roll(at, looked)
	if !looked {
		grew = 0
	}
	y.Errs[y.Next] += float32(grew)
	y.sum = y.window()
	return grew
}

// roll makes the minute of the time the newest one. The minutes that it passes were
// looked at, or not.
func (y *tally) roll(at time.Time, looked bool) {
	if y.From.IsZero() || at.Before(y.From) || y.Next < 0 || y.Next >= tallyMinutes {
		*y = tally{At: y.At, Value: y.Value, From: at, Events: y.Events, Bad: y.Bad, Minutes: y.Minutes}
		for i := range y.Errs {
			y.Errs[i] = -1
		}
		y.Errs[0] = 0
		return
	}
	minutes := int(at.Sub(y.From) / time.Minute)
	for range min(minutes, tallyMinutes) {
		y.Next = (y.Next + 1) % tallyMinutes
		y.leave(y.Errs[y.Next])
		if y.Errs[y.Next] = -1; looked {
			y.Errs[y.Next] = 0
		}
	}
	y.Errs[y.Next] = max(y.Errs[y.Next], 0)
	y.From = y.From.Add(time.Duration(minutes) * time.Minute)
}

// leave takes a minute that has left the window into what was before. Once that is known
// the errors of a bad minute count as those of a usual one: a fault that lasts does not
// soon become what is usual. After about a week it does, by the share of bad minutes.
func (y *tally) leave(errs float32) {
	if errs < 0 {
		return
	}
	if y.Minutes >= tallyMemory {
		keep := 1 - 1/tallyMemory
		y.Events, y.Bad, y.Minutes = float64(y.Events*keep), float64(y.Bad*keep), float64(y.Minutes*keep)
	}
	taught := float64(errs)
	if taught > y.limit() {
		y.Bad++
		if y.Minutes >= tallyMature.Minutes() {
			taught = min(taught, max(y.usual(), 1)/60)
		}
	}
	y.Events += taught
	y.Minutes++
}

// hour is what the last hour holds: errors, bad minutes, minutes looked at.
func (y *tally) hour() (events, bad, minutes float64) {
	if y.sum.minutes == 0 {
		y.sum = y.window()
	}
	return y.sum.events, y.sum.bad, y.sum.minutes
}

func (y *tally) window() (sum tallyPeers) {
	limit := y.limit()
	for _, errs := range y.Errs {
		if errs < 0 {
			continue
		}
		sum.minutes++
		sum.events += float64(errs)
		if float64(errs) > limit {
			sum.bad++
		}
	}
	return sum
}

// limit is how many errors a minute may have that is not bad.
func (y *tally) limit() float64 { return tallyWorse * y.usual() / 60 }

// usual is how many errors an hour had in the time before.
func (y *tally) usual() float64 {
	if y.Minutes == 0 {
		return 0
	}
	return 60 * y.Events / y.Minutes
}

// surprise is how unusual the last hour is against the time before it, in nats of
// Observation.Surprise: computed by the exact tests, for as many looks as a week has
// hours. It is 0 while there is too little time before.
func (y *tally) surprise() float64 {
	if y.Minutes < tallyMature.Minutes() {
		return 0
	}
	events, bad, minutes := y.hour()
	return unusual(events, bad, minutes, y.Events, y.Bad, y.Minutes)
}

// unusual compares an hour with other time.
func unusual(events, bad, minutes, others, othersBad, othersMinutes float64) float64 {
	if minutes == 0 || othersMinutes == 0 || events < tallyWorse*others/othersMinutes*minutes {
		return 0
	}
	nats := min(stream.RateRise(events, minutes, others, othersMinutes), stream.ShareRise(bad, minutes, math.Ceil(othersBad), othersMinutes))
	return max(0, nats-math.Log(weeklyLooks))
}

// tallyScore turns surprise into a score.
func tallyScore(surprise float64) float64 { return surprise / -math.Log(tallyFalse) }

func (y *tally) shift(by time.Duration) { shift(by, &y.At, &y.From) }

// tallyPeers is the last hour of all subjects of a kind.
type tallyPeers struct{ events, bad, minutes float64 }

func (p *tallyPeers) add(y *tally) {
	e, b, m := y.hour()
	p.events, p.bad, p.minutes = p.events+e, p.bad+b, p.minutes+m
}

// among is surprise against the time before and, if peers have errors too, against their
// same hour, whichever explains more: what all of them see has another reason than this
// one. While there is too little time before, three peers at least stand for it. The
// peers' sum holds the subject itself.
func (y *tally) among(p tallyPeers) (nats float64, young bool) {
	e, b, m := y.hour()
	others := p.minutes - m
	beside := func() float64 { return unusual(e, b, m, p.events-e, p.bad-b, others) }
	if y.Minutes < tallyMature.Minutes() {
		if others < minLinkPeers*m {
			return 0, true
		}
		return beside(), true
	}
	nats = y.surprise()
	if nats > 0 && p.events > e {
		nats = min(nats, beside())
	}
	return nats, false
}

// riseWords say what it means that errors are more than usual.
type riseWords struct {
	title, what, action string // what: the errors that were counted, "PCIe packets sent again"
}

// rise judges whether there are far more errors in the last hour than usual, and so many
// at least.
func (s *said) rise(y *tally, p tallyPeers, least float64, words *riseWords) {
	if y.At.IsZero() {
		return
	}
	events, bad, _ := y.hour()
	nats, young := 0.0, false
	if events >= least {
		nats, young = y.among(p)
	}
	s.o.Surprise = nats
	s.set(tallyScore(nats), rules.Ticket, math.Floor(math.Log2(1+events)), func() Evidence {
		usual := y.usual()
		e := Evidence{
			Title:    words.title,
			Seen:     fmt.Sprintf("%d %s in an hour, most of them in %d bad minutes", int(events), words.what, int(bad)),
			Expected: fmt.Sprintf("about %s in an hour, as over %s before", significant(usual, 2), span(time.Duration(y.Minutes)*time.Minute)),
			Observed: events, Want: &usual, Confidence: VerySure, Why: "by the number of errors and of bad minutes, each by an exact test", Action: words.action,
		}
		if young {
			*e.Want = 0
			e.Expected, e.Confidence, e.Why = "as few as its peers on the node have", Young, "less than a day is known of it, so its peers stand for what is usual"
		}
		return e
	})
}
