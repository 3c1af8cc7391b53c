package detect

import (
	"slices"
	"time"

	"gpuvigil/rules"
)

const (
	recordDays = 28             // for which a rule remembers how often it fired
	lastWeek   = 7              // days of it that are told
	contextDay = 24 * time.Hour // in which an unknown rule is taken to begin once on a GPU
)

// record is how a rule has done on this node over the weeks. It survives a restart.
type record struct {
	Clean  float64     `json:"clean_gpu_weeks"` // watched, less a week for each statistical finding
	Owed   float64     `json:"owed,omitzero"`   // of those weeks, which there were none to take from
	Onsets float64     `json:"onsets"`          // how often a condition began on a GPU
	Spans  float64     `json:"spans"`           // of groupWindow that GPUs were watched for
	Days   []recordDay `json:"days,omitempty"`  // oldest first
}

type recordDay struct {
	Day   int64 `json:"day"` // since the epoch
	Fired int   `json:"fired"`
}

// Standing is how a rule stands with the alert budget.
type Standing struct {
	Rule        rules.ID       `json:"rule"`
	Severity    rules.Severity `json:"severity"` // the most that its findings may have, as configured
	Pages       bool           `json:"pages"`    // it may wake somebody, also in the first days
	Statistical bool           `json:"statistical"`
	Promoted    bool           `json:"promoted"`
	Fired       int            `json:"fired_7d"` // findings in the last seven days

	// Of a statistical rule: the nats that a finding and a page need, and the clean
	// history of the GPUs, in weeks, that there is and that a page takes.
	Need       float64 `json:"need_nats"`
	NeedPage   float64 `json:"need_page_nats"`
	CleanWeeks float64 `json:"clean_gpu_weeks"`
	ProofWeeks float64 `json:"proof_gpu_weeks"`
}

// watched lets time count that a rule has looked at so many GPUs.
func (r *record) watched(d time.Duration, gpus int) {
	r.Clean += float64(gpus) * d.Seconds() / week.Seconds()
	r.Spans += float64(gpus) * d.Seconds() / groupWindow.Seconds()
}

// fired counts a finding. One that is statistical is taken for a false one until the
// next clean week: nobody tells which are.
func (r *record) fired(now time.Time, statistical bool) {
	if statistical {
		r.Owed += max(0, 1-r.Clean)
		r.Clean = max(0, r.Clean-1)
	}
	day := epochDay(now)
	r.Days = slices.DeleteFunc(r.Days, func(d recordDay) bool { return d.Day > day || d.Day <= day-recordDays })
	if n := len(r.Days); n > 0 && r.Days[n-1].Day == day {
		r.Days[n-1].Fired++
		return
	}
	r.Days = append(r.Days, recordDay{day, 1})
}

func (r *record) firedSince(day int64) (n int) {
	for _, d := range r.Days {
		if d.Day >= day {
			n += d.Fired
		}
	}
	return n
}

// base is the share of time spans in which a condition of the rule begins on a GPU. A
// day of one onset is taken for known from the start.
func (r *record) base() float64 {
	return (r.Onsets + 1) / (r.Spans + float64(contextDay/groupWindow))
}

func epochDay(t time.Time) int64 { return t.Unix() / int64((24 * time.Hour).Seconds()) }

// standings tells how all rules stand, in the order of the detectors.
func (e *Engine) standings() []Standing {
	out := make([]Standing, 0, len(e.watchers))
	for _, w := range e.watchers {
		s := Standing{
			Rule: w.rule.ID, Severity: w.bound(w.rule.Severity, false), Pages: w.pages, Statistical: w.statistical, Promoted: w.promoted,
			Fired: w.record.firedSince(epochDay(e.now) - lastWeek + 1),
		}
		if s.Statistical {
			s.Need, s.NeedPage = e.need(rules.Ticket), e.need(rules.Page)
			s.CleanWeeks, s.ProofWeeks = e.clean(w), e.proof()
		}
		out = append(out, s)
	}
	return out
}
