package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// ofNobody is a node on which nobody knows whose anything is.
func ofNobody() *world {
	now := soon()
	nobody := collector.Owner{}
	w := node(now)
	w.full = true
	w.snap.Processes, w.snap.Endpoints, w.snap.Instances = nil, nil, nil
	process(w.snap, 0, 1, "python", nobody, 1<<30, 0.5)
	uuid := w.snap.GPUs[0].UUID
	for i := range w.snap.GPUs {
		w.snap.GPUs[i].Owners, w.snap.GPUs[i].Allocations = nil, nil
	}
	w.snap.GPUs[0].Allocations = []collector.Allocation{{UUID: uuid, Resource: "nvidia.com/gpu", Source: "kubelet"}}
	w.snap.Inventory = running(now, nobody)
	w.snap.Workloads = []collector.Workload{{Readings: everything(metric.Workload, nil, nil), Quality: []collector.Figure{{Name: "f1", Value: 1}},
		Caveats: []collector.Caveat{{Fact: "nfs", Reason: "forbidden"}}, Labels: []collector.Label{{Name: "app", Value: "a"}}}}
	amounts := cost.Amounts{Time: 1, List: 1, Contracted: 1, Effective: 1, Electric: 1, Energy: 1, Carbon: 1}
	work := cost.OwnerWork{Currency: "USD", Tells: true, Work: cost.Work{LostCost: 1, Lost: 1, Kept: 1, Interruptions: 1}}
	for i := range cost.Units {
		work.Units[i], work.UnitCost[i], work.UnitEnergy[i] = 1, 1, 1
	}
	w.booked = &cost.Export{
		Accounts: []cost.Account{{Key: cost.Key{UUID: uuid, State: cost.Busy}, Model: "H100", Currency: "USD", Amounts: amounts}},
		Owners:   []cost.OwnerEnergy{{Model: "H100", Currency: "USD", Amounts: amounts}},
		Work:     []cost.OwnerWork{work},
	}
	return w
}

// TestUnattributedIsSpeltAlikeEverywhere goes through the catalogue: a series that spelt
// nobody in its own way would be lost in each join with vigil_owner_info.
func TestUnattributedIsSpeltAlikeEverywhere(t *testing.T) {
	never := map[*metric.Def]string{metric.EndpointOwnerInfo: "a server without an owner has none"}
	page := plainText(t, ofNobody().server(t))
	for _, d := range metric.All() {
		if !slices.Contains(d.LabelNames(), "owner") || d.Entity == metric.Job || never[d] != "" {
			continue
		}
		tried := false
		for line := range strings.Lines(page) {
			if name, _, _ := strings.Cut(line, "{"); name != d.Name {
				continue
			}
			tried = true
			if !strings.Contains(line, `owner="unattributed"`) || !strings.Contains(line, `owner_kind="unattributed"`) {
				t.Errorf("what nobody owns is lost in a join: %s", line)
			}
		}
		if !tried {
			t.Errorf("%s has the labels of owners and is not tried here", d.Name)
		}
	}
}

// Whatever a series of nobody is about, vigil_owner_info has nobody to join with.
func TestWhatNobodyOwnsCanBeJoined(t *testing.T) {
	described := metric.OwnerInfo.Series(metric.Unattributed, metric.Unattributed, "", "", "", "", "false")
	w := ofNobody()
	w.snap.Workloads, w.snap.Processes, w.booked = nil, nil, nil
	w.snap.GPUs[0].Allocations = nil
	if page := plainText(t, w.server(t)); strings.Count(page, described+" 1\n") != 1 {
		t.Errorf("libraries and ports of nobody cannot be joined: %s is not on the page once", described)
	}
	w.snap.Inventory, w.snap.Time = nil, w.snap.Time.Add(time.Second)
	if page := plainText(t, w.server(t)); strings.Contains(page, described) {
		t.Errorf("nothing is nobody's, and the page has %s", described)
	}
}
