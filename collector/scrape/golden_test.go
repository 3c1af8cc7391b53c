package scrape

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

// noon is when pages are read.
var noon = time.Unix(1796040000, 0).UTC()

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func address(t testing.TB) *page.Page {
	t.Helper()
	p, err := page.New(page.Address{URL: "http://127.0.0.1:9400/metrics"}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gpus(t testing.TB, exporter string) *GPUs {
	t.Helper()
	return NewGPUs(GPUConfig{Page: address(t), Exporter: exporter, Interval: 15 * time.Second, Log: slog.New(slog.DiscardHandler)})
}

func node(t testing.TB) *Node {
	t.Helper()
	return NewNode(NodeConfig{Page: address(t), Log: slog.New(slog.DiscardHandler)})
}

// dump writes a part in lines that can be reviewed.
func dump(p *collector.Part) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	readings := func(e metric.Entity, r collector.Readings) {
		for _, d := range metric.Of(e) {
			for i := range d.Width() {
				if v := r.ValueAt(d, i); !math.IsNaN(v) {
					name := strings.TrimPrefix(d.Name, "vigil_")
					if d.Dim != nil {
						name += fmt.Sprintf("{%s=%q}", d.Dim.Label, d.Dim.Values[i])
					}
					line("    %s %v", name, v)
				}
			}
		}
	}
	for _, x := range p.Pages {
		line("page %s: %s; in place of the driver: %v", x.Source, x, x.GPUs)
	}
	if !p.Boot.IsZero() {
		line("boot %s", p.Boot.UTC().Format(time.RFC3339))
	}
	for _, v := range p.Node.Versions {
		line("version %s %s", v.Component, v.Value)
	}
	readings(metric.Node, p.Node.Readings)
	for _, g := range p.GPUs {
		line("gpu %d %s model %q bus %q serial %q vbios %q capability %q present %v mig %v", g.Index, g.UUID, g.Model, g.PCIBusID, g.Serial, g.VBIOS, g.ComputeCapability, g.Present, g.MIG)
		for _, d := range metric.Of(metric.GPU) {
			if n := g.Dropped[d]; n > 0 {
				line("    dropped %s %d", d, n)
			}
		}
		for _, x := range g.Xids {
			line("    xid %d %d times", x.Code, x.Count)
		}
		readings(metric.GPU, g.Readings)
	}
	for _, m := range p.Instances {
		line("instance of %d %s %s profile %q uuid %q", m.GPU, m.UUID, m.MIG(), m.Profile, m.MIGUUID)
		readings(metric.Instance, m.Readings)
	}
	for _, a := range p.Allocations {
		line("given %+v", a)
	}
	for _, x := range p.Processes {
		line("process %d %q gpu %d %s mig %q uid %d", x.PID, x.Name, x.GPU, x.UUID, x.MIG, x.UID)
		readings(metric.Process, x.Readings)
	}
	for _, i := range p.Interfaces {
		line("interface %s/%d %s", i.Device, i.Port, i.State)
		readings(metric.Interface, i.Readings)
	}
	for _, e := range p.Events {
		line("event %s %s %d", e.Kind, e.UUID, e.Code)
	}
	return b.String()
}

func TestPagesOfGPUs(t *testing.T) {
	for _, name := range []string{
		"dcgm-1.x", "dcgm-4.8", "dcgm-4.9", "dcgm-mig", "dcgm-4.6-percent", "nvidia_gpu_exporter", "nvidia_gpu_exporter-mig",
	} {
		t.Run(name, func(t *testing.T) {
			part, err := gpus(t, "").take(bytes.NewReader(recorded(t, name+".prom")), noon)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", name+".golden"), dump(part), "the page is understood differently")
		})
	}
}

func TestPageOfTheHost(t *testing.T) {
	s, content := node(t), recorded(t, "node_exporter.prom")
	if _, err := s.take(bytes.NewReader(content), noon); err != nil {
		t.Fatal(err)
	}
	// In 15 s CPU 0 worked for 3 s and CPU 1 for all 15; a disk wrote 512 bytes.
	later := strings.NewReplacer(
		`{cpu="0",mode="idle"} 90000.5`, `{cpu="0",mode="idle"} 90012.5`, `{cpu="0",mode="user"} 4000`, `{cpu="0",mode="user"} 4003`,
		`{cpu="1",mode="user"} 93000`, `{cpu="1",mode="user"} 93015`, `written_bytes_total{device="nvme0n1"} 700`, `written_bytes_total{device="nvme0n1"} 1212`,
	).Replace(string(content))
	part, err := s.take(strings.NewReader(later), noon.Add(15*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "node_exporter.golden"), dump(part), "the page is understood differently")
}
