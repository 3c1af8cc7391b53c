package ledger

import (
	"math"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// maxName is more than any owner's name has that is not made to be long.
const maxName = 256

// used divides the slot over those who use it: by the SM time that each of their
// processes had while it works, else by the memory that they hold, else equally. A
// slot whose users are not listed is that of those whom it was given to.
func (s *slot) used(state cost.State) []part {
	if len(s.users) == 0 {
		return s.held(state)
	}
	measures := []func(*collector.Process) float64{heldMemory, evenly}
	if state == cost.Busy {
		measures = []func(*collector.Process) float64{smTime, heldMemory, evenly}
	}
	var out []part
	for _, measure := range measures {
		out = out[:0]
		whole := true
		sum := uint64(0)
		for _, p := range s.users {
			v := measure(p)
			whole = whole && v >= 0
			w := uint64(max(v, 0))
			sum += w
			out = share(out, p.Owner, state, w)
		}
		if whole && sum > 0 {
			return out
		}
	}
	return out
}

// smTime is the process's share of SM time; -1 if it is not known, or counts for all
// clients of an MPS server.
func smTime(p *collector.Process) float64 {
	v := p.Value(metric.ProcessUtilization)
	if math.IsNaN(v) || p.Value(metric.ProcessMPS) == 1 {
		return -1
	}
	return math.Round(v * 1e6)
}

func heldMemory(p *collector.Process) float64 {
	if v := p.Value(metric.ProcessMemoryUsed); v >= 0 && v < 1<<50 {
		return v
	}
	return -1
}

func evenly(*collector.Process) float64 { return 1 }

// held divides the slot over those whom it was given to, by their shares of it. If
// nobody was, it is nobody's.
func (s *slot) held(state cost.State) []part {
	var out []part
	for _, a := range s.given {
		out = share(out, a.Owner, state, uint64(min(max(a.Shares, 1), 1<<20)))
	}
	if out == nil {
		for _, o := range s.named {
			out = share(out, o, state, 1)
		}
	}
	if out == nil {
		out = []part{{weight: 1, state: state}}
	}
	return out
}

// cleaned returns the owner as the ledger knows him. Names are untrusted.
func cleaned(o collector.Owner) collector.Owner {
	return collector.Owner{Kind: text.Clean(o.Kind, maxName), ID: text.Clean(o.ID, maxName), Team: text.Clean(o.Team, maxName)}
}

// share adds to the owner's part.
func share(parts []part, o collector.Owner, state cost.State, weight uint64) []part {
	o = cleaned(o)
	for i := range parts {
		if parts[i].owner == o {
			parts[i].weight += weight
			return parts
		}
	}
	return append(parts, part{weight: weight, owner: o, state: state})
}
