package server

import (
	"fmt"
	"math"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// The budget of the default profile, for each GPU and for the host.
const (
	gpuBudget  = 150
	hostBudget = 400
	// of each model of an inference server, and of the page that tells of it
	modelBudget  = 100
	targetBudget = 8
	// of each workload that tells of its own work, beside what is known of every workload
	signalBudget = 50
)

// notOnHopper are rows of other generations: what came before or after, and what
// needs a licence or a CPU on the same module.
var notOnHopper = map[*metric.Def]bool{
	metric.FanSpeed: true, metric.RetiredPages: true, metric.RetiredPending: true,
	metric.NVLink5Errors: true, metric.NVLink5Drops: true, metric.NVLinkBER: true, metric.NVLinkFEC: true,
	metric.C2CLinks: true, metric.C2CErrors: true, metric.NUMANode: true, metric.VGPULicensed: true, metric.VGPUs: true,
	metric.RemapInactive: true, metric.BankRemapPending: true, metric.RepairPending: true,
	metric.EncoderSessions: true, metric.EncoderFrames: true, metric.EncoderLatency: true,
}

// notOnBlackwell are those that NVLink 5 and Blackwell do not tell.
var notOnBlackwell = map[*metric.Def]bool{
	metric.FanSpeed: true, metric.RetiredPages: true, metric.RetiredPending: true, metric.NVLinkErrors: true,
	metric.C2CLinks: true, metric.C2CErrors: true, metric.VGPULicensed: true,
}

// byLocation are the rows that tell of DRAM and SRAM only, since Turing.
var byLocation = map[*metric.Def]bool{
	metric.ECCCorrected: true, metric.ECCUncorrected: true, metric.ECCLifetimeCorrected: true, metric.ECCLifetimeUncorrected: true,
}

// everything fills each reading that an entity can have.
func everything(e metric.Entity, without, two map[*metric.Def]bool) collector.Readings {
	r := collector.NewReadings(e)
	for _, d := range metric.Of(e) {
		if without[d] {
			continue
		}
		width := d.Width()
		if d.Dim != nil && d.Dim.Shown > 0 {
			width = min(width, d.Dim.Shown) // the source tells no more in this profile
		}
		for i := range width {
			if !two[d] || i < 2 {
				r.SetAt(d, i, max(d.Min, 0))
			}
		}
	}
	return r
}

// fullNode is a node of 8 GPUs of which everything is known, with an Xid error
// and two owners each, and a process of which nobody knows whose it is.
func fullNode(without, two map[*metric.Def]bool) *world {
	now := soon()
	s := &collector.Snapshot{Time: now, Node: collector.Node{Name: "gpu-117", Readings: everything(metric.Node, nil, nil)}}
	for _, v := range metric.VersionParts.Values {
		if v == "docker" || v == "crio" {
			continue // containerd runs the containers
		}
		s.Node.Versions = append(s.Node.Versions, collector.Version{Component: v, Value: "1"})
	}
	for _, name := range []string{"nvml", "host", "inference"} {
		s.Sources = append(s.Sources, collector.SourceState{Name: name, Last: now, Expected: true})
	}
	for i := range 8 {
		g := h100(i, now)
		g.Readings = everything(metric.GPU, without, two)
		g.Stamp(metric.Fast, now)
		g.Xids = []collector.XidCount{{Code: 31, Count: 1, Last: now}}
		g.Owners = []collector.Owner{{Kind: "job", ID: "slurm/1"}, {Kind: "pod", ID: "a/b"}}
		for n, o := range append(g.Owners, collector.Owner{}) {
			p := collector.Process{PID: 100*i + n + 1, GPU: i, UUID: g.UUID, Owner: o, Readings: everything(metric.Process, nil, nil)}
			set(p.Readings, metric.ProcessMemoryUsed, 1<<30, metric.ProcessUtilization, 0.2)
			s.Processes = append(s.Processes, p)
			if o != (collector.Owner{}) {
				g.Allocations = append(g.Allocations, collector.Allocation{UUID: g.UUID, Owner: o, Resource: "nvidia.com/gpu", Source: "kubelet"})
			}
		}
		for d := range without {
			if d.Entity == metric.GPU {
				g.Unsupported = append(g.Unsupported, d)
			}
		}
		s.GPUs = append(s.GPUs, g)
		if i < 7 {
			s.GPUs[i].Paths = []collector.Path{{UUID: h100(i+1, now).UUID, Level: "system"}}
		}
		for n := range 18 {
			s.Links = append(s.Links, collector.Link{GPU: i, UUID: g.UUID, Number: n, Readings: everything(metric.Link, nil, nil)})
		}
	}
	s.Inventory = unprivileged()
	var standings []detect.Standing
	for _, r := range rules.All() {
		standings = append(standings, detect.Standing{Rule: r.ID, Statistical: r.Statistical, Need: 2.2, NeedPage: 4.5, CleanWeeks: 12, ProofWeeks: 33})
	}
	return &world{snap: s, booked: fullHour(s), view: &detect.View{Time: s.Time, Standings: standings}}
}

// fullHour is what is exported of GPUs on each of which two owners were in every
// state within an hour, with prices of each kind.
func fullHour(s *collector.Snapshot) *cost.Export {
	x := &cost.Export{}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		for state := range cost.States {
			owners := []collector.Owner{{}}
			if state <= cost.HeldWithoutProcess {
				owners = g.Owners
			}
			for _, o := range owners {
				x.Accounts = append(x.Accounts, cost.Account{Key: cost.Key{UUID: g.UUID, Owner: o, State: state}, GPU: i, Model: g.Model, Currency: "USD",
					Amounts: cost.Amounts{Time: 1, List: 1, Contracted: 1, Effective: 1, Electric: 1, Energy: 1, Carbon: 1}})
			}
		}
		x.Prices = append(x.Prices, cost.Price{GPU: i, UUID: g.UUID, Model: g.Model, Kind: "contracted", Nano: 1, Currency: "USD"})
	}
	for _, o := range append(s.GPUs[0].Owners, collector.Owner{}) {
		x.Owners = append(x.Owners, cost.OwnerEnergy{Owner: o, Model: s.GPUs[0].Model, Currency: "USD", Amounts: cost.Amounts{Electric: 1, Energy: 1, Carbon: 1}})
	}
	for _, team := range []string{"assistants", "nlp"} {
		x.Months = append(x.Months, cost.TeamMonth{Team: team, Currency: "USD", End: &cost.Projection{}})
	}
	return x
}

