package collector

import "time"

// Agent is what the agent of a node exports of its own judgement, in a snapshot that was
// made of series: the node was judged, and nobody needs to do it again.
type Agent struct {
	Instance string // where the agent was scraped
	Findings []Told
	Verdicts []VerdictTold
}

// Told is a finding that an agent exports: labels and numbers, without its evidence.
// Every text in it is another process's.
type Told struct {
	Rule, Severity, Subject, Cause string

	Since                     time.Time // zero: not told
	Observed, Expected, Score float64   // NaN: not told
}

// VerdictTold is an agent's verdict on one GPU.
type VerdictTold struct {
	UUID    string
	Verdict string
}
