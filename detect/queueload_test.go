package detect

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"gpuvigil/collector"
	pages "gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// request is one of an open-loop load: it arrives whatever the server does.
type request struct {
	at      time.Duration
	service time.Duration
}

// recorded reads the requests of a recorded load. The time in service is a fixed part
// and one for each token of the answer.
func recorded(t testing.TB, name string) []request {
	t.Helper()
	f, err := os.Open("testdata/load/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []request
	var at time.Duration
	for _, row := range rows[1:] {
		after, err1 := strconv.Atoi(row[0])
		tokens, err2 := strconv.Atoi(row[1])
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: row %v is not two numbers", name, row)
		}
		at += time.Duration(after) * time.Millisecond
		out = append(out, request{at, 200*time.Millisecond + time.Duration(tokens)*10*time.Millisecond})
	}
	return out
}

// poisson makes an hour of requests that know nothing of each other.
func poisson(rate float64, seed uint64) []request {
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []request
	for at := 0.0; at < 3600; at += rng.ExpFloat64() / rate {
		out = append(out, request{time.Duration(at * 1e9), time.Duration((0.5 + rng.ExpFloat64()) * 2e9)})
	}
	return out
}

// heaviest is the most work that arrives in a second over any ten minutes, and lightest
// the least, in seconds of one place.
func work(load []request) (heaviest, lightest float64) {
	const window = 10 * time.Minute
	end := load[len(load)-1].at
	lightest = math.Inf(1)
	for from := time.Duration(0); from+window <= end; from += time.Minute {
		sum := 0.0
		for _, r := range load {
			if r.at >= from && r.at < from+window {
				sum += r.service.Seconds()
			}
		}
		heaviest, lightest = max(heaviest, sum/window.Seconds()), min(lightest, sum/window.Seconds())
	}
	return heaviest, lightest
}

// server serves a load with so many places at once, in the order of arrival.
type loadServer struct {
	load    []request
	places  float64 // of which a part is a place that is slower
	next    int
	queue   []request
	running []time.Duration // when each is done
	window  pages.Window
	now     time.Duration

	ended, tokens, waited float64
	empty                 time.Duration // when nobody waited last
	started               []float64     // time in the queue of those started in the last minute
	startedAt             []time.Duration
}

// run serves until then.
func (v *loadServer) run(until time.Duration) {
	for {
		at := until
		if v.next < len(v.load) {
			at = min(at, v.load[v.next].at)
		}
		if len(v.running) > 0 {
			at = min(at, v.running[0])
		}
		v.now = at
		switch {
		case len(v.running) > 0 && v.running[0] <= at && v.running[0] <= until:
			v.running = v.running[1:]
			v.ended++
			v.tokens += 100
		case v.next < len(v.load) && v.load[v.next].at <= at:
			v.queue = append(v.queue, v.load[v.next])
			v.next++
		default:
			return
		}
		v.start()
	}
}

// start takes the first of the queue into service. Places that are not a whole number
// make all of them a little slower or faster.
func (v *loadServer) start() {
	places := math.Ceil(v.places)
	for len(v.queue) > 0 && float64(len(v.running)) < places {
		r := v.queue[0]
		v.queue = v.queue[1:]
		done := v.now + time.Duration(float64(r.service)*places/v.places)
		i, _ := slices.BinarySearch(v.running, done)
		v.running = slices.Insert(v.running, i, done)
		v.waited += (v.now - r.at).Seconds()
		v.started, v.startedAt = append(v.started, (v.now-r.at).Seconds()), append(v.startedAt, v.now)
	}
}

// tell puts what the server's page says into an endpoint.
func (v *loadServer) tell(e *collector.Endpoint, at time.Time) {
	for len(v.startedAt) > 0 && v.startedAt[0] < v.now-time.Minute {
		v.started, v.startedAt = v.started[1:], v.startedAt[1:]
	}
	e.Set(metric.RequestsRunning, float64(len(v.running)))
	e.Set(metric.RequestsWaiting, float64(len(v.queue)))
	e.Set(metric.GeneratedTokens, v.tokens)
	if len(v.started) > 0 {
		sorted := slices.Sorted(slices.Values(v.started))
		e.Set(metric.QueueTimeP95, sorted[len(sorted)*95/100])
	}
	if len(v.queue) == 0 {
		v.empty = v.now
	}
	v.window.Add(pages.Page{
		At: at, Running: float64(len(v.running)), Waiting: float64(len(v.queue)), KV: math.NaN(), Ended: v.ended, Generated: v.tokens,
		Queue: pages.Sum{Seconds: v.waited, Count: v.ended + float64(len(v.running))}, Duration: pages.Unknown(),
	})
	v.window.Set(e.Readings)
}

// grown serves a load with so many places and returns for how long requests have
// waited without a pause when a finding of queueing's cause growing fires; 0 if none does.
func grown(t *testing.T, load []request, places float64, step time.Duration) time.Duration {
	st := newStage(t, DetectorConfig{}, step)
	v := &loadServer{load: load, places: places}
	begin := st.now
	st.set = func(s *collector.Snapshot) {
		v.run(s.Time.Sub(begin))
		v.tell(endpoint(s), s.Time)
	}
	for st.now.Sub(begin) < load[len(load)-1].at {
		for _, in := range st.run(step) {
			if in.Rule == rules.IDQueueing && in.Cause == causeGrowing && in.State == Firing {
				return st.now.Sub(begin) - v.empty
			}
		}
	}
	return 0
}

// What a server can serve does not make its queue grow, however it is sent; what it
// cannot is found within a quarter of an hour. The load is that of the heaviest ten
// minutes, or of the lightest, so that it holds at any time.
func TestQueueGrowsOnlyUnderTooMuchLoad(t *testing.T) {
	loads := map[string][]request{
		"conversations":   recorded(t, "mooncake_conversation.csv"),
		"poisson, 1/s":    poisson(1, 1),
		"poisson, 4/s":    poisson(4, 2),
		"poisson, 30/s":   poisson(30, 3),
		"code, in bursts": recorded(t, "azure_code.csv"),
	}
	for name, load := range loads {
		heaviest, lightest := work(load)
		for _, step := range []time.Duration{5 * time.Second, 15 * time.Second, time.Minute} {
			for _, rho := range []float64{0.5, 0.8, 1.15, 1.5} {
				t.Run(fmt.Sprintf("%s, %s, rho %v", name, step, rho), func(t *testing.T) {
					of := heaviest
					if rho > 1 {
						of = lightest
					}
					if rho > 1 && name == "code, in bursts" {
						of = mean(load) // there are ten minutes in which nearly nothing comes
					}
					after := grown(t, load, of/rho, step)
					switch {
					case rho <= 0.8 && after > 0:
						t.Errorf("a finding after %s on a server that is loaded to %s", after, percentOf(rho))
					case rho > 1 && (after == 0 || after > 15*time.Minute):
						t.Errorf("the finding comes when requests have waited for %s, want it within 15 min", after)
					}
				})
			}
		}
	}
}

func mean(load []request) float64 {
	sum := 0.0
	for _, r := range load {
		sum += r.service.Seconds()
	}
	return sum / load[len(load)-1].at.Seconds()
}