// unprivileged is the inventory of eight owners without privileges: what they have
// loaded and from which images takes some.
func unprivileged() *collector.Inventory {
	i := &collector.Inventory{Datasets: []collector.Dataset{{Kind: "lustre"}, {Kind: "nfs"}}}
	for n := range 8 {
		o := collector.Owner{Kind: "pod", ID: fmt.Sprintf("a/b-%d", n)}
		i.Datasets = append(i.Datasets, collector.Dataset{Owner: o, Kind: "claim"})
		i.APIs = append(i.APIs, collector.API{Owner: o, Port: 8000})
	}
	return i
}

// series counts a page's series of the first GPU and of the host.
func series(t *testing.T, w *world) (gpu, host int) {
	t.Helper()
	for _, f := range gather(t, w.server(t)) {
	samples:
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "uuid" {
					if l.GetValue() == w.snap.GPUs[0].UUID {
						gpu++
					}
					continue samples
				}
			}
			host++
		}
	}
	return gpu, host
}

func TestFullGPUKeepsWithinTheBudget(t *testing.T) {
	for name, w := range map[string]*world{
		"an H100 that tells everything": fullNode(notOnHopper, byLocation),
		"a B200 that tells everything":  fullNode(notOnBlackwell, byLocation),
	} {
		gpu, host := series(t, w)
		t.Logf("%s: %d series, its host: %d", name, gpu, host)
		if gpu > gpuBudget {
			t.Errorf("%s has %d series, the budget is %d: make details of some rows", name, gpu, gpuBudget)
		}
		if host > hostBudget {
			t.Errorf("the host of %s has %d series, the budget is %d", name, host, hostBudget)
		}
	}
}

// A model whose server tells all there is, in histograms of 40 buckets as the
// largest ones have.
func TestModelKeepsWithinTheBudget(t *testing.T) {
	bounds := make([]float64, 40)
	for i := range bounds {
		bounds[i] = 0.001 * math.Pow(1.5, float64(i))
	}
	now := soon()
	e := collector.Endpoint{URL: "http://a/metrics", Engine: "vllm", Model: "m", Readings: everything(metric.Endpoint, nil, nil)}
	for _, d := range metric.Of(metric.Latency) {
		e.Histograms = append(e.Histograms, collector.Histogram{Row: d, Bounds: bounds, Counts: make([]uint64, len(bounds)+1)})
	}
	failing := map[*metric.Def]bool{metric.TargetFailing: true} // one of the reasons, if any
	w := &world{snap: &collector.Snapshot{Time: now, Endpoints: []collector.Endpoint{e},
		Targets: []collector.Target{{URL: e.URL, Readings: everything(metric.Target, failing, nil)}}}}
	model, target := 0, 1
	for _, f := range gather(t, w.server(t)) {
		for _, m := range f.Metric {
			n := 1
			if h := m.Histogram; h != nil {
				n = len(h.Bucket) + 2 // count, sum
			}
			switch {
			case len(m.Label) > 0 && m.Label[0].GetName() == "endpoint" && len(m.Label) >= 3:
				model += n
			case len(m.Label) > 0 && m.Label[0].GetName() == "endpoint":
				target += n
			}
		}
	}
	t.Logf("a model has %d series, its target %d", model, target)
	if model > modelBudget || target > targetBudget {
		t.Errorf("a model has %d series and its target %d, the budgets are %d and %d", model, target, modelBudget, targetBudget)
	}
}

func TestDetailsAreSeriesInTheFullProfileOnly(t *testing.T) {
	w := crowd(fullNode(nil, nil), 1, 1)
	seen := func() map[string]bool {
		names := map[string]bool{}
		for _, f := range gather(t, w.server(t)) {
			names[f.GetName()] = true
		}
		return names
	}
	few := seen()
	w.full = true
	all := seen()
	gpu, _ := series(t, w)
	t.Logf("in the full profile: %d series", gpu)
	for _, d := range metric.All() {
		if d.Detail && d.Entity != metric.Instance && d != metric.DetectorSeconds && // of engines, of which there is none here
			(few[d.Name] || !all[d.Name]) {
			t.Errorf("%s is a detail: in the default profile %v, in the full one %v", d, few[d.Name], all[d.Name])
		}
	}
	if links := fmt.Sprint(all["vigil_nvlink_up"], few["vigil_nvlink_up"]); links != "true false" {
		t.Errorf("links are series in the full and the default profile: %s", links)
	}
}
