package e2e

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/fakenvml/everyrow"
	"gpuvigil/internal/metric"
)

// Calls that answer with lists.
const (
	computeList  = "nvmlDeviceGetComputeRunningProcesses"
	processUsage = "nvmlDeviceGetProcessUtilization"
)

// xidEvents is nvmlEventTypeXidCriticalError.
const xidEvents = 8

// TestEveryCatalogueRow lets the driver answer with a number of its own for each
// row of the catalogue and looks for exactly that number, converted, on /metrics.
func TestEveryCatalogueRow(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 4)
	d.slice(1, 0)
	// The branch whose field ids for the time that clocks were held everyrow fills.
	d.Set(fakenvml.Sys, "nvmlSystemGetDriverVersion", "580.65.06")
	want, rest, err := everyrow.Fill(&d.File, map[metric.Entity]string{metric.GPU: fakenvml.GPU(0), metric.Instance: fakenvml.MIG(1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	d.Set(fakenvml.GPU(0), computeList, 4711, 5<<30)
	d.Add(fakenvml.GPU(0), computeList, 4712, 6<<30)
	d.Set(fakenvml.GPU(0), processUsage, 4712, 37, 11, 12, 13, "now")
	d.Set(fakenvml.Sys, "nvmlSystemGetConfComputeState", 1, 1, 0)
	d.Set(fakenvml.GPU(0), fakenvml.Field(linkState, 2), "uint", 0) // of the 18 that the board has
	for i, id := range linkFields() {
		d.Set(fakenvml.GPU(0), fakenvml.Field(uint32(id), 0), "ull", linkRaw+i)
	}
	for pid := range 3 {
		d.Add(fakenvml.MIG(1, 0), computeList, 100+pid, 1<<30, 7, 0)
	}
	d.show()
	a := d.start(options{args: []string{"--collector.profile=full"}})
	a.ready(t)

	a.awaits(t, "every number of the driver is on /metrics", func(m metrics) error {
		var errs []error
		for _, c := range want {
			if got := m.value(c.Name, seriesOf(c)...); !near(got, c.Want()) {
				errs = append(errs, fmt.Errorf("%s %s says %d, and %s%q is %v, want %v", c.Device, c.Key, c.Raw, c, seriesOf(c), got, c.Want()))
			}
		}
		return errors.Join(errs...)
	})
	d.Event(fakenvml.GPU(0), xidEvents, 31)
	d.show()
	for _, row := range rest {
		d.checkListed(t, a, row)
	}
}

// seriesOf returns the labels that tell a column's series from others.
func seriesOf(c everyrow.Column) []string {
	labels := []string{"gpu", "0"}
	if c.Entity == metric.Instance {
		labels = []string{"gpu", "1", "mig", "7/0"}
	}
	if c.Dim != nil {
		labels = append(labels, c.Dim.Label, c.Dim.Values[c.At])
	}
	return labels
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Abs(want) }

// checkListed looks for a row that the driver tells by a list.
func (d *driver) checkListed(t *testing.T, a *agent, row *metric.Def) {
	t.Helper()
	series := func(want float64, labels ...string) {
		a.awaits(t, fmt.Sprintf("%s is on /metrics", row), func(m metrics) error { return m.expect(want, row.Name, labels...) })
	}
	process := func(want float64) {
		eventually(t, fmt.Sprintf("the API tells %s of process 4712", row), func() error {
			s, err := a.snapshot()
			if err != nil {
				return err
			}
			for _, p := range s.Processes {
				if p.PID == 4712 && p.Readings[row.Name] == want {
					return nil
				}
			}
			return fmt.Errorf("it tells %+v", s.Processes)
		})
	}
	switch row {
	case metric.GPUsSeen:
		series(4)
	case metric.ProcessCount:
		series(2, "gpu", "0")
	case metric.ProcessMemory:
		series(11<<30, "gpu", "0")
	case metric.MIGProcesses:
		series(3, "gpu", "1", "mig", "7/0")
	case metric.XidErrors:
		series(1, "gpu", "0", "xid", "31")
	case metric.ProcessMemoryUsed:
		process(6 << 30)
	case metric.ProcessUtilization:
		process(row.FromRaw(37))
	case metric.ProcessMemoryUtilization:
		process(row.FromRaw(11))
	case metric.ProcessEncoder:
		process(row.FromRaw(12))
	case metric.ProcessDecoder:
		process(row.FromRaw(13))
	case metric.ConfidentialComputing:
		series(1)
	case metric.NVLinksUp:
		series(17, "gpu", "0")
	case metric.LinkUp:
		series(1, "gpu", "0", "link", "0")
		series(0, "gpu", "0", "link", "2")
	case metric.LinkBER:
		// Its raw form is no number; collector/nvml holds how it is read.
	case metric.LinkSpeed, metric.LinkBytes, metric.LinkErrors, metric.Link5Errors:
		for i, id := range fieldsOf(row) {
			labels := []string{"gpu", "0", "link", "0"}
			if row.Dim != nil {
				labels = append(labels, row.Dim.Label, row.Dim.Values[i])
			}
			series(row.FromRaw(float64(linkRaw+slices.Index(linkFields(), id))), labels...)
		}
	default:
		t.Errorf("%s comes from %s, and this test does not know how to set that", row, row.NVML)
	}
}

const (
	linkState = 165   // NVML_FI_DEV_NVLINK_GET_STATE
	linkRaw   = 12340 // the first link's numbers count from here
)

var fieldIDs = regexp.MustCompile(`[0-9]+`)

// fieldsOf returns the field ids that a row of a link names, in the order of its
// dimension.
func fieldsOf(row *metric.Def) []int {
	var ids []int
	for _, text := range fieldIDs.FindAllString(row.NVML, -1) {
		id, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// linkFields are the fields of all rows of a link but its state.
func linkFields() []int {
	var ids []int
	for _, row := range metric.Of(metric.Link) {
		if row != metric.LinkUp {
			ids = append(ids, fieldsOf(row)...)
		}
	}
	return ids
}

// slice makes a MIG device on a GPU.
func (d *driver) slice(gpu, slot int) {
	d.Set(fakenvml.GPU(gpu), "nvmlDeviceGetMigMode", 1, 1)
	mig := fakenvml.MIG(gpu, slot)
	d.Set(mig, "nvmlDeviceGetUUID", fmt.Sprintf("MIG-%d-%d", gpu, slot))
	d.Set(mig, "nvmlDeviceGetName", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
	d.Set(mig, "nvmlDeviceGetGpuInstanceId", 7+slot)
	d.Set(mig, "nvmlDeviceGetComputeInstanceId", 0)
	d.Set(mig, computeList)
}
