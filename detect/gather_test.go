package detect

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// gatherStage tells a Gatherer what many nodes find.
type gatherStage struct {
	g     *Gatherer
	now   time.Time
	nodes int
	found map[string][]Finding // by node
	told  map[string]Incident  // by id, as last told
}

func newGatherStage(nodes int) *gatherStage {
	return &gatherStage{g: NewGatherer(GathererConfig{}), now: day, nodes: nodes, found: map[string][]Finding{}, told: map[string]Incident{}}
}

func (s *gatherStage) find(i int, id rules.ID, cause string, owner collector.Owner) {
	name := nodeName(i)
	s.found[name] = append(s.found[name], Finding{Rule: id, Subject: gpuSubject("GPU-" + name), Cause: cause, Severity: rules.Ticket, State: Firing, Since: s.now, Fired: s.now, LastSeen: s.now, Node: name, Owner: owner})
}

func (s *gatherStage) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(30 * time.Second)
		var heard []Heard
		for i := range s.nodes {
			heard = append(heard, Heard{Node: nodeName(i), Findings: append([]Finding(nil), s.found[nodeName(i)]...), Snapshot: &collector.Snapshot{Node: collector.Node{Name: nodeName(i)}}})
		}
		for _, in := range s.g.Gather(s.now, heard) {
			s.told[in.ID] = in
		}
	}
}

// Where findings of a kind begin all day long, that two do so within minutes says nothing;
// that many do does.
func TestFrequentFindingsStayApart(t *testing.T) {
	s := newGatherStage(160)
	for i := range 96 { // one each quarter of an hour
		s.find(i, rules.IDIdleGPU, "held", collector.Owner{Kind: "pod", ID: fmt.Sprint("ns/p", i)})
		s.run(2 * time.Minute)
		s.now = s.now.Add(13 * time.Minute)
	}
	s.told = map[string]Incident{}
	s.find(96, rules.IDIdleGPU, "held", collector.Owner{Kind: "pod", ID: "ns/a"})
	s.run(2 * time.Minute)
	s.find(97, rules.IDIdleGPU, "held", collector.Owner{Kind: "pod", ID: "ns/b"})
	s.run(5 * time.Minute)
	if len(s.told) != 2 {
		t.Errorf("two of a hundred owners a day who hold idle GPUs are told as %d incidents, want one each", len(s.told))
	}
	s.told = map[string]Incident{}
	for i := range 60 {
		s.find(100+i, rules.IDIdleGPU, "held", collector.Owner{Kind: "pod", ID: fmt.Sprint("ns/q", i)})
	}
	s.run(5 * time.Minute)
	if len(s.told) != 1 {
		t.Errorf("sixty at once are told as %d incidents, want one", len(s.told))
	}
}

// An incident's members are bounded, and what is beyond them keeps it open.
func TestMembersOfAnIncidentAreBounded(t *testing.T) {
	const nodes = maxMembers + 100
	s := newGatherStage(nodes)
	for i := range nodes {
		s.find(i, rules.IDVersionMismatch, "known_bad", collector.Owner{})
	}
	s.run(2 * time.Minute)
	if len(s.told) != 1 {
		t.Fatalf("told are %d incidents, want one", len(s.told))
	}
	check := func(members, unlisted int, state State) {
		t.Helper()
		for _, in := range s.told {
			firing := 0
			for _, f := range in.Members {
				if f.State == Firing {
					firing++
				}
			}
			if firing != members || in.Unlisted != unlisted || in.State != state {
				t.Errorf("it has %d members that fire and %d beyond them and is %s, want %d, %d and %s", firing, in.Unlisted, in.State, members, unlisted, state)
			}
		}
	}
	check(maxMembers, 100, Firing)
	state, err := s.g.Save()
	if err != nil {
		t.Fatal(err)
	}
	s.g = NewGatherer(GathererConfig{})
	if err := s.g.Restore(state); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.found))[:maxMembers] {
		delete(s.found, name)
	}
	s.run(3 * time.Minute)
	check(0, 100, Firing)
	clear(s.found)
	s.run(3 * time.Minute)
	check(0, 0, Resolved)
}

// A finding that is seen once, and not again, is told to nobody.
func TestOneLookTellsNobody(t *testing.T) {
	s := newGatherStage(10)
	s.run(20 * time.Minute)
	s.find(3, rules.IDGPULost, "gone", collector.Owner{})
	s.run(30 * time.Second)
	clear(s.found)
	s.run(10 * time.Minute)
	if len(s.told) > 0 {
		t.Errorf("what one look saw is told: %+v", s.told)
	}
}

// What a demo makes up beside real nodes never speaks for them, nor they for it.
func TestWhatIsSimulatedAndWhatIsRealAreNeverOneIncident(t *testing.T) {
	const nodes = 40
	s := newGatherStage(nodes)
	for i := range nodes {
		s.find(i, rules.IDVersionMismatch, "known_bad", collector.Owner{})
		s.found[nodeName(i)][0].Simulated = i%2 == 0
	}
	s.run(2 * time.Minute)
	if len(s.told) != 2 {
		t.Errorf("one roll-out on real nodes and one on simulated ones are told as %d incidents", len(s.told))
	}
	for _, in := range s.told {
		for _, m := range in.Members {
			if m.Simulated != in.Members[0].Simulated {
				t.Fatalf("incident %s has simulated members and real ones", in.ID)
			}
		}
	}
}
