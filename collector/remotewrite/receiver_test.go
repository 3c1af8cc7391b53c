package remotewrite

import (
	"bytes"
	"log/slog"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
	"gpuvigil/internal/metric"
)

func number(v float64) string {
	if math.Float64bits(v) == 0x7ff0000000000002 {
		return "stale"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func after(seconds float64) int64 { return noon.Add(time.Duration(seconds * 1e9)).UnixMilli() }

func receiver(b *book, limits Limits) *Receiver {
	return New(Config{Interval: 15 * time.Second, Grace: 10 * time.Second, Keep: 5 * time.Minute, Limits: limits, Assembler: b, Log: slog.New(slog.DiscardHandler)})
}

// give has the receiver read a message as if it came at the time.
func give(t *testing.T, r *Receiver, m []byte, v2 bool, now time.Time) taken {
	t.Helper()
	b := &batch{data: m, second: v2}
	if err := b.read(&r.seeds, &r.cfg.Limits); err != nil {
		t.Fatalf("a good message is refused: %v", err)
	}
	got, err := r.take(b, now)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCuts(t *testing.T) {
	f := func(v2 bool) {
		t.Helper()
		b := newBook("up", "power")
		r := receiver(b, Limits{})
		send := func(now float64, series ...sent) {
			t.Helper()
			m := first(series...)
			if v2 {
				m = second(t, series...)
			}
			give(t, r, m, v2, noon.Add(time.Duration(now*1e9)))
		}
		power := func(samples ...sample) sent { return sent{named("power", "gpu", "0"), samples} }
		stale := math.Float64frombits(0x7ff0000000000002)

		send(1, power(sample{after(0), 300}), sent{named("up", "job", "x"), []sample{{after(1), 1}}}, sent{named("other"), []sample{{after(1), 9}}})
		send(8, power(sample{after(16), 310}))                            // of the next interval already
		send(9, power(sample{after(5), 302.5}))                           // late, within the grace
		send(10, sent{named("up", "job", "x"), []sample{{after(-3), 0}}}) // it comes after one that is newer
		r.Cut(noon.Add(15 * time.Second))
		send(26, power(sample{after(10), 1}))                                        // too late for that cut
		send(27, power(sample{after(20), stale}), power(sample{after(-301), 1}))     // ended; too old
		send(28, power(sample{after(100), 2}), power(sample{after(21), math.NaN()})) // a clock that goes before
		r.Cut(noon.Add(30 * time.Second))
		want := []string{
			"__name__=up job=x 11:59:57.000 0", "__name__=power gpu=0 12:00:00.000 300", "__name__=up job=x 12:00:01.000 1", "__name__=power gpu=0 12:00:05.000 302.5",
			"cut 12:00:15",
			"__name__=power gpu=0 12:00:10.000 1", "__name__=power gpu=0 12:00:16.000 310", "__name__=power gpu=0 12:00:20.000 stale", "__name__=power gpu=0 12:00:21.000 NaN",
			"cut 12:00:30",
		}
		if diff := cmp.Diff(want, b.lines); diff != "" {
			t.Errorf("version 2: %v: what goes into the snapshots differs (-want +got):\n%s", v2, diff)
		}
		counted := Tally{Series: 11, Samples: 11, Cuts: 2, Unwanted: 1, Refused: map[string]uint64{}, Late: 1, Old: 1, Ahead: 1, Known: 3}
		if v2 {
			counted.Exemplars = 11
		}
		got := r.Tally()
		got.Took = 0
		if diff := cmp.Diff(counted, got); diff != "" {
			t.Errorf("version 2: %v: counted (-want +got):\n%s", v2, diff)
		}
	}
	f(false)
	f(true)
}

// What the assembler refuses is counted, and asked for again only after a while.
func TestSeriesThatAreRefused(t *testing.T) {
	b := newBook("up")
	b.full = true
	r := receiver(b, Limits{})
	at := noon
	for i := range generation + 3 {
		at = at.Add(15 * time.Second)
		give(t, r, first(sent{named("up"), []sample{{at.UnixMilli(), 1}}}), false, at)
		b.full = i == 0
		r.Cut(at)
	}
	if got := r.Tally().Unplaced; got != generation {
		t.Errorf("%d samples are counted as left out, want %d: the series was asked for again too soon or never", got, generation)
	}
}

// What is sent for the first time in a long while is known again; what is not is forgotten.
func TestSeriesAreForgotten(t *testing.T) {
	r := receiver(newBook("up"), Limits{Known: 10})
	for i := range 1000 {
		give(t, r, first(sent{named("up", "i", strconv.Itoa(i)), []sample{{after(1), 1}}}, sent{named("up", "i", "always"), []sample{{after(1), 1}}}), false, noon)
	}
	if got := r.Tally().Known; got > 20 {
		t.Errorf("%d series are kept in mind, want at most two generations of 10", got)
	}
	if e := r.cache.get(func() key {
		b := &batch{data: first(sent{labels: named("up", "i", "always")})}
		if err := b.read(&r.seeds, &r.cfg.Limits); err != nil {
			t.Fatal(err)
		}
		return b.series[0].key
	}()); e == nil {
		t.Error("a series of each request was forgotten")
	}
}

func TestRunCutsOnTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook("up")
		r := receiver(b, Limits{})
		var cuts []string
		go r.Run(t.Context(), func(at time.Time, snapshots []*collector.Snapshot) {
			cuts = append(cuts, at.UTC().Format("05")+" at "+time.Now().UTC().Format("05"))
			if len(snapshots) != 1 || !snapshots[0].Time.Equal(at) {
				t.Errorf("at %s there is no snapshot of that instant", at)
			}
		})
		time.Sleep(7 * time.Second)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"15 at 25", "30 at 40", "45 at 55"}, cuts); diff != "" {
			t.Errorf("cuts are not an interval apart and a grace late (-want +got):\n%s", diff)
		}
	})
}

