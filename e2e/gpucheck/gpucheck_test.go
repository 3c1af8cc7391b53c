package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func recorded(t *testing.T) []reading {
	t.Helper()
	file, err := os.Open("testdata/nvidia-smi-query.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func id(n int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n) }

func TestParse(t *testing.T) {
	nan := math.NaN()
	const util, memory, power, fan, ecc, hot, why = "utilization.gpu", "memory.used", "power.draw", "fan.speed",
		"ecc.errors.uncorrected.volatile.total", "temperature.memory", "clocks_event_reasons.active"
	want := []reading{
		{id(1), "NVIDIA H100 80GB HBM3", map[string]float64{util: 97, memory: 71234, power: 612.4, fan: nan, ecc: 0, hot: 71, why: 4}},
		{id(2), "NVIDIA H100 80GB HBM3", map[string]float64{util: nan, memory: 512, power: 88.1, fan: nan, ecc: nan, hot: nan, why: 1}},
		{id(3), "GeForce GT 730", map[string]float64{util: nan, memory: 10, power: nan, fan: 30, ecc: nan, hot: nan, why: nan}},
		{"", "", map[string]float64{util: nan, memory: nan, power: nan, fan: nan, ecc: nan, hot: nan, why: nan}},
		{id(5), "NVIDIA GB10", map[string]float64{util: 3, memory: nan, power: 10.01, fan: nan, ecc: nan, hot: nan, why: 1}},
	}
	same := cmp.Comparer(func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })
	if diff := cmp.Diff(want, recorded(t), cmp.AllowUnexported(reading{}), same); diff != "" {
		t.Errorf("nvidia-smi's table is read wrongly (-want +got):\n%s", diff)
	}
}

func TestParseRefusesWhatIsNoTable(t *testing.T) {
	for _, text := range []string{"", "uuid, power.draw [W]\nGPU-1, much\n", "uuid, power.draw [W]\nGPU-1\n"} {
		if got, err := parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func pageOf(t *testing.T, text string) page {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	p, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// like is a scrape that agrees with the recorded table, but for the power of the first GPU.
func like(t *testing.T, watts float64) page {
	return pageOf(t, strings.NewReplacer("{1}", id(1), "{2}", id(2), "{3}", id(3), "{5}", id(5), "{W}", fmt.Sprint(watts)).Replace(`
# TYPE vigil_gpu_utilization_ratio gauge
vigil_gpu_utilization_ratio{gpu="0",uuid="{1}"} 0.97
vigil_gpu_utilization_ratio{gpu="4",uuid="{5}"} 0.03
# TYPE vigil_gpu_memory_used_bytes gauge
vigil_gpu_memory_used_bytes{gpu="0",uuid="{1}"} 74694262784
vigil_gpu_memory_used_bytes{gpu="1",uuid="{2}"} 536870912
vigil_gpu_memory_used_bytes{gpu="2",uuid="{3}"} 10485760
# TYPE vigil_gpu_power_draw_watts gauge
vigil_gpu_power_draw_watts{gpu="0",uuid="{1}"} {W}
vigil_gpu_power_draw_watts{gpu="1",uuid="{2}"} 88
vigil_gpu_power_draw_watts{gpu="4",uuid="{5}"} 10
# TYPE vigil_gpu_fan_speed_ratio gauge
vigil_gpu_fan_speed_ratio{gpu="2",uuid="{3}"} 0.3
# TYPE vigil_gpu_memory_temperature_celsius gauge
vigil_gpu_memory_temperature_celsius{gpu="0",uuid="{1}"} 71
vigil_gpu_memory_temperature_celsius{gpu="1",uuid="{2}"} 50
# TYPE vigil_gpu_ecc_errors_total counter
vigil_gpu_ecc_errors_total{gpu="0",uuid="{1}",type="corrected"} 9
vigil_gpu_ecc_errors_total{gpu="0",uuid="{1}",type="uncorrected"} 0
# TYPE vigil_gpu_clock_event_active gauge
vigil_gpu_clock_event_active{gpu="0",uuid="{1}",reason="idle"} 0
vigil_gpu_clock_event_active{gpu="0",uuid="{1}",reason="sw_power_cap"} 1
vigil_gpu_clock_event_active{gpu="1",uuid="{2}",reason="idle"} 1
vigil_gpu_clock_event_active{gpu="4",uuid="{5}",reason="idle"} 1
`))
}

func find(t *testing.T, all tallies, uuid, query string) *tally {
	t.Helper()
	for _, one := range all {
		if one.uuid == uuid && one.query == query {
			return one
		}
	}
	t.Fatalf("%s of %s was not compared", query, uuid)
	return nil
}

func TestAgreement(t *testing.T) {
	var all tallies
	for range 5 {
		all.compare(recorded(t), like(t, 500), like(t, 700)) // the power passes nvidia-smi's on its way
	}
	text, ok := report(all)
	if !ok {
		t.Errorf("values that agree are reported as different:\n%s", text)
	}
	if one := find(t, all, id(5), "memory.used"); one.neither != 5 {
		t.Errorf("memory of a chip without a framebuffer, which neither tells: %+v", *one)
	}
	if one := find(t, all, id(2), "temperature.memory"); one.only != 5 {
		t.Errorf("a temperature that nvidia-smi does not tell: %+v", *one)
	}
}

func TestDisagreement(t *testing.T) {
	wrong := map[string]func(page){
		"power.draw":                            func(p page) { *p["vigil_gpu_power_draw_watts"].Metric[0].Gauge.Value = 61.24 },
		"memory.used":                           func(p page) { delete(p, "vigil_gpu_memory_used_bytes") },
		"ecc.errors.uncorrected.volatile.total": func(p page) { *p["vigil_gpu_ecc_errors_total"].Metric[1].Counter.Value = 1 },
		"clocks_event_reasons.active":           func(p page) { *p["vigil_gpu_clock_event_active"].Metric[0].Gauge.Value = 1 },
	}
	for query, spoil := range wrong {
		p := like(t, 612)
		spoil(p)
		var all tallies
		all.compare(recorded(t), p, p)
		if find(t, all, id(1), query).ok() {
			t.Errorf("%s that differs is not noticed", query)
		}
		if text, ok := report(all); ok || !strings.Contains(text, "DIFFERS") {
			t.Errorf("a report with a wrong %s says that all is well:\n%s", query, text)
		}
	}
}

func TestOneRoundInFiveMayDisagreeAboutWhatMoves(t *testing.T) {
	var all tallies
	for round := range 10 {
		watts := 612.0
		if round < 2 {
			watts = 100
		}
		all.compare(recorded(t), like(t, watts), like(t, watts))
	}
	power := find(t, all, id(1), "power.draw")
	if !power.ok() {
		t.Errorf("two rounds of ten apart: %+v", *power)
	}
	all.compare(recorded(t), like(t, 100), like(t, 100))
	if power.ok() {
		t.Errorf("three rounds of eleven apart are too many: %+v", *power)
	}
}

func TestNothingComparedIsNoAgreement(t *testing.T) {
	if text, ok := report(nil); ok {
		t.Errorf("nothing was compared and all is well: %s", text)
	}
}

func FuzzSMITable(f *testing.F) {
	text, err := os.ReadFile("testdata/nvidia-smi-query.csv")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("uuid, power.draw [W]\nGPU-1, 0xffffffffffffffff\n")
	f.Fuzz(func(t *testing.T, in string) {
		all, err := parse(strings.NewReader(in))
		if err == nil && len(all) > strings.Count(in, "\n")+1 {
			t.Errorf("%d GPUs are read of %q", len(all), in)
		}
		for _, one := range all {
			if strings.HasPrefix(one.uuid, "[") || strings.HasPrefix(one.name, "[") {
				t.Errorf("what stands in place of a value is taken for one: %q, %q", one.uuid, one.name)
			}
		}
	})
}
