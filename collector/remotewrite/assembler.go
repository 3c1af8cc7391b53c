package remotewrite

import (
	"time"

	"gpuvigil/collector"
)

// Label is one label of a series.
type Label struct{ Name, Value string }

// Series is a series as an Assembler knows it.
type Series struct{ _ int }

// Assembler makes snapshots of samples. It is used from one goroutine at a time.
type Assembler interface {
	Series(labels []Label) *Series
	Add(s *Series, t time.Time, v float64)
	Snapshots(now time.Time) []*collector.Snapshot
	Metrics() []string
}
