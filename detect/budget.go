package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// Budget is how many false findings each receiver may get in a week. It is divided over
// the GPUs that the receiver hears of and over the statistical rules, so that what a
// finding must prove grows with the fleet. Zero fields take the defaults.
type Budget struct {
	Pages   float64 // 1
	Tickets float64 // 10
	GPUs    int     // in all, where this agent is one of many; 0: those that this engine sees
}

const week = 7 * 24 * time.Hour

func (b *Budget) complete() {
	if !(b.Pages > 0) {
		b.Pages = 1
	}
	if !(b.Tickets > 0) {
		b.Tickets = 10
	}
}

// divide gives a rule its share of the budget: one that is statistical by the book, or by
// what it reports.
func (e *Engine) divide(w *watcher) {
	if !w.statistical {
		w.statistical = true
		e.statistical++
	}
}

// share is how many false findings of a severity one rule may make a week on one GPU.
// What is less than a page counts as a ticket.
func (e *Engine) share(s rules.Severity) float64 {
	findings := e.cfg.Budget.Tickets
	if s >= rules.Page {
		findings = e.cfg.Budget.Pages
	}
	return findings / float64(max(e.statistical, 1)*max(e.subjects(), 1))
}

// subjects is how many GPUs the budget is divided over.
func (e *Engine) subjects() int {
	return max(e.cfg.Budget.GPUs, e.among, e.gpus)
}

// Among says that the engine's node is one of many that the same receivers hear of, with
// so many GPUs in all: the alert budget is divided over those.
func (e *Engine) Among(gpus int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.among = gpus
}

// Clean adds the clean history of each rule, in GPU-weeks, to a sum over the engines of
// many nodes.
func (e *Engine) Clean(sum map[rules.ID]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.watchers {
		sum[w.rule.ID] += w.record.Clean - w.record.Owed
	}
}

// CleanAmong says what clean history the engines of all nodes have together, this one
// among them. The same detectors with the same thresholds have watched them all, so what
// a page takes is proved by all: a node alone never has history enough for the share that
// a whole fleet leaves it. The map is not changed, and must not be.
func (e *Engine) CleanAmong(sum map[rules.ID]float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cleanAmong = sum
}

// clean is the history that speaks for a rule, in GPU-weeks.
func (e *Engine) clean(w *watcher) float64 { return max(w.record.Clean, e.cleanAmong[w.rule.ID]) }

// need is the surprise, in nats, that a statistical finding of the severity must have.
func (e *Engine) need(s rules.Severity) float64 { return max(0, -math.Log(e.share(s))) }

// proof is the clean history, in GPU-weeks, that shows with 95 % confidence that a rule
// keeps within its share of pages: none in n proves less than 3/n.
func (e *Engine) proof() float64 { return 3 / e.share(rules.Page) }

// count takes up how many GPUs there are to divide the budget over. The most of a boot
// counts: that one is lost does not loosen anything.
func (e *Engine) count(s *collector.Snapshot) { e.gpus = max(e.gpus, len(s.GPUs)) }

// afford lowers a severity to what the budget and the node's state allow, and says so
// in the evidence where somebody would have been woken.
func (e *Engine) afford(w *watcher, o *Observation, s rules.Severity) rules.Severity {
	if s < rules.Page {
		return s
	}
	switch clean, proof := e.clean(w), e.proof(); {
	case e.state.quiet != "":
		o.Evidence.because("not a page: the node " + e.state.quiet + " and nothing runs on its GPUs")
	case o.Surprise == 0:
		return s
	case o.Surprise < e.need(rules.Page):
		o.Evidence.because("not a page: that takes " + significant(e.need(rules.Page), 3) + " nats, this is " + significant(o.Surprise, 3))
	case clean < proof:
		o.Evidence.because("not a page: the rule has " + significant(clean, 2) + " of the " + significant(proof, 2) + " clean GPU-weeks behind it that a page takes")
	default:
		return s
	}
	return rules.Ticket
}

// because adds a clause to why one is as sure as one is.
func (ev *Evidence) because(clause string) {
	if ev.Why != "" {
		clause = ev.Why + "; " + clause
	}
	ev.Why = clause
}

// affordable reports whether a finding may be told at all: what was seen for a fact
// may, and what is statistical if it is rare enough alone or in company.
func (e *Engine) affordable(t *tracked) bool {
	return t.Surprise == 0 || t.Together > 0 || t.Surprise >= e.need(rules.Ticket)
}
