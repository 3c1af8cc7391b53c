package stream

import (
	"fmt"
	"math"
	"slices"
)

const (
	peersLeast = 4 // members with a value in a step; of fewer nobody is the odd one
	peersYoung = 20
	peersStart = 10   // steps that make the first idea of a member's share
	peersSteps = 60   // steps that a member's own share is learned over
	peersHold  = 0.25 // of the learning speed while a member is suspected
	peersClip  = 0.16 // the most that one step counts: a pause is no straggling
	peersOdd   = 0.75 // quantile of the others' deviations that is common to all

	// For slow-downs of 12 % and more within a few steps, and of 8 % and more in the
	// course of some dozens. The slack also covers the member's own unrest.
	peersFastSlack, peersFastSigma, peersFastLimit = 0.06, 1.25, 0.35
	peersSlowSlack, peersSlowSigma, peersSlowLimit = 0.04, 1, 0.8
)

// Peers finds the member of a group that has become slower than its peers: one rank of a
// job whose step takes longer. All members do the same work in the same steps.
//
// A member's value is taken relative to the median of the others, and that relative
// to its own usual share, so that what slows all down and members that always differ
// stay silent. From the deviation that is left, the upper quartile of the others' is
// taken away: only the odd one out is a straggler. Two CUSUM charts sum what remains
// (Page 1954; two charts for large and small shifts as in Lucas 1982, J. Quality
// Technology 14).
//
// Values are positive, and larger is slower: of a rate, or of power drawn, the
// reciprocal is to be given. Members are told from each other by their place alone.
type Peers struct {
	members []peer
	ratios  []float64 // to the median of the others, then deviations; NaN without a value
	sorted  []float64
}

// peer is what is known of one member.
type peer struct {
	steps      uint32
	share      float64 // its usual ratio to the median of the others
	unrest     float64 // mean absolute deviation from it, as a share of it
	recent     float64 // mean deviation of the last few steps
	fast, slow CUSUM
	score      float64
}

// NewPeers returns a detector for so many members that has seen nothing.
func NewPeers(members int) *Peers {
	return &Peers{members: make([]peer, members), ratios: make([]float64, members), sorted: make([]float64, 0, members)}
}

// Add takes the values of one step, one for each member, and writes their scores: 1
// is the threshold. What is not a positive number is a member that took no part; its
// score is 0 and what is known of it stays. With fewer than four members in a step
// nothing is learned and nothing changes.
func (p *Peers) Add(values, scores []float64) {
	if len(values) != len(p.members) || len(scores) != len(p.members) {
		panic(fmt.Sprintf("stream: %d values and %d scores for %d peers", len(values), len(scores), len(p.members)))
	}
	p.sorted = p.sorted[:0]
	for i, x := range values {
		scores[i] = 0
		p.ratios[i] = math.NaN()
		if x > 1e-100 && x < 1e100 { // outside, a ratio of two may be no number
			p.ratios[i] = x
			p.sorted = append(p.sorted, x)
		}
	}
	if len(p.sorted) >= peersLeast {
		p.compare()
		p.observe()
	}
	for i := range scores {
		if !math.IsNaN(p.ratios[i]) {
			scores[i] = p.members[i].score
		}
	}
}

// Slower returns by how much the member has lately been slower than its usual share
// of the others' pace, up to a half: 0.2 is a fifth.
func (p *Peers) Slower(member int) float64 { return p.members[member].recent }

// Restart forgets a member, for example as its place is taken by another process.
func (p *Peers) Restart(member int) { p.members[member] = peer{} }

// compare turns values into deviations from each member's usual share.
func (p *Peers) compare() {
	slices.Sort(p.sorted)
	for i, x := range p.ratios {
		if math.IsNaN(x) {
			continue
		}
		n := len(p.sorted) - 1
		of := others{p.sorted, x}
		r := x / ((of.at((n-1)/2) + of.at(n/2)) / 2)
		if m := &p.members[i]; m.steps == 0 {
			m.share = r
		}
		p.ratios[i] = r/p.members[i].share - 1
	}
	p.sorted = p.sorted[:0]
	for _, d := range p.ratios {
		if !math.IsNaN(d) {
			p.sorted = append(p.sorted, d)
		}
	}
	slices.Sort(p.sorted)
}

func (p *Peers) observe() {
	for i, d := range p.ratios {
		if math.IsNaN(d) {
			continue
		}
		n := len(p.sorted) - 1
		common := others{p.sorted, d}.at(int(math.Ceil(peersOdd * float64(n-1))))
		p.members[i].observe(d, max(common, 0))
	}
}

// others is a sorted list without one of its values.
type others struct {
	sorted  []float64
	without float64
}

func (o others) at(i int) float64 {
	if own, _ := slices.BinarySearch(o.sorted, o.without); i >= own {
		i++
	}
	return o.sorted[i]
}

// observe takes the deviation of one step and the part of it that is common to all.
func (m *peer) observe(d, common float64) {
	m.steps = min(m.steps+1, math.MaxUint32-1)
	sigma := 1.2533141373155003 * m.unrest // of a normal distribution: √(π/2) mean absolute deviations
	if m.steps > peersYoung {
		odd := min(d-common, peersClip)
		m.score = max(
			m.fast.Add(odd, max(peersFastSlack, peersFastSigma*sigma), peersFastLimit),
			m.slow.Add(odd, max(peersSlowSlack, peersSlowSigma*sigma), peersSlowLimit))
	}
	rate := 1 / float64(min(m.steps, peersSteps))
	if m.fast.sum > 0 || m.slow.sum > 0 {
		rate *= peersHold
	}
	most := max(0.02, 3*sigma)
	if m.steps <= peersStart {
		most = 1
	}
	m.recent += float64(0.3 * (min(d, 0.5) - m.recent))
	d = max(-most, min(d, most))
	m.unrest += float64(rate * (math.Abs(d) - m.unrest))
	m.share += float64(rate * float64(m.share*d))
}

const (
	peersName    = "gvPE"
	peersVersion = 1
)

// MarshalBinary packs what is known of the members into 13 bytes and 52 for each. It
// never fails.
func (p *Peers) MarshalBinary() ([]byte, error) {
	w := newRecord(peersName, peersVersion, 13+52*len(p.members))
	w.u32(uint32(len(p.members)))
	for i := range p.members {
		m := &p.members[i]
		w.u32(m.steps)
		for _, x := range [...]float64{m.share, m.unrest, m.recent, m.fast.sum, m.slow.sum, m.score} {
			w.f64(x)
		}
	}
	return w.finish(), nil
}

// UnmarshalBinary takes up what MarshalBinary packed, of as many members. What is
// damaged or of another version is an error and leaves the detector as it was.
func (p *Peers) UnmarshalBinary(data []byte) error {
	r, err := openRecord(data, peersName, peersVersion, peersVersion)
	if err != nil {
		return err
	}
	if n := r.u32(); n != uint32(len(p.members)) {
		return fmt.Errorf("%w: it is of %d peers, and here are %d", errRecord, n, len(p.members))
	}
	members := make([]peer, len(p.members))
	for i := range members {
		members[i] = peer{steps: r.u32(), share: r.f64(), unrest: r.f64(), recent: r.f64(), fast: CUSUM{r.f64()}, slow: CUSUM{r.f64()}, score: r.f64()}
	}
	if err := r.finish(); err != nil {
		return err
	}
	p.members = members
	return nil
}
