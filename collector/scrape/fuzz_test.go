package scrape

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func addPages(f *testing.F) {
	files, err := filepath.Glob("testdata/*.prom")
	if err != nil || len(files) == 0 {
		f.Fatalf("no pages: %v", err)
	}
	for _, file := range files {
		var few []byte // the second GPU and what follows repeat the first one's form, and cost the fuzzer its time
		for line := range bytes.Lines(recorded(f, filepath.Base(file))) {
			if !bytes.Contains(line, []byte("# HELP")) && !bytes.Contains(line, []byte(`gpu="1"`)) && !bytes.Contains(line, []byte(`{gpu="2"`)) && len(few) < 6000 {
				few = append(few, line...)
			}
		}
		f.Add(few)
	}
	f.Add([]byte("DCGM_FI_DEV_GPU_UTIL_RATIO{UUID=\"x\"} 1\nDCGM_FI_DEV_XID_ERRORS{UUID=\"x\"} 1e300\nDCGM_EXP_XID_ERRORS_TOTAL{UUID=\"x\",xid=\"79\"} Inf\n"))
	f.Add([]byte("node_infiniband_state_id{device=\"a\",port=\"1\"} -1e300\n"))
}

// plausible checks the readings of one entity.
func plausible(t *testing.T, e metric.Entity, r collector.Readings) {
	t.Helper()
	for _, d := range metric.Of(e) {
		for i := range d.Width() {
			if v := r.ValueAt(d, i); !math.IsNaN(v) && !d.Plausible(v) {
				t.Errorf("%s = %v", d, v)
			}
		}
	}
}

func shown(t *testing.T, words ...string) {
	t.Helper()
	for _, w := range words {
		if !utf8.ValidString(w) || utf8.RuneCountInString(w) > 2*maxName+8 || strings.ContainsAny(w, "\x1b\n") {
			t.Errorf("%q is not fit to be shown", w)
		}
	}
}

// Whatever a page holds, what is made of it is plausible, bounded and clean, also by the
// second page.
func FuzzGPUs(f *testing.F) {
	addPages(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		s := gpus(t, "")
		for i := range 2 {
			part, err := s.take(bytes.NewReader(content), noon.Add(time.Duration(i)*time.Minute))
			if err != nil {
				shown(t, err.Error()[:min(len(err.Error()), maxName)])
				continue
			}
			if n := len(part.GPUs); n == 0 || n > maxGPUs || len(part.Processes) > maxProcesses {
				t.Fatalf("%d GPUs, %d processes", n, len(part.Processes))
			}
			for _, g := range part.GPUs {
				plausible(t, metric.GPU, g.Readings)
				shown(t, g.UUID, g.Model, g.PCIBusID, g.Serial, g.VBIOS)
			}
			for _, m := range part.Instances {
				plausible(t, metric.Instance, m.Readings)
				shown(t, m.Profile, m.MIGUUID)
			}
			for _, p := range part.Processes {
				plausible(t, metric.Process, p.Readings)
				shown(t, p.Name)
			}
			for _, a := range part.Allocations {
				shown(t, a.Owner.ID, a.Container)
			}
			if i == 1 && len(part.Events) > 0 {
				t.Errorf("the same page again tells of new errors: %+v", part.Events)
			}
		}
	})
}

func FuzzNode(f *testing.F) {
	addPages(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		s := node(t)
		var before [2]float64
		for i := range 2 {
			part, err := s.take(bytes.NewReader(content), noon.Add(time.Duration(i)*time.Minute))
			if err != nil {
				continue
			}
			plausible(t, metric.Node, part.Node.Readings)
			for _, p := range part.Interfaces {
				plausible(t, metric.Interface, p.Readings)
				shown(t, p.Device, p.State)
			}
			for at := range before {
				v := part.Node.ValueAt(metric.DiskBytes, at)
				if i == 1 && v < before[at] {
					t.Errorf("the disks' bytes fall from %v to %v", before[at], v)
				}
				before[at] = v
			}
		}
	})
}

func BenchmarkPage8GPUs(b *testing.B) {
	s, content := gpus(b, ""), recorded(b, "dcgm-4.8.prom")
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.take(bytes.NewReader(content), noon); err != nil {
			b.Fatal(err)
		}
	}
}
