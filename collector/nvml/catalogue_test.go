//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/fakenvml/everyrow"
	"gpuvigil/internal/metric"
)

// TestEveryRowOfTheCatalogue gives each row that comes from NVML a raw value of
// its own and looks for that value, converted, in the part.
func TestEveryRowOfTheCatalogue(t *testing.T) {
	n := newNode(t, 2)
	n.slice(1, 0)
	want, lists, err := everyrow.Fill(&n.File, map[metric.Entity]string{metric.GPU: fakenvml.GPU(0), metric.Instance: fakenvml.MIG(1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	n.Set(fakenvml.GPU(0), computeList, 4711, 5<<30)
	n.Add(fakenvml.GPU(0), computeList, 4712, 6<<30)
	n.Set(fakenvml.GPU(0), processUsage, 4712, 37, 11, 12, 13, "now")
	n.Set(fakenvml.Sys, "nvmlSystemGetConfComputeState", 1, 1, 0)
	for _, device := range []string{fakenvml.GPU(0), fakenvml.GPU(1)} {
		n.Set(device, gpmSupport, 1)
	}
	for link, state := range []int{1, 1, 0, 1} {
		n.Set(fakenvml.GPU(0), fakenvml.Field(165, uint32(link)), "uint", state)
	}
	n.Add(fakenvml.MIG(1, 0), computeList, 7, 1<<30, 7, 0)
	n.Add(fakenvml.MIG(1, 0), computeList, 8, 1<<30, 7, 0)
	n.Add(fakenvml.MIG(1, 0), computeList, 9, 1<<30, 7, 0)
	n.start()
	n.complete()
	p := n.await("an Xid error and a count", func(p *collector.Part) bool {
		return n.xid(p) && p.Node.Has(metric.GPUsSeen) && p.GPUs[0].Has(metric.SMActivity) && p.Instances[0].Has(metric.MIGSMActivity)
	})

	for _, c := range want {
		r := p.GPUs[0].Readings
		if c.Entity == metric.Instance {
			r = p.Instances[0].Readings
		}
		n.value(fmt.Sprintf("%s %s = %d", c.Device, c.Key, c.Raw), r, c.Def, c.At, c.Want())
	}
	process := slices.IndexFunc(p.Processes, func(p collector.Process) bool { return p.PID == 4712 && p.GPU == 0 })
	for _, d := range lists {
		if d.Entity == metric.Link {
			continue // the full profile's; see TestEachLinkInTheFullProfile
		}
		switch d {
		case metric.ProcessCount:
			n.value("two processes", p.GPUs[0].Readings, d, 0, 2)
		case metric.ProcessMemory:
			n.value("two processes", p.GPUs[0].Readings, d, 0, 11<<30)
		case metric.MIGProcesses:
			n.value("three processes", p.Instances[0].Readings, d, 0, 3)
		case metric.ProcessMemoryUsed:
			n.value("process", p.Processes[process].Readings, d, 0, 6<<30)
		case metric.ProcessUtilization:
			n.value("process", p.Processes[process].Readings, d, 0, d.FromRaw(37))
		case metric.ProcessMemoryUtilization:
			n.value("process", p.Processes[process].Readings, d, 0, d.FromRaw(11))
		case metric.ProcessEncoder:
			n.value("process", p.Processes[process].Readings, d, 0, d.FromRaw(12))
		case metric.ProcessDecoder:
			n.value("process", p.Processes[process].Readings, d, 0, d.FromRaw(13))
		case metric.NVLinksUp:
			n.value("four links", p.GPUs[0].Readings, d, 0, 3)
		case metric.ConfidentialComputing:
			n.value("node", p.Node.Readings, d, 0, 1)
		case metric.GPUsSeen:
			n.value("node", p.Node.Readings, d, 0, 2)
		case metric.XidErrors:
			if x := p.GPUs[0].Xids[0]; x.Code != 31 || x.Count == 0 {
				t.Errorf("%s: %+v, want code 31", d, x)
			}
		default:
			t.Errorf("%s comes from %s, and this test does not know how to set that", d, d.NVML)
		}
	}
}

func TestCallsOfARowShareItsTier(t *testing.T) {
	for _, c := range slices.Concat(gpuCalls("580"), instanceCalls(), linkCalls()) {
		for _, d := range c.rows {
			if d.Tier != c.tier() {
				t.Errorf("%s fills %s of tier %v and %s of tier %v", c.function, c.rows[0], c.tier(), d, d.Tier)
			}
		}
	}
}

func TestEveryRowHasACall(t *testing.T) {
	filled := map[*metric.Def]bool{metric.GPUsSeen: true, metric.XidErrors: true, metric.ConfidentialComputing: true}
	for _, c := range slices.Concat(gpuCalls("580"), instanceCalls(), linkCalls()) {
		for _, d := range c.rows {
			filled[d] = true
		}
	}
	for _, d := range metric.All() {
		if (d.NVML != "") != filled[d] {
			t.Errorf("%s: the catalogue says NVML %q, and a call fills it: %v", d, d.NVML, filled[d])
		}
	}
}
