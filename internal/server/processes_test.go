package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// onGPU0 is a node on which only the given processes are, all on its first GPU.
func onGPU0(o *ProcessSeries, processes ...collector.Process) *world {
	w := node(soon())
	w.series = o
	w.snap.Processes = nil
	for i, p := range processes {
		p.UUID = w.snap.GPUs[0].UUID
		if p.PID == 0 {
			p.PID = 100 + i
		}
		w.snap.Processes = append(w.snap.Processes, p)
	}
	w.snap.GPUs[0].Set(metric.ProcessCount, float64(len(processes)))
	return w
}

func holding(name string, memory float64) collector.Process {
	p := collector.Process{Name: name, Readings: collector.NewReadings(metric.Process)}
	p.Set(metric.ProcessMemoryUsed, memory)
	return p
}

// processSeries returns a row's series of the first GPU by process and pid.
func processSeries(t *testing.T, w *world, d *metric.Def) map[string]float64 {
	t.Helper()
	return ofFirstGPU(parse(t, plainText(t, w.server(t))), d)
}

func ofFirstGPU(page map[string]*dto.MetricFamily, d *metric.Def) map[string]float64 {
	found := map[string]float64{}
	if f := page[d.Name]; f != nil {
		for _, m := range f.Metric {
			if m.Label[0].GetValue() == "0" {
				found[named(m)] = m.Gauge.GetValue()
			}
		}
	}
	return found
}

func named(m *dto.Metric) string {
	var parts []string
	for _, l := range m.Label {
		if n := l.GetName(); n != "gpu" && n != "uuid" {
			parts = append(parts, l.GetValue())
		}
	}
	return strings.Join(parts, "/")
}

func TestNoProcessSeriesUnlessAskedFor(t *testing.T) {
	text := plainText(t, onGPU0(nil, holding("python", 1)).server(t))
	for _, name := range []string{"vigil_process_", metric.ProcessesFolded.Name} {
		if strings.Contains(text, name) {
			t.Errorf("the default page has %s", name)
		}
	}
}

func TestProcessesWithMostMemoryHaveSeries(t *testing.T) {
	processes := []collector.Process{
		holding("python", 5), holding("python", 6), holding("small", 1), holding("big", 20), holding("hidden", math.NaN()), holding("tiny", 0.5),
	}
	f := func(o ProcessSeries, want map[string]float64, folded float64) {
		t.Helper()
		w := onGPU0(&o, processes...)
		if diff := cmp.Diff(want, processSeries(t, w, metric.ProcessMemoryUsed)); diff != "" {
			t.Errorf("memory with %+v (-want +got):\n%s", o, diff)
		}
		if got := processSeries(t, w, metric.ProcessesFolded); got[""] != folded {
			t.Errorf("with %+v, %v processes are said to be folded, want %v", o, got, folded)
		}
	}
	f(ProcessSeries{Top: 2}, map[string]float64{"big": 20, "python": 11, "other": 1.5}, 3)
	f(ProcessSeries{Top: 2, PID: true}, map[string]float64{"big/103": 20, "python/101": 6, "other/": 6.5}, 4)
	f(ProcessSeries{Top: 5}, map[string]float64{"big": 20, "python": 11, "small": 1, "tiny": 0.5}, 0)
	f(ProcessSeries{Top: 1}, map[string]float64{"big": 20, "other": 12.5}, 5)
}

func TestHostileProcessNames(t *testing.T) {
	w := onGPU0(&ProcessSeries{Top: 20}, holding("a\"} 1\nvigil_gpu_present{x=\"\\", 1), holding("\xff\u202etxt\x00", 2), holding("", 4), holding("other", 8),
		holding(strings.Repeat("x", 500), 16), holding(" a\tb ", 32), holding("a b", 64))
	want := map[string]float64{
		"a\"} 1 vigil_gpu_present{x=\"\\": 1, "\uFFFDtxt": 2, "unknown": 4, "other": 8, strings.Repeat("x", 63) + "…": 16, "a b": 96,
	}
	if diff := cmp.Diff(want, processSeries(t, w, metric.ProcessMemoryUsed)); diff != "" {
		t.Errorf("names are not clean, or things of one name are apart (-want +got):\n%s", diff)
	}
	e, done := w.server(t).fresh()
	defer done()
	sameText(t, e)
}

// Whatever processes there are, the series of a GPU's processes sum to what the
// processes sum to, which together with the unattributed is what the GPU says, and
// there are never more than the limit and one.
func TestProcessSeriesSumToTheGPU(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		o := ProcessSeries{Top: 1 + rng.IntN(30), PID: rng.IntN(2) == 0}
		used := math.Round(80e9 * rng.Float64())
		var processes []collector.Process
		shares := portions(rng, rng.IntN(60))
		for _, share := range shares {
			p := holding([]string{"python", "other", "", fmt.Sprint("p", rng.IntN(40))}[rng.IntN(4)], math.Floor(share*used))
			for _, d := range processRows[1:] {
				if rng.IntN(4) > 0 {
					p.Set(d, share)
				}
			}
			processes = append(processes, p)
		}
		page := parse(t, plainText(t, onGPU0(&o, processes...).server(t)))
		free := used
		for _, p := range processes {
			free -= p.Value(metric.ProcessMemoryUsed)
		}
		for _, d := range processRows {
			series, want, got := ofFirstGPU(page, d), 0.0, 0.0
			for _, p := range processes {
				if v := p.Value(d); !math.IsNaN(v) {
					want += v
				}
			}
			for _, v := range series {
				got += v
			}
			limit := 1.0
			if d == metric.ProcessMemoryUsed {
				limit = used
				if math.Abs(got+free-used) > 1 {
					t.Errorf("%d processes hold %v and %v is unattributed, of %v in use", len(processes), got, free, used)
				}
			}
			if math.Abs(got-want) > 1e-9*limit || got > limit*(1+1e-12) || len(series) > o.Top+1 {
				t.Fatalf("with %+v, %d series of %s sum to %v; the %d processes to %v", o, len(series), d, got, len(processes), want)
			}
		}
	}
}

// portions cuts a random part of 1 into n.
func portions(rng *rand.Rand, n int) []float64 {
	shares, sum := make([]float64, n), rng.ExpFloat64()
	for i := range shares {
		shares[i] = rng.ExpFloat64()
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

func TestUnknownListHasNoSeries(t *testing.T) {
	w := onGPU0(&ProcessSeries{Top: 3})
	w.snap.GPUs[0].Set(metric.ProcessCount, math.NaN())
	if got := processSeries(t, w, metric.ProcessesFolded); len(got) > 0 {
		t.Errorf("a GPU whose processes nobody knows has %v", got)
	}
	w.snap.GPUs[0].Set(metric.ProcessCount, 0)
	if diff := cmp.Diff(map[string]float64{"": 0}, processSeries(t, w, metric.ProcessesFolded)); diff != "" {
		t.Errorf("a GPU without processes (-want +got):\n%s", diff)
	}
}
