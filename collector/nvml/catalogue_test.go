//go:build linux && cgo

package nvml

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// selectors are the integers behind the names that the catalogue uses.
var selectors = map[string]int{
	"GRAPHICS": 0, "SM": 1, "MEM": 2, "VIDEO": 3, "GPU": 0, "TX": 0, "RX": 1,
	"CORRECTED": 0, "UNCORRECTED": 1, "VOLATILE": 0, "AGGREGATE": 1,
}

// members are the numbers that a call answers with, in the fake's order.
var members = map[string][]string{
	"nvmlDeviceGetUtilizationRates":   {"gpu", "memory"},
	"nvmlDeviceGetMemoryInfo_v2":      {"total", "reserved", "free", "used"},
	"nvmlDeviceGetEncoderUtilization": {"", "period"},
	"nvmlDeviceGetDecoderUtilization": {"", "period"},
}

// clockEventBits are the reasons that hold, by their bits.
const clockEventBits = 0b101101101

// column is one number of the catalogue that the driver answers.
type column struct {
	*metric.Def
	i   int
	raw uint64
}

// answers are what the fake shall say, by entity and key: the columns of each number.
type answers map[[2]string][]column

// TestEveryRowOfTheCatalogue gives each row that comes from NVML a raw value of
// its own and looks for that value, converted, in the part.
func TestEveryRowOfTheCatalogue(t *testing.T) {
	n := newNode(t, 2)
	n.slice(1, 0)
	want := answers{}
	pick := picker()
	var lists []*metric.Def
	for _, d := range metric.All() {
		entity := map[metric.Entity]string{metric.GPU: fakenvml.GPU(0), metric.Instance: fakenvml.MIG(1, 0)}[d.Entity]
		switch {
		case d.NVML == "":
		case entity == "" || strings.Contains(d.NVML, "Processes"):
			lists = append(lists, d)
		case d == metric.ClockEvent:
			n.Set(entity, d.NVML, clockEventBits)
		default:
			want.add(t, entity, d, pick)
		}
	}
	want.set(n)
	n.Set(fakenvml.GPU(0), computeList, 4711, 5<<30)
	n.Add(fakenvml.GPU(0), computeList, 4712, 6<<30)
	n.Set(fakenvml.GPU(0), processUsage, 4712, 37, 1, 1, 1, "now")
	n.Add(fakenvml.MIG(1, 0), computeList, 7, 1<<30, 7, 0)
	n.Add(fakenvml.MIG(1, 0), computeList, 8, 1<<30, 7, 0)
	n.Add(fakenvml.MIG(1, 0), computeList, 9, 1<<30, 7, 0)
	n.start()
	n.complete()
	p := n.await("an Xid error and a count", func(p *collector.Part) bool { return n.xid(p) && p.Node.Has(metric.GPUsSeen) })

	for key, columns := range want {
		r := p.GPUs[0].Readings
		if key[0] == fakenvml.MIG(1, 0) {
			r = p.Instances[0].Readings
		}
		for _, c := range columns {
			if c.Def != nil {
				n.value(fmt.Sprintf("%s %s = %d", key[0], key[1], c.raw), r, c.Def, c.i, c.FromRaw(float64(c.raw)))
			}
		}
	}
	for i := range metric.ClockEvent.Width() {
		n.value("clock event", p.GPUs[0].Readings, metric.ClockEvent, i, float64(uint64(clockEventBits)>>i&1))
	}
	process := slices.IndexFunc(p.Processes, func(p collector.Process) bool { return p.PID == 4712 && p.GPU == 0 })
	for _, d := range lists {
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

// add makes a number for each column of the row. The catalogue names a call as
// nvmlFunction.member, nvmlFunction/{A,B}/C or field/ID.
func (a answers) add(t *testing.T, entity string, d *metric.Def, pick func(*metric.Def) uint64) {
	call, member, _ := strings.Cut(d.NVML, ".")
	keys := expand(t, call)
	if len(keys) != d.Width() {
		t.Errorf("%s has %d values and %s names %d calls", d, d.Width(), d.NVML, len(keys))
		return
	}
	for i, key := range keys {
		at := [2]string{entity, key}
		all := members[key]
		if a[at] == nil {
			a[at] = make([]column, max(1, len(all)))
		}
		a[at][max(0, slices.Index(all, member))] = column{d, i, pick(d)}
	}
}

// expand turns NVML/{A,B}/C into the keys NVML/0/2 and NVML/1/2.
func expand(t *testing.T, call string) []string {
	keys := []string{""}
	for part := range strings.SplitSeq(call, "/") {
		var next []string
		for _, key := range keys {
			for option := range strings.SplitSeq(strings.Trim(part, "{}"), ",") {
				if id, ok := selectors[option]; ok && key != "" {
					option = fmt.Sprint(id)
				} else if key != "" && !strings.HasPrefix(key, "field") {
					t.Errorf("%s: unknown selector %q", call, option)
				}
				next = append(next, strings.TrimPrefix(key+"/"+option, "/"))
			}
		}
		keys = next
	}
	return keys
}

func (a answers) set(n *node) {
	for _, key := range slices.SortedFunc(maps.Keys(a), func(a, b [2]string) int { return strings.Compare(a[1], b[1]) }) {
		var values []any
		if strings.HasPrefix(key[1], "field/") {
			values = append(values, "uint")
		}
		for _, c := range a[key] {
			values = append(values, c.raw)
		}
		n.Set(key[0], key[1], values...)
	}
}

// picker returns raw values that are plausible and, where the row's range has room
// for it, all different. What is 64 bits wide gets a value that 32 do not hold.
func picker() func(*metric.Def) uint64 {
	used := map[uint64]bool{}
	return func(d *metric.Def) uint64 {
		v := uint64(1)
		if d.Raw == "B" || d.Raw == "mJ" {
			v = 1 << 34
		}
		for used[v] {
			v++
		}
		for ; !d.Plausible(d.FromRaw(float64(v))); v-- {
		}
		used[v] = true
		return v
	}
}

func TestCallsOfARowShareItsTier(t *testing.T) {
	for _, c := range append(gpuCalls(), instanceCalls()...) {
		for _, d := range c.rows {
			if d.Tier != c.tier() {
				t.Errorf("%s fills %s of tier %v and %s of tier %v", c.function, c.rows[0], c.tier(), d, d.Tier)
			}
		}
	}
}

func TestEveryRowHasACall(t *testing.T) {
	filled := map[*metric.Def]bool{metric.GPUsSeen: true, metric.XidErrors: true}
	for _, c := range append(gpuCalls(), instanceCalls()...) {
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