// Each sample is told of once, under a fate that the catalogue has.
func TestTell(t *testing.T) {
	r := receiver(newBook("up"), Limits{})
	send := func(s ...sent) { post(r, firstType, "snappy", bytes.NewReader(packed(first(s...)))) }
	send(sent{named("up"), []sample{{now(), 1}, {now() - 3600_000, 1}, {now() + 3600_000, 1}}}, sent{named("x"), []sample{{now(), 1}}})
	send(sent{named(""), []sample{{now(), 1}}})
	sum := map[string]float64{}
	r.Tell(func(d *metric.Def, v float64, labels ...string) {
		if len(labels) != len(d.LabelNames()) {
			t.Errorf("%s is told with labels %q, the catalogue has %q", d, labels, d.LabelNames())
		}
		sum[d.Name] += v
		if v != 0 && d == metric.WriteSamples {
			sum[labels[0]] = v
		}
	})
	for what, want := range map[string]float64{metric.WriteRequests.Name: 2, metric.WriteSamples.Name: 5, "taken": 1, "old": 1, "ahead": 1, "unwanted": 1, "no_name": 1} {
		if sum[what] != want {
			t.Errorf("%s: %v, want %v", what, sum[what], want)
		}
	}
}

// What the role has sent comes back from a database that sends on all that it has.
func TestOwnSeriesAreNotTaken(t *testing.T) {
	b := newBook("vigil_finding")
	r := receiver(b, Limits{})
	r.cfg.Own = series.Label{Name: "job", Value: "gpuvigil-fleet"}
	give(t, r, first(sent{named("vigil_finding", "job", "gpuvigil-fleet"), []sample{{after(1), 1}}}, sent{named("vigil_finding", "job", "gpuvigil"), []sample{{after(1), 1}}}), false, noon)
	r.Cut(noon.Add(time.Minute))
	if diff := cmp.Diff([]string{"__name__=vigil_finding job=gpuvigil 12:00:01.000 1", "cut 12:01:00"}, b.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
