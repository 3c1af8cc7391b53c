package remotewrite

import (
	"maps"
	"time"

	"gpuvigil/internal/metric"
)

// Tally counts what has come since the start.
type Tally struct {
	Requests map[Outcome]uint64
	Bytes    uint64 // as they were sent
	Series   uint64 // in requests; one that is sent again counts again
	Samples  uint64 // in requests that were read
	Cuts     uint64
	Took     time.Duration // the last cut

	// What became of samples, if not part of a snapshot in time.
	Unwanted uint64            // nothing is made of their metric
	Refused  map[string]uint64 // by what is wrong with their labels
	Late     uint64            // taken, but after the cut that they should have been in
	Old      uint64            // dropped: longer ago than counts
	Ahead    uint64            // dropped: further in the future than clocks may differ
	Unplaced uint64            // dropped: the assembler did not want their series
	Pending  int               // they wait now
	Known    int               // series whose labels are known now

	Histograms, Exemplars uint64 // that were left out
}

// Tally returns what has been counted.
func (r *Receiver) Tally() Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally
	t.Refused, t.Requests = maps.Clone(t.Refused), maps.Clone(t.Requests)
	t.Pending, t.Known = len(r.pending), len(r.cache.now)+len(r.cache.before)
	return t
}

// Tell adds what there is to say of what was received to a page.
func (r *Receiver) Tell(add func(d *metric.Def, v float64, labels ...string)) {
	t := r.Tally()
	for _, o := range metric.WriteOutcomes {
		add(metric.WriteRequests, float64(t.Requests[Outcome(o)]), o)
	}
	fates := map[string]uint64{
		"late": t.Late, "unwanted": t.Unwanted, "old": t.Old, "ahead": t.Ahead, "unplaced": t.Unplaced,
		badLabels: t.Refused[badLabels], noName: t.Refused[noName], manyLabels: t.Refused[manyLabels],
	}
	rest := t.Samples
	for _, n := range fates {
		rest -= n
	}
	fates["taken"], fates["histogram"], fates["exemplar"] = rest, t.Histograms, t.Exemplars
	for _, fate := range metric.WriteFates {
		add(metric.WriteSamples, float64(fates[fate]), fate)
	}
	add(metric.WriteBytes, float64(t.Bytes))
	add(metric.WritePending, float64(t.Pending))
	add(metric.WriteKnown, float64(t.Known))
	add(metric.WriteCut, t.Took.Seconds())
}
