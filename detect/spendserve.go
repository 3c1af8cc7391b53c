package detect

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// answers is what comes of an inference server. Its exported fields survive a restart.
type answers struct {
	At    time.Time `json:"at"`             // of the newest reading
	Done  float64   `json:"done"`           // tokens and requests
	Moved time.Time `json:"moved,omitzero"` // when the last of them was seen to come; zero: none yet
	Asked time.Time `json:"asked,omitzero"` // since when there was always a request

	told   Evidence
	toldAt time.Time
}

// serve holds requests against what comes of them: a server that is asked and never
// answers costs as much as one that does.
func (d *Spend) serve(e *collector.Endpoint, now time.Time, report func(Observation)) {
	at := e.SampledAt(metric.Fast)
	done := answered(e)
	if at.IsZero() || math.IsNaN(done) {
		return
	}
	st := d.endpoints[e.Key()]
	if st == nil {
		if !room(d.endpoints, maxHolders, 24*time.Hour, func(a *answers) time.Time { return a.At }, d.now) {
			return
		}
		st = &answers{Done: done}
		d.endpoints[e.Key()] = st
	}
	if at.After(st.At) {
		st.read(e, done, at)
	}
	o := Observation{Subject: EndpointSubject(e), Cause: withoutOutput, Severity: rules.Ticket}
	if !st.Moved.IsZero() && !st.Asked.IsZero() {
		o.Score = now.Sub(later(st.Moved, st.Asked)).Seconds() / outputLasts.Seconds()
	}
	if o.Score >= 1 {
		if st.toldAt.IsZero() || now.Sub(st.toldAt) >= time.Minute {
			st.told, st.toldAt = st.evidence(e, now), now
		}
		o.At, o.Evidence = later(st.Moved, st.Asked), st.told
	}
	report(o)
}

func (st *answers) read(e *collector.Endpoint, done float64, at time.Time) {
	asked := e.Value(metric.RequestsRunning) > 0 || e.Value(metric.RequestsWaiting) > 0
	switch {
	case !asked || at.Sub(st.At) > sampleGap:
		st.Asked = time.Time{}
	case st.Asked.IsZero():
		st.Asked = at
	}
	if done > st.Done {
		st.Moved = at
	}
	st.At, st.Done = at, done // a count that fell began anew
}

// answered counts what a server has done; NaN if it tells of nothing.
func answered(e *collector.Endpoint) float64 {
	sum, told := 0.0, false
	for _, v := range [...]float64{e.Value(metric.GeneratedTokens), e.ValueAt(metric.Requests, 0)} {
		if !math.IsNaN(v) {
			sum, told = sum+v, true
		}
	}
	if !told {
		return math.NaN()
	}
	return sum
}

func (st *answers) evidence(e *collector.Endpoint, now time.Time) Evidence {
	want := outputLasts.Seconds()
	lasted := now.Sub(later(st.Moved, st.Asked))
	seen := "requests for " + span(lasted)
	if n := e.Value(metric.RequestsRunning); n > 0 {
		seen = fmt.Sprintf("%s, %.0f now,", seen, n)
	}
	return Evidence{
		Title: "Server answers nobody", Observed: lasted.Seconds(), Want: &want, Confidence: Certain,
		Seen:     fmt.Sprintf("%s and not one token or finished request since %s", seen, clock(st.Moved)),
		Expected: fmt.Sprintf("a token or a finished request within %s while there are requests", span(outputLasts)),
		Why:      "by the server's own metrics", Action: "Restart the server; look in its log for what it waits for.",
	}
}
