package detect

import (
	"math"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
	"time"
)

// said is what was last said of one cause.
type said struct {
	o    Observation // without the GPU and who holds it
	told bool        // the driver tells what the cause needs
	of   float64     // what the evidence was made of
}

// set notes how far a cause holds, and makes the evidence if it would say something
// else than before.
func (s *said) set(score float64, severity rules.Severity, of float64, say func() Evidence) {
	s.told = true
	s.o.Score, s.o.Severity = score, severity
	if score >= 1 && (s.o.Evidence.Seen == "" || s.of != of) {
		s.o.Evidence, s.of = say(), of
	}
}

// nameCauses gives each its cause.
func nameCauses(said []said, causes ...string) {
	for i, cause := range causes {
		said[i].o.Cause = cause
	}
}

// forget has all words made anew when they are next said: they may name times, and the
// clock was set.
func forget(said []said) {
	for i := range said {
		said[i].of = math.NaN()
	}
}

// sayOf reports what was last said of a GPU.
func sayOf(g *collector.GPU, said []said, report func(Observation)) {
	for i := range said {
		if said[i].told {
			o := said[i].o
			o.Subject, o.GPU, o.Owner = gpuSubject(g.UUID), g, holder(g)
			report(o)
		}
	}
}

// roomIn makes room in a map of GPUs or ports, in the place of those that are long gone,
// and reports whether there is any.
func roomIn[K comparable, T any](of map[K]*T, gone func(*T) bool) bool {
	if len(of) < maxFaultyGPUs {
		return true
	}
	for k, v := range of {
		if gone(v) {
			delete(of, k)
		}
	}
	return len(of) < maxFaultyGPUs
}

// news reports whether a tier of the GPU was sampled since it was last judged, and
// notes when.
func news(g *collector.GPU, t metric.Tier, at *time.Time) bool {
	now := g.SampledAt(t)
	if !g.Answers() || !now.After(*at) {
		return false
	}
	*at = now
	return true
}
