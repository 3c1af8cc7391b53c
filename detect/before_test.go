package detect

import (
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
)

// What is shown as "before" a finding is what may have led to it: not the comings and
// goings on the GPUs of others, nor the errors of their applications.
func TestBeforeIsOfTheSubject(t *testing.T) {
	mine := collector.Owner{Kind: "job", ID: "slurm/7", Team: "nlp"}
	other := collector.Owner{Kind: "pod", ID: "vision/a"}
	at := day.Add(time.Minute)
	owned := func(uuid, from, to string) collector.Event {
		return collector.Event{Time: at, Kind: collector.OwnerEvent, UUID: uuid, From: from, To: to}
	}
	log := eventLog{[]collector.Event{
		owned("GPU-0", "user:1", "user:2"),
		owned("GPU-1", "unattributed", other.String()),
		owned("GPU-1", "unattributed", mine.String()),
		owned("GPU-2", mine.String(), "unattributed"),
		{Time: at, Kind: collector.XidEvent, UUID: "GPU-1", Code: 31},
		{Time: at, Kind: collector.InventoryEvent, Owner: other, Component: "image"},
		{Time: at, Kind: collector.InventoryEvent, Owner: mine, Component: "image"},
		{Time: at, Kind: collector.VersionEvent, Component: "driver"},
		{Time: at, Kind: collector.XidEvent, UUID: "GPU-1", Code: 79},
		{Time: at, Kind: collector.XidEvent, UUID: "GPU-0", Code: 31},
		{Time: at, Kind: collector.XidEvent, UUID: "GPU-3", Code: 31},
		{Time: at, Kind: collector.XidEvent, Code: 31},
	}}
	s := node(at, 4)
	s.GPUs[1].Owners, s.GPUs[3].Owners = []collector.Owner{other}, []collector.Owner{mine}
	gpu := &collector.GPU{UUID: "GPU-0", Owners: []collector.Owner{mine}}
	for name, c := range map[string]struct {
		o    Observation
		want []int
	}{
		"a GPU of the job":     {Observation{Subject: gpuSubject("GPU-0"), GPU: gpu, Owner: mine}, []int{0, 2, 3, 6, 7, 8, 9, 10, 11}},
		"a GPU of nobody":      {Observation{Subject: gpuSubject("GPU-0"), GPU: &collector.GPU{UUID: "GPU-0"}}, []int{0, 7, 8, 9, 11}},
		"the job":              {Observation{Subject: Subject{"job", "slurm/7"}, Owner: mine}, []int{2, 3, 6, 7, 8, 10, 11}},
		"the node: all of it":  {Observation{Subject: Subject{"node", "n1"}}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		"a job that is not on": {Observation{Subject: Subject{"job", "slurm/8"}, Owner: collector.Owner{Kind: "job", ID: "slurm/8"}}, []int{7, 8, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			told := log.before(day.Add(2*time.Minute), &c.o, s)
			for i, ev := range log.events {
				if got := slices.Contains(told, ev); got != slices.Contains(c.want, i) {
					t.Errorf("%s %d %s %s -> %s is told as what was before: %t, want %t", ev.Kind, ev.Code, ev.UUID, ev.From, ev.To, got, !got)
				}
			}
		})
	}
}
