// Package everyrow lets the fake NVML library answer for every row of the
// catalogue with a number of its own, so that a reading that is mixed up with
// another, converted wrongly or not read at all is found out, whoever reads it.
package everyrow

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// Column is one number of the catalogue and what the fake answers for it.
type Column struct {
	*metric.Def
	At     int    // position in the row's dimension
	Device string // of the fake: gpu0, gpu1.mig0
	Key    string // that answers with it
	Raw    uint64 // in NVML's unit
}

// Want is what a reader must make of the number, in the row's base unit.
func (c Column) Want() float64 {
	if c.Def == metric.NVLinkBER {
		return 3e-12
	}
	return c.FromRaw(float64(c.Raw))
}

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
	"nvmlDeviceGetJpgUtilization":     {"", "period"},
	"nvmlDeviceGetOfaUtilization":     {"", "period"},
	"nvmlDeviceGetEncoderStats":       {"sessionCount", "averageFps", "averageLatency"},
	"nvmlDeviceGetBAR1MemoryInfo":     {"total", "free", "used"},
	"nvmlDeviceGetEccMode":            {"current", "pending"},
	"nvmlDeviceGetGspFirmwareMode":    {"current", "default"},
	"nvmlDeviceGetFBCStats":           {"sessionsCount", "averageFPS", "averageLatency"},
	"nvmlDeviceGetRepairStatus":       {"channel", "tpc"},
	"nvmlDeviceGetGpuFabricInfoV":     {"status", "clique", "state", "mask", "summary"},

	"nvmlDeviceGetPowerManagementLimitConstraints": {"min", "max"},
	"nvmlDeviceGetConfComputeProtectedMemoryUsage": {"total", "free", "used"},
	"nvmlDeviceGetRowRemapperHistogram":            {"max", "high", "partial", "low", "none"},
	"nvmlDeviceGetSramEccErrorStatus": {
		"parity", "secded", "", "", "", "", "l2", "sm", "pcie", "mcu", "other", "threshold",
	},
}

// clockEventBits are the reasons that hold, by their bits.
const clockEventBits = 0b10101101101

// Fill sets a number for each column of the rows of GPUs and MIG instances, on
// the devices of the fake that stand for them, and returns the columns. What the
// driver tells by lists of processes, by events and by counting its devices is
// the caller's to set: those rows are in rest.
func Fill(f *fakenvml.File, devices map[metric.Entity]string) (set []Column, rest []*metric.Def, err error) {
	pick := picker()
	answers := map[[2]string][]any{}
	for _, d := range metric.All() {
		device := devices[d.Entity]
		switch {
		case d.NVML == "":
		case device == "" || strings.Contains(d.NVML, "Processes") || strings.Contains(d.NVML, " of each "):
			rest = append(rest, d)
		case d == metric.VGPULicensed:
			f.Set(device, d.NVML, 1, 1)
			set = append(set, Column{d, 0, device, d.NVML, 1})
		case d == metric.NVLinkBER: // 3 × 10 to the minus 12
			for i, key := range []string{fakenvml.Field(220, fakenvml.AllScopes), fakenvml.Field(222, fakenvml.AllScopes)} {
				f.Set(device, key, "ull", 3<<8|12)
				set = append(set, Column{d, i, device, key, 3<<8 | 12})
			}
		case d.Raw == "bit":
			f.Set(device, d.NVML, clockEventBits)
			for i := range d.Width() {
				set = append(set, Column{d, i, device, d.NVML, clockEventBits >> i & 1})
			}
		default:
			columns, bad := answer(d, device, answers, pick)
			set, err = append(set, columns...), errors.Join(err, bad)
		}
	}
	for at, values := range answers {
		if strings.HasPrefix(at[1], "field/") {
			values = append([]any{"ull"}, values...)
		}
		f.Set(at[0], at[1], values...)
	}
	return set, rest, err
}

// answer chooses a number for each column of the row and puts it in its place in
// the answer of its call.
func answer(d *metric.Def, device string, answers map[[2]string][]any, pick func(*metric.Def) uint64) ([]Column, error) {
	places, err := Places(d)
	if err != nil {
		return nil, err
	}
	var columns []Column
	for i, p := range places {
		at := [2]string{device, p.Key}
		if answers[at] == nil {
			answers[at] = slices.Repeat([]any{uint64(0)}, p.Of)
		}
		raw := pick(d)
		answers[at][p.At] = raw
		columns = append(columns, Column{d, i, device, p.Key, raw})
	}
	return columns, nil
}

// Place is where in the fake's answers a column of a row is: the key, and which
// of the numbers that it answers with.
type Place struct {
	Key    string
	At, Of int
}

// Places returns where each column of the row is. The catalogue names a call as
// nvmlFunction.member, nvmlFunction/{A,B}/C, nvmlFunction.{member,member},
// field/ID, field/ID/all or gpm/ID.
func Places(d *metric.Def) ([]Place, error) {
	call, member, _ := strings.Cut(d.NVML, ".")
	keys, err := expand(call)
	if err != nil {
		return nil, err
	}
	each := strings.Split(strings.Trim(member, "{}"), ",")
	if len(each) > 1 {
		keys = slices.Repeat(keys, len(each))
	} else {
		each = slices.Repeat(each, len(keys))
	}
	if len(keys) != d.Width() {
		return nil, fmt.Errorf("%s has %d values and %s names %d calls", d, d.Width(), d.NVML, len(keys))
	}
	var places []Place
	for i, key := range keys {
		all := members[key]
		places = append(places, Place{key, max(0, slices.Index(all, each[i])), max(1, len(all))})
	}
	return places, nil
}

// Special reports whether the row is not simply the numbers of one key: what the
// driver tells by lists, by events, bit by bit or link by link.
func Special(d *metric.Def) bool {
	switch d {
	case metric.ClockEvent, metric.ClockEventKnown, metric.VGPULicensed, metric.NVLinkBER, metric.XidErrors:
		return true
	}
	return d.NVML == "" || strings.Contains(d.NVML, "Process") || strings.Contains(d.NVML, " of each ")
}

// expand turns NVML/{A,B}/C into the keys NVML/0/2 and NVML/1/2.
func expand(call string) ([]string, error) {
	parts := strings.Split(call, "/")
	keys := parts[:1]
	for _, part := range parts[1:] {
		var next []string
		for _, key := range keys {
			for option := range strings.SplitSeq(strings.Trim(part, "{}"), ",") {
				if option == "all" {
					next = append(next, key+"/all")
					continue
				}
				id, ok := selectors[option]
				if n, err := strconv.Atoi(option); err == nil {
					id, ok = n, true
				}
				if !ok {
					return nil, fmt.Errorf("%s: unknown selector %q", call, option)
				}
				next = append(next, fakenvml.Key(key, id))
			}
		}
		keys = next
	}
	return keys, nil
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
