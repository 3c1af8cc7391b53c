package remotewrite

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
)

// Assembler makes snapshots of samples, as *series.Assembler does. It is used from one
// goroutine at a time.
type Assembler interface {
	Metrics() []string // names of those that something is made of
	Series(labels []series.Label) *series.Series
	Add(s *series.Series, t time.Time, v float64)
	Snapshots(now time.Time) []*collector.Snapshot
}
