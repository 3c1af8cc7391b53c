package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// crowd gives a node so many owners and ports.
func crowd(w *world, owners, ports int) *world {
	for i := range owners {
		w.snap.Workloads = append(w.snap.Workloads, collector.Workload{
			Owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("a/%03d", i), Team: "nlp"}, Readings: everything(metric.Workload, signals, nil),
			Caveats: []collector.Caveat{{Fact: "block", Reason: "network_file_systems"}, {Fact: "network_file", Reason: "not_enabled"}},
			Remotes: []netip.Addr{netip.MustParseAddr("198.51.100.7")},
		})
	}
	for i := range ports {
		w.snap.Interfaces = append(w.snap.Interfaces, collector.Interface{Device: fmt.Sprintf("mlx5_%02d", i), Port: 1,
			LinkLayer: "InfiniBand", State: "ACTIVE", PhysicalState: "LinkUp", Readings: everything(metric.Interface, nil, nil)})
	}
	return w
}

// signals are what only a workload itself can tell.
var signals = func() map[*metric.Def]bool {
	out := map[*metric.Def]bool{}
	for _, d := range []*metric.Def{
		metric.WorkloadSteps, metric.WorkloadSamples, metric.WorkloadTokens, metric.WorkloadStep, metric.WorkloadEpoch, metric.WorkloadLoss,
		metric.WorkloadStepTime, metric.WorkloadStepRate, metric.WorkloadSampleRate, metric.WorkloadTokenRate, metric.WorkloadLoaderWait,
		metric.WorkloadProgress, metric.WorkloadCheckpoint, metric.WorkloadFinished, metric.WorkloadSignalAge,
	} {
		out[d] = true
	}
	return out
}()

// A training that tells all there is, with as many figures of quality as are taken, and
// what the ledger makes of it.
func TestSignalsKeepWithinTheBudget(t *testing.T) {
	quiet := busyNode(1, 0)
	_, before := series(t, quiet)
	w := busyNode(1, 0)
	told := &w.snap.Workloads[0]
	told.Readings = everything(metric.Workload, nil, nil)
	for i := range 16 {
		told.Quality = append(told.Quality, collector.Figure{Name: fmt.Sprint("figure", i), Value: 1})
	}
	w.booked.Work = []cost.OwnerWork{{Owner: told.Owner, Currency: "USD", Tells: true, Work: cost.Work{Units: [cost.Units]int64{1, 1, 1, 0}},
		UnitCost: [cost.Units]float64{1, 1, 1, math.NaN()}, UnitEnergy: [cost.Units]float64{1, 1, 1, math.NaN()}}}
	_, after := series(t, w)
	t.Logf("a workload that tells of its work: %d series", after-before)
	if after-before > signalBudget || after-before < len(signals)+16 {
		t.Errorf("a workload that tells of its work has %d series more, the budget is %d", after-before, signalBudget)
	}
}

func busyNode(owners, ports int) *world {
	return crowd(fullNode(notOnHopper, byLocation), owners, ports)
}

// seriesOf returns how many series have a name that begins so.
func seriesOf(t *testing.T, w *world, prefix string) (n int) {
	t.Helper()
	for _, f := range gather(t, w.server(t)) {
		if strings.HasPrefix(f.GetName(), prefix) {
			n += len(f.Metric)
		}
	}
	return n
}

func TestBusyHostKeepsWithinTheBudget(t *testing.T) {
	w := busyNode(8, 8)
	_, host := series(t, w)
	t.Logf("a host with 8 owners and 8 adapters: %d series", host)
	if host > hostBudget {
		t.Errorf("a host with 8 owners and 8 adapters has %d series, the budget is %d", host, hostBudget)
	}
}

func TestOwnersAndPortsAreBounded(t *testing.T) {
	w := busyNode(maxWorkloads+5, maxPorts+3)
	given := collector.Workload{Owner: collector.Owner{Kind: "job", ID: "given"}}
	w.snap.Workloads = append([]collector.Workload{given}, w.snap.Workloads...)
	before, portsBefore := cappedWorkloads.Get(), cappedPorts.Get()
	if got := seriesOf(t, w, "vigil_workload_cpu_seconds_total"); got != maxWorkloads {
		t.Errorf("%d owners have series, want the %d that are looked at", got, maxWorkloads)
	}
	if got := seriesOf(t, w, "vigil_interface_up"); got != maxPorts {
		t.Errorf("%d ports have series, want %d", got, maxPorts)
	}
	if workloads, ports := cappedWorkloads.Get()-before, cappedPorts.Get()-portsBefore; workloads != 2*6 || ports != 2*3 {
		t.Errorf("two scrapes left out %d owners and %d ports, want 6 and 3 each", workloads, ports)
	}
	w.full = true
	if got := seriesOf(t, w, "vigil_interface_up"); got != maxPorts+3 {
		t.Errorf("in the full profile %d ports have series, want all", got)
	}
}

// Addresses are for the evidence of a finding, never for a metric or an answer.
func TestNoAddressLeavesThePage(t *testing.T) {
	w := busyNode(1, 1)
	for _, f := range gather(t, w.server(t)) {
		if strings.Contains(fmt.Sprint(f.Metric), "198.51.100.7") {
			t.Errorf("%s tells an address", f.GetName())
		}
	}
	body := get(t, w.server(t), "/api/v1/snapshot").Body.String()
	var answer Snapshot
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(body, "198.51.100.7") {
		t.Error("the API tells an address")
	}
	if len(answer.Workloads) != 1 || len(answer.Interfaces) != 1 || len(answer.Workloads[0].Caveats) != 2 || answer.Workloads[0].Readings["vigil_workload_cpu_seconds_total"] != 0 {
		t.Errorf("the API tells of owners %+v and ports %+v", answer.Workloads, answer.Interfaces)
	}
}
