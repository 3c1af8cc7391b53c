package demand

import (
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func unknownPage(after time.Duration) Page {
	nan := math.NaN()
	return Page{At: noon.Add(after), Running: nan, Waiting: nan, KV: nan, Ended: nan, Generated: nan, Queue: Unknown(), Duration: Unknown()}
}

// readings returns what follows from the pages.
func readings(pages ...Page) collector.Readings {
	var w Window
	for _, p := range pages {
		w.Add(p)
	}
	r := collector.NewReadings(metric.Endpoint)
	w.Set(r)
	return r
}

func check(t *testing.T, r collector.Readings, want map[*metric.Def]float64) {
	t.Helper()
	for d, v := range want {
		if got := r.Value(d); !(math.Abs(got-v) < 1e-9) && !(math.IsNaN(got) && math.IsNaN(v)) {
			t.Errorf("%s = %v, by hand %v", d, got, v)
		}
	}
}

// In 60 s 120 requests ended, 6 more are inside: 126 arrived, 2.1 a second. They
// waited 150 s together: 1.25 s each, so 2.5 should wait on average. Waiting was 2,
// 4 and 6, on average 4, and 4/2.5 is 1.6. Running was 8, 10 and 10, on average 9.5:
// served for 9.5/2 = 4.75 s each, the arrivals are 2.1 × 4.75 = 9.975 requests at
// once, of 10 that the server worked on while others waited.
func TestByHand(t *testing.T) {
	page := func(after time.Duration, running, waiting, ended, queued, lasted, kv float64) Page {
		return Page{At: noon.Add(after), Running: running, Waiting: waiting, KV: kv, Ended: ended,
			Queue: Sum{queued, ended}, Duration: Sum{lasted, ended}, Generated: math.NaN()}
	}
	r := readings(
		page(0, 8, 2, 1000, 500, 7000, 0.5),
		page(30*time.Second, 10, 4, 1060, 575, 7360, 0.6),
		page(60*time.Second, 10, 6, 1120, 650, 7720, 0.7),
	)
	check(t, r, map[*metric.Def]float64{
		metric.ServiceRate: 2, metric.ArrivalRate: 2.1, metric.QueueTimeMean: 1.25, metric.RequestDurationMean: 6,
		metric.QueueConsistency: 1.6, metric.ServerUtilization: 0.9975,
		// 0.2 in 60 s: the 0.3 that are left take 90 s.
		metric.KVCacheHeadroom: 0.3, metric.KVCacheTimeToFull: 90,
		metric.EndpointStale: 0,
	})
}

func TestWhatIsNotToldStaysAbsent(t *testing.T) {
	r := readings(unknownPage(0), unknownPage(30*time.Second), unknownPage(time.Minute))
	for _, d := range metric.Of(metric.Endpoint) {
		if r.Has(d) {
			t.Errorf("%s = %v, though the server told nothing", d, r.Value(d))
		}
	}
	one := unknownPage(0)
	one.Running, one.Waiting, one.Ended, one.Queue = 5, 0, 100, Sum{10, 100}
	check(t, readings(one), map[*metric.Def]float64{
		metric.ServiceRate: math.NaN(), metric.QueueTimeMean: math.NaN(), metric.ArrivalRate: math.NaN(), // over the whole life of the server
	})
}

func TestRatesOfIdleServer(t *testing.T) {
	idle := func(after time.Duration) Page {
		p := unknownPage(after)
		p.Running, p.Waiting, p.Ended, p.Queue, p.KV = 0, 0, 77, Sum{10, 77}, 0
		return p
	}
	busy := idle(0)
	busy.Running, busy.Waiting = 4, 1
	r := readings(busy, idle(2*time.Minute), idle(150*time.Second), idle(3*time.Minute))
	check(t, r, map[*metric.Def]float64{
		metric.ServiceRate: 0, metric.ArrivalRate: 0, metric.ServerUtilization: 0,
		metric.QueueTimeMean: math.NaN(), metric.QueueConsistency: math.NaN(), metric.KVCacheTimeToFull: math.NaN(), metric.EndpointStale: 0,
	})
}

// A server that has shown the same queue for two minutes shows a relic.
func TestStalePage(t *testing.T) {
	stuck := func(after time.Duration) Page {
		p := unknownPage(after)
		p.Running, p.Waiting, p.Generated = 3, 7, 1000
		return p
	}
	var w Window
	r := collector.NewReadings(metric.Endpoint)
	for after := time.Duration(0); after < 2*time.Minute; after += 5 * time.Second {
		w.Add(stuck(after))
	}
	w.Set(r)
	check(t, r, map[*metric.Def]float64{metric.EndpointStale: 0})
	w.Add(stuck(2 * time.Minute))
	w.Set(r)
	check(t, r, map[*metric.Def]float64{metric.EndpointStale: 1})
	alive := stuck(125 * time.Second)
	alive.Generated++
	w.Add(alive)
	w.Set(r)
	check(t, r, map[*metric.Def]float64{metric.EndpointStale: 0})
	if len(w.pages) > 14 {
		t.Errorf("a window of a minute at 5 s keeps %d pages", len(w.pages))
	}
}

func TestQueueTimeIsOfTheLastMinute(t *testing.T) {
	page := func(after time.Duration, counts ...uint64) Page {
		p := unknownPage(after)
		p.QueueTimes = collector.Histogram{Bounds: []float64{1, 2}, Counts: counts}
		return p
	}
	r := readings(page(0, 100000, 100000, 100000), page(5*time.Second, 100000, 100010, 100010))
	check(t, r, map[*metric.Def]float64{metric.QueueTimeP95: 1.95})
	r = readings(page(0, 5, 10, 10), page(time.Minute, 5, 10, 10), page(2*time.Minute, 5, 10, 10))
	check(t, r, map[*metric.Def]float64{metric.QueueTimeP95: math.NaN()})
}

func TestClockThatIsSetBackBeginsAnew(t *testing.T) {
	a, b := unknownPage(time.Hour), unknownPage(0)
	a.Ended, b.Ended = 100, 200
	check(t, readings(a, b), map[*metric.Def]float64{metric.ServiceRate: math.NaN()})
}

// 30,000 tokens in 60 s on two GPUs are 250 a second on each. They drew 72 kJ in
// 60 s, 1200 W: 500/1200 tokens per joule.
func TestWorkByHand(t *testing.T) {
	var w Work
	r := collector.NewReadings(metric.Target)
	w.Add(Output{At: noon, Tokens: 1e6, Joules: 5e6, Drawn: noon.Add(-time.Second)})
	w.Set(r, 2)
	if r.Has(metric.TokensPerGPU) {
		t.Error("one page gives a rate")
	}
	w.Add(Output{At: noon.Add(time.Minute), Tokens: 1.03e6, Joules: 5.072e6, Drawn: noon.Add(59 * time.Second)})
	w.Set(r, 2)
	check(t, r, map[*metric.Def]float64{metric.TokensPerGPU: 250, metric.TokensPerJoule: 500.0 / 1200})

	// A page from before the GPUs were read does not make the minute's energy unknown.
	var early Work
	r = collector.NewReadings(metric.Target)
	early.Add(Output{At: noon.Add(-20 * time.Second), Tokens: 0.99e6, Joules: math.NaN()})
	early.Add(Output{At: noon, Tokens: 1e6, Joules: 5e6, Drawn: noon})
	early.Add(Output{At: noon.Add(30 * time.Second), Tokens: 1.03e6, Joules: 5.03e6, Drawn: noon.Add(30 * time.Second)})
	early.Set(r, 1)
	check(t, r, map[*metric.Def]float64{metric.TokensPerGPU: 800, metric.TokensPerJoule: 1})

	unknown := collector.NewReadings(metric.Target)
	w.Set(unknown, 0)
	if unknown.Has(metric.TokensPerGPU) || unknown.Has(metric.TokensPerJoule) {
		t.Error("a target whose GPUs are not known has tokens per GPU")
	}
}

func TestJoulesOfTheTargetsGPUs(t *testing.T) {
	gpu := func(uuid string, joules float64, age time.Duration) collector.GPU {
		g := collector.GPU{UUID: uuid, Present: true, Readings: collector.NewReadings(metric.GPU)}
		g.Set(metric.Energy, joules)
		g.Stamp(metric.Energy.Tier, noon.Add(-age))
		return g
	}
	gpus := []collector.GPU{gpu("a", 100, time.Second), gpu("b", 20, 2*time.Second), gpu("c", 3, 0)}
	if got, at := Joules(gpus, []string{"a", "b"}); got != 120 || !at.Equal(noon.Add(-2*time.Second)) {
		t.Errorf("the GPUs a and b have drawn %v J at %v, want 120 J as of two seconds ago", got, at)
	}
	for _, uuids := range [][]string{nil, {"a", "gone"}} {
		if got, _ := Joules(gpus, uuids); !math.IsNaN(got) {
			t.Errorf("GPUs %v have drawn %v J, want unknown", uuids, got)
		}
	}
}
