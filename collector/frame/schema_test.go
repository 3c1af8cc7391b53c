package frame

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

// otherRelease writes a stream with a schema and content that this release does
// not have: other columns in another order, a field behind a GPU's readings, a
// section of an unknown kind.
func otherRelease(s schema, values []float64) []byte {
	e := encoder{strings: make(map[string]uint64), base: noon}
	head := len(e.b)
	e.absolute(noon)
	e.time(time.Time{})
	e.uvarint(0)
	e.str("a field of the head that came later")
	e.size(head)
	e.section(99, 2, 2, func(int) { e.str("a queue") })
	e.section(gpuSection, 1, 1, func(int) {
		e.varint(5)
		for range 6 {
			e.str("GPU-5")
		}
		e.uvarint(flagPresent | 1<<40)
		e.owners(nil)
		e.list(2) // unsupported
		e.uvarint(0)
		e.uvarint(1)
		e.list(2) // dropped
		e.uvarint(0)
		e.uvarint(7)
		e.uvarint(1)
		e.uvarint(8)
		e.list(0)
		for i := range s.tiers {
			e.time(noon.Add(time.Duration(i+1) * time.Second))
		}
		e.uvarint(1)
		mask := make([]byte, (len(values)+7)/8)
		for i := range values {
			mask[i/8] |= 1 << (i % 8)
		}
		e.b = append(e.b, mask...)
		for _, v := range values {
			e.uvarint(bits.ReverseBytes64(math.Float64bits(v)))
		}
		e.allocations(nil)
		e.distributions(nil)
		for _, fact := range []string{"9.0", "0-31", ""} {
			e.str(fact)
		}
		e.list(1)
		e.str("GPU-6")
		e.str("system")
		e.str("vfio-pci")
		for _, fact := range []string{"900-1", "570.1", "G520"} {
			e.str(fact)
		}
		e.str("a field of a GPU that came later")
	})
	e.section(eventSection, 1, 1, func(int) { e.event(&collector.Event{Time: noon, Kind: "of_tomorrow", Text: "x"}) })

	stream := appendHeader(nil, s)
	payload := e.appendPayload(nil)
	frame := make([]byte, frameLen)
	putLength(frame, payload)
	return append(append(stream, frame...), payload...)
}

func TestStreamOfAnotherRelease(t *testing.T) {
	s := schema{
		tiers: []string{"inventory", "glacial", "fast"},
		columns: []column{
			{"gpu", "vigil_gpu_of_tomorrow", nil},
			{"gpu", "vigil_gpu_power_draw_watts", nil},
			{"queue", "vigil_queue_length", nil},
			{"gpu", "vigil_gpu_clock_hertz", []string{"memory", "optical", "graphics"}},
			{"node", "vigil_gpu_temperature_celsius", nil},                     // moved to another entity
			{"gpu", "vigil_gpu_utilization_ratio", []string{"first", "other"}}, // got a dimension
			{"gpu", "vigil_gpu_memory_used_bytes", nil},
		},
	}
	got, err := readAll(otherRelease(s, []float64{1, 700, 2e9, 3, 1e9, 4, 5, 6}))
	if !errors.Is(err, io.EOF) || len(got) != 1 {
		t.Fatalf("a stream of another release: %d parts, %v", len(got), err)
	}
	want := collector.NewReadings(metric.GPU)
	want.Set(metric.PowerDraw, 700)
	want.SetAt(metric.Clock, metric.Clocks.Index("memory"), 2e9)
	want.SetAt(metric.Clock, metric.Clocks.Index("graphics"), 1e9)
	want.Set(metric.MemoryUsed, 6)
	want.Stamp(metric.Inventory, noon.Add(time.Second))
	want.Stamp(metric.Fast, noon.Add(3*time.Second))
	wantPart := &collector.Part{Time: noon, Events: []collector.Event{{Time: noon, Kind: "of_tomorrow", Text: "x"}},
		GPUs: []collector.GPU{{Index: 5, UUID: "GPU-5", Model: "GPU-5", PCIBusID: "GPU-5", Serial: "GPU-5", VBIOS: "GPU-5", Architecture: "GPU-5",
			ComputeCapability: "9.0", CPUs: "0-31", Paths: []collector.Path{{UUID: "GPU-6", Level: "system"}}, Bound: "vfio-pci", BoardPart: "900-1", GSP: "570.1", InfoROM: "G520",
			Present: true, Readings: want, Unsupported: []*metric.Def{metric.PowerDraw}, Dropped: map[*metric.Def]uint64{metric.PowerDraw: 8}}}}
	if diff := cmp.Diff(wantPart, got[0], same); diff != "" {
		t.Errorf("columns are not mapped by name, or unknown things are not skipped (-want +got):\n%s", diff)
	}
}

func TestSchemaIsBounded(t *testing.T) {
	wide := schema{columns: []column{{"gpu", "a", make([]string, maxPerEntity)}, {"gpu", "b", nil}}}
	if _, err := readAll(appendHeader(nil, wide)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a schema of %d columns was taken: %v", maxPerEntity+1, err)
	}
}

// TestGoldenFormat shows an accidental change of the format. If the change is
// meant, it needs a new Version or the rule of the package comment.
func TestGoldenFormat(t *testing.T) {
	s := schema{tiers: []string{"fast"}, columns: []column{
		{"gpu", "vigil_gpu_power_draw_watts", nil},
		{"gpu", "vigil_gpu_clock_hertz", []string{"sm", "memory"}},
	}}
	got := hex.Dump(otherRelease(s, []float64{700, 0.37, 0}))
	const path = "testdata/format.golden"
	golden.Check(t, path, got, fmt.Sprintf("the bytes of version %d have changed: recordings of other releases cannot be read", Version))
}

// TestOldRecording reads what the first release wrote. The file is never written
// again: a later version gets a file beside it.
func TestOldRecording(t *testing.T) {
	b, err := os.ReadFile("testdata/v1.frames")
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewReader(bytes.NewReader(b)).Read()
	if err != nil {
		t.Fatalf("a recording of format version 1 cannot be read: %v", err)
	}
	want := fullPart()
	for i := range want.Events {
		want.Events[i].Owner = collector.Owner{} // it came later
	}
	if diff := cmp.Diff(want.GPUs[0].Xids, got.GPUs[0].Xids); diff != "" {
		t.Errorf("Xids of an old recording (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Events, got.Events); diff != "" {
		t.Errorf("events of an old recording (-want +got):\n%s", diff)
	}
	for _, d := range []*metric.Def{metric.PowerDraw, metric.Temperature, metric.Energy} {
		if w, g := 700+float64(len(d.Name)), got.GPUs[0].Value(d); w != g {
			t.Errorf("%s of an old recording is %v, was written as %v", d, g, w)
		}
	}
}
