package stream

import (
	"math"
	"testing"
	"time"
)

// grown is a peer with ten days of history of the daily course that day makes.
func grown() *Level {
	var l Level
	scores(&l, 0, day(10*1440, 31))
	return &l
}

func TestAMemberWithAPriorJudgesAfterHalfAnHour(t *testing.T) {
	const from = 10 * 1440
	x := day(from+120, 37)[from:]
	for k := 45; k < 60; k++ {
		x[k] *= 3
	}
	var plain, member Level
	member.StartFrom(grown())
	if n, _ := raised(scores(&plain, from, x[:60])); n != 0 {
		t.Errorf("a series without history raised %d alarms in its first hour", n)
	}
	s := scores(&member, from, x)
	if n, _ := raised(s[:45]); n != 0 {
		t.Errorf("a usual series raised %d alarms in its first 45 min", n)
	}
	if _, first := raised(s); first < 45 || first > 50 {
		t.Errorf("what triples from minute 45 on is an alarm at minute %d", first)
	}
}

func TestAMemberJudgesNothingInItsFirstHalfHour(t *testing.T) {
	var member Level
	member.StartFrom(grown())
	x := day(29, 41)
	for i := range x {
		x[i] *= float64(1 + i%7)
	}
	if n, first := raised(scores(&member, 10*1440, x)); n != 0 {
		t.Errorf("alarm at minute %d, before the member is known at all", first)
	}
}

// A prior is no claim that members are at one level: a member has its own, and soon its
// own history.
func TestAMemberLearnsItsOwnLevel(t *testing.T) {
	const from = 10 * 1440
	var member Level
	member.StartFrom(grown())
	x := day(from+5*1440, 43)[from:]
	for i := range x {
		x[i] *= 1.3
	}
	s := scores(&member, from, x)
	if n, first := raised(s[2*1440:]); n > 3 {
		t.Errorf("from its third day to its fifth a member that is always 30 %% above its peer raises %d alarms, the first at %d", n, first)
	}
}

func TestStartFromLeavesThePeerAlone(t *testing.T) {
	peer := grown()
	before, err := peer.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var member Level
	member.StartFrom(peer)
	scores(&member, 10*1440, day(3*1440, 47))
	after, err := peer.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("a peer changes with what its member sees")
	}
}

// However long the peer's history is, it counts for some samples.
func TestAPriorIsBounded(t *testing.T) {
	var member Level
	member.StartFrom(grown())
	for k := range member.tails {
		if n := float64(uint64(member.tails[k].total)<<member.tails[k].shift) / member.unit; n > priorSamples {
			t.Errorf("statistic %d counts %g samples of the peer, want at most %d", k, n, priorSamples)
		}
	}
	if !member.Young() || member.Open() || member.Evidence() != 0 {
		t.Error("a member begins with an alarm of its peer, or is not young")
	}
}

func TestAYoungPeerIsNoPrior(t *testing.T) {
	var peer, member Level
	scores(&peer, 0, day(30, 1))
	member.StartFrom(&peer)
	if member != (Level{}) {
		t.Error("a peer that judges nothing yet is taken for a prior")
	}
}

// A restart between the prior and the first sample changes nothing.
func TestAMemberIsSavedBeforeItsFirstSample(t *testing.T) {
	var a, b Level
	a.StartFrom(grown())
	state, err := a.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.UnmarshalBinary(state); err != nil {
		t.Fatal(err)
	}
	x := day(600, 53)
	want := scores(&a, 10*1440, x)
	for i, s := range scores(&b, 10*1440, x) {
		if s != want[i] {
			t.Fatalf("after the restart sample %d scores %g, not %g", i, s, want[i])
		}
	}
}

// The unit, and when the member begins, do not matter.
func TestAMemberDoesNotKnowTheUnitNorTheDate(t *testing.T) {
	x := day(2000, 59)
	x[1500] *= 5
	run := func(unit float64, later time.Duration) []float64 {
		var peer, member Level
		for i, v := range day(10*1440, 31) {
			peer.Add(start.Add(time.Duration(i)*time.Minute), v*unit)
		}
		member.StartFrom(&peer)
		s := make([]float64, len(x))
		for i := range x {
			s[i] = member.Add(start.Add(10*24*time.Hour+later+time.Duration(i)*time.Minute), x[i]*unit)
		}
		return s
	}
	want := run(1, 0)
	for i, s := range run(1<<20, 7*24*time.Hour) {
		if math.Abs(s-want[i]) > 1e-6 {
			t.Fatalf("in another unit and a week later sample %d scores %g, not %g", i, s, want[i])
		}
	}
}
