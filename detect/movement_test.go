package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

const perHour = 1. / 3600

// moving is an owner of a stage who moves data. Amounts are in bytes a second.
type moving struct {
	owner     collector.Owner
	stage     string
	sent      func(at time.Time) float64
	received  func(at time.Time) float64
	networks  func(at time.Time) []netip.Prefix
	addresses []netip.Addr
	host      bool // it shares the host's network
	here      func(at time.Time) bool
	counters  [len(movedThings)]float64
	last      time.Time
}

var (
	known   = netip.MustParsePrefix("198.51.0.0/16")
	foreign = netip.MustParsePrefix("203.0.0.0/16")
)

func always(of ...netip.Prefix) func(time.Time) []netip.Prefix {
	return func(time.Time) []netip.Prefix { return of }
}

func steadily(gigabytesAnHour float64) func(time.Time) float64 {
	return func(time.Time) float64 { return gigabytesAnHour * 1e9 * perHour }
}

// play puts the owner's workload into a snapshot.
func (m *moving) play(s *collector.Snapshot) {
	if m.here != nil && !m.here(s.Time) {
		m.counters, m.last = [len(movedThings)]float64{}, time.Time{}
		return
	}
	dt := 0.0
	if !m.last.IsZero() {
		dt = s.Time.Sub(m.last).Seconds()
	}
	m.last = s.Time
	m.counters[egress] += m.sent(s.Time) * dt
	if m.received != nil {
		m.counters[ingress] += m.received(s.Time) * dt
	}
	for i := directions; i < len(movedThings); i++ {
		m.counters[i] += 1e6 * dt
	}
	w := collector.Workload{Owner: m.owner, Stage: m.stage, Readings: collector.NewReadings(metric.Workload), Remotes: m.addresses}
	w.Stamp(metric.Slow, s.Time)
	for i, f := range movedThings {
		if i < directions && m.host {
			continue
		}
		w.SetAt(f.row, max(f.at, 0), m.counters[i])
		if f.at == both {
			w.SetAt(f.row, 1, m.counters[i])
		}
	}
	if m.host {
		w.Caveats = []collector.Caveat{{Fact: "network", Reason: "host_network"}}
	} else {
		w.Networks = m.networks(s.Time)
		w.SetAt(metric.WorkloadRemotes, 0, 4)
		w.SetAt(metric.WorkloadRemotes, 1, float64(len(w.Networks)))
	}
	s.Workloads = append(s.Workloads, w)
}

func replica(i int) collector.Owner {
	return collector.Owner{Kind: "pod", ID: fmt.Sprintf("nlp/chat-%d", i), Team: "nlp"}
}

func movementStage(t *testing.T, step time.Duration, of ...*moving) *stage {
	st := newStage(t, DetectorConfig{}, step)
	st.e = NewEngine(Config{Node: "n1"}, []Detector{NewMovement()})
	st.failed = failures(st.e)
	st.set = func(s *collector.Snapshot) {
		for _, m := range of {
			m.play(s)
		}
	}
	return st
}

// again restarts the agent with one detector.
func (st *stage) again(d Detector) {
	st.t.Helper()
	data, err := st.e.Save()
	if err != nil {
		st.t.Fatal(err)
	}
	st.e = NewEngine(Config{Node: "n1"}, []Detector{d})
	if err := st.e.Restore(data); err != nil {
		st.t.Fatal(err)
	}
	if n := failures(st.e); n > st.failed {
		st.t.Fatal("the detector lost its memory in the restart")
	}
}

// ticketed fails unless a ticket of the rule fires on the subject for the cause, and
// returns it.
func (st *stage) ticketed(id rules.ID, subject, cause string) *Finding {
	st.t.Helper()
	for _, f := range st.e.View().Findings {
		if f.Rule == id && f.Subject.String() == subject && f.Cause == cause && f.State == Firing && f.Severity == rules.Ticket {
			return &f
		}
	}
	st.t.Fatalf("at %s: no ticket %s/%s on %s; there is %+v", st.now.Format(time.DateTime), id, cause, subject, st.e.View().Findings)
	return nil
}

// noTicket fails if any finding is more than information.
func (st *stage) noTicket(why string) {
	st.t.Helper()
	for _, in := range st.told {
		if in.Severity > rules.Info {
			st.t.Errorf("%s: told a %s of %s/%s: %s", why, in.Severity, in.Rule, in.Cause, in.Members[0].Evidence.Seen)
		}
	}
}

func TestLargeUploadToANewNetwork(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
		t.Run(step.String(), func(t *testing.T) {
			m := &moving{owner: replica(0), sent: steadily(0.4), networks: always(known)}
			st := movementStage(t, time.Minute, m)
			st.run(48 * time.Hour)
			st.silent("its habit")
			st.again(NewMovement())
			st.step = step
			m.sent, m.networks = steadily(60), always(known, foreign)
			st.run(45 * time.Minute)
			st.noTicket("45 GB, less than the least that is a ticket")
			st.run(10 * time.Minute)
			f := st.ticketed(rules.IDDataMovement, "pod:nlp/chat-0", "egress")
			if !strings.Contains(f.Evidence.Seen, "sent 5") || !strings.Contains(f.Evidence.Seen, "1 public network that it was never connected to before 2026-03-04 00:0") {
				t.Errorf("it says: %s", f.Evidence.Seen)
			}
			if *f.Evidence.Want != leastMoved || f.Evidence.Observed < leastMoved || f.Title() != "Large upload to a new network" {
				t.Errorf("%s: observed %v, want above %v", f.Title(), f.Evidence.Observed, *f.Evidence.Want)
			}
			if text := f.Evidence.Seen + f.Evidence.Why + f.Evidence.Expected; strings.Contains(text, "203.0") || strings.Contains(text, "198.51") {
				t.Errorf("an address or a network is in the evidence, which chat channels must not see by default: %s", text)
			}
		})
	}
}

// 72 GB an hour is too much within 42 min. Where these lie in two hours of the clock, the
// first part must not have become a habit when the second is judged.
func TestUploadAcrossHoursOfTheClock(t *testing.T) {
	for _, warm := range []time.Duration{30*time.Hour + 25*time.Minute, 14*24*time.Hour + 25*time.Minute} {
		m := &moving{owner: replica(0), sent: steadily(0.4), networks: always(known)}
		st := movementStage(t, time.Minute, m)
		st.run(warm)
		m.sent, m.networks = steadily(72), always(known, foreign)
		st.run(50 * time.Minute)
		st.ticketed(rules.IDDataMovement, "pod:nlp/chat-0", "egress")
	}
}

func TestAddressesInTheEvidenceWhereAllowed(t *testing.T) {
	m := &moving{owner: replica(0), sent: steadily(0.4), networks: always(known)}
	st := movementStage(t, time.Minute, m)
	st.run(48 * time.Hour)
	m.sent, m.networks = steadily(80), always(known, foreign)
	m.addresses = []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.9")}
	st.run(time.Hour)
	f := st.ticketed(rules.IDDataMovement, "pod:nlp/chat-0", "egress")
	if !strings.HasSuffix(f.Evidence.Why, "now connected to 203.0.113.9") {
		t.Errorf("the configuration allows addresses, and the one of the new network is not named, or another is: %s", f.Evidence.Why)
	}
}

// 5 GB an hour is never much in an hour, and adds up.
func TestSlowUploadAddsUp(t *testing.T) {
	for _, step := range []time.Duration{15 * time.Second, time.Minute} {
		t.Run(step.String(), func(t *testing.T) {
			m := &moving{owner: replica(0), sent: steadily(0.4), networks: always(known)}
			st := movementStage(t, time.Minute, m)
			st.run(48 * time.Hour)
			st.step = step
			m.sent, m.networks = steadily(5), always(known, foreign)
			st.run(5 * time.Hour)
			st.again(NewMovement())
			st.run(3 * time.Hour)
			st.noTicket("eight hours are not yet enough")
			st.run(8 * time.Hour)
			f := st.ticketed(rules.IDDataMovement, "pod:nlp/chat-0", "slow_egress")
			if !strings.Contains(f.Evidence.Seen, "GB more than its habit since 2026-03-04 00:0") || f.Evidence.Confidence != Young {
				t.Errorf("%s, %s", f.Evidence.Seen, f.Evidence.Confidence)
			}
			m.sent = steadily(0.4)
			st.run(26 * time.Hour)
			if st.firing(rules.IDDataMovement, "pod:nlp/chat-0") {
				t.Error("it still fires a day after the upload ended")
			}
		})
	}
}

func TestMovementLookAlikes(t *testing.T) {
	hourly := func(minutes int, gigabytes float64) func(time.Time) float64 {
		return func(at time.Time) float64 {
			if at.Minute() < minutes {
				return gigabytes * 1e9 / (60 * float64(minutes))
			}
			return 1e4
		}
	}
	nightly := func(at time.Time) bool { return at.Hour() == 2 }
	atFirst := func(at time.Time) []netip.Prefix {
		if at.Before(day.Add(72 * time.Hour)) {
			return []netip.Prefix{known}
		}
		return []netip.Prefix{known, foreign}
	}
	late := func(at time.Time) bool { return !at.Before(day.Add(72 * time.Hour)) }
	for name, of := range map[string][]*moving{
		"checkpoints of 90 GB an hour to a storage that is known": {{owner: replica(0), sent: hourly(10, 90), networks: always(known)}},
		"checkpoints of 90 GB an hour to a storage that moves":    {{owner: replica(0), sent: hourly(10, 90), networks: atFirst}},
		"nightly batch to a known network": {{owner: replica(0), networks: always(known), sent: func(at time.Time) float64 {
			if nightly(at) {
				return 200e9 * perHour
			}
			return 1e5
		}}},
		"nightly backup and a new network that gets little": {{owner: replica(0), networks: atFirst, sent: func(at time.Time) float64 {
			if nightly(at) {
				return 40e9 * perHour
			}
			return 1e5
		}}},
		"a job only at night": {{owner: replica(0), networks: atFirst, sent: steadily(30), here: nightly}},
		"host network":        {{owner: replica(0), sent: steadily(500), networks: atFirst, host: true}},
		"much, and nothing new": {{owner: replica(0), networks: always(known), sent: func(at time.Time) float64 {
			if late(at) {
				return 300e9 * perHour
			}
			return 1e5
		}}},
		"new, and not much": {{owner: replica(0), networks: atFirst, sent: steadily(0.4)}},
		"another replica of a known deployment": {
			{owner: replica(0), sent: steadily(20), networks: always(known)},
			{owner: replica(1), sent: steadily(20), networks: always(known), here: late},
		},
		"a data set that is fetched in the first half hour": {
			{owner: replica(0), sent: steadily(0.4), networks: always(known)},
			{owner: replica(1), sent: steadily(0.4), networks: always(known, foreign), here: late, received: func(at time.Time) float64 {
				if at.Before(day.Add(72*time.Hour + 29*time.Minute)) {
					return 400e9 * perHour
				}
				return 1e5
			}},
		},
		"a kind of workload that nobody knows yet": {{owner: replica(0), sent: steadily(500), networks: always(foreign), here: late}},
	} {
		t.Run(name, func(t *testing.T) {
			st := movementStage(t, time.Minute, of...)
			st.run(72*time.Hour + 20*time.Hour)
			st.noTicket(name)
		})
	}
}

// A burst of one hour each night is a habit, though it is above the 95th percentile of
// all hours: beside a new network that gets nothing it must not add up.
func TestNightlyBurstsDoNotAddUp(t *testing.T) {
	m := &moving{owner: replica(0), networks: always(known), sent: func(at time.Time) float64 {
		if at.Hour() == 2 {
			return 40e9 * perHour
		}
		return 1e5
	}}
	st := movementStage(t, time.Minute, m)
	st.run(3 * 24 * time.Hour)
	for range 12 { // each day another one
		m.networks = always(known, netip.PrefixFrom(netip.AddrFrom4([4]byte{203, byte(st.now.Day()), 0, 0}), 16))
		st.run(24 * time.Hour)
	}
	st.noTicket("nightly bursts of 40 GB")
}

// What is only unusual is information, and says how rare it is.
func TestUnusualMovementIsInformation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := &moving{owner: replica(0), networks: always(known), sent: func(time.Time) float64 { return 1e6 * (1 + 0.1*rng.NormFloat64()) }}
	st := movementStage(t, time.Minute, m)
	st.run(72 * time.Hour)
	m.sent = func(time.Time) float64 { return 40e6 }
	st.run(20 * time.Minute)
	f := st.finding(rules.IDDataMovement, "pod:nlp/chat-0")
	if f == nil || f.Cause != "unusual" || f.Severity != rules.Info {
		t.Fatalf("forty times the usual egress to a known network is %+v, want information", f)
	}
	if !strings.Contains(f.Evidence.Seen, "unusual movement: network egress of 40 MB/s") {
		t.Errorf("it says: %s", f.Evidence.Seen)
	}
	st.noTicket("a known network")
}

// A recording has how many public addresses there are, and not which.
func TestUploadWhereNetworksAreOnlyCounted(t *testing.T) {
	m := &moving{owner: replica(0), sent: steadily(0.4), networks: always(known)}
	st := movementStage(t, time.Minute, m)
	set := st.set
	st.set = func(s *collector.Snapshot) {
		set(s)
		s.Workloads[0].Networks = nil
	}
	st.run(48 * time.Hour)
	m.sent = steadily(80)
	st.run(50 * time.Minute)
	st.noTicket("as many as before")
	m.networks = always(known, foreign)
	st.run(2 * time.Minute)
	st.ticketed(rules.IDDataMovement, "pod:nlp/chat-0", "egress")
}

func TestMovementWithCountersThatBeginAnewAndGaps(t *testing.T) {
	m := &moving{owner: replica(0), sent: steadily(0.4), networks: always(known)}
	st := movementStage(t, time.Minute, m)
	st.run(48 * time.Hour)
	m.networks = always(known, foreign)
	m.counters[egress] = 900e9 // a counter that leaps while nobody looks
	st.now = st.now.Add(20 * time.Minute)
	m.last = st.now
	st.run(30 * time.Minute)
	m.counters[egress] = 0 // and one that begins anew
	st.run(2 * time.Hour)
	st.noTicket("a gap and a counter that began anew")
}

func TestMovementWhenTheClockIsSet(t *testing.T) {
	m := &moving{owner: replica(0), sent: steadily(0.4), networks: always(known)}
	st := movementStage(t, time.Minute, m)
	st.run(48 * time.Hour)
	m.sent, m.networks = steadily(60), always(known, foreign)
	st.run(40 * time.Minute)
	for _, by := range []time.Duration{-7 * time.Hour, 3 * time.Hour} {
		set := st.set
		st.set = func(s *collector.Snapshot) {
			s.Step = by
			set(s)
			st.set = set
		}
		st.now = st.now.Add(by)
		m.last = m.last.Add(by)
		st.run(10 * time.Minute)
	}
	f := st.ticketed(rules.IDDataMovement, "pod:nlp/chat-0", "egress")
	if f.Evidence.Observed > 70e9 || f.Evidence.Observed < 50e9 {
		t.Errorf("in the last hour it sent %v bytes, want some 58 GB whatever the clock says", f.Evidence.Observed)
	}
}

func TestMovementMemoryIsBounded(t *testing.T) {
	d := NewMovement()
	for i := range 3000 {
		s := node(day.Add(time.Duration(i)*time.Minute), 1)
		m := &moving{owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("ns/a%d/x", i)}, sent: steadily(1),
			networks: always(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(1 + i%200), byte(i / 200), 0, 0}), 16))}
		m.play(s)
		d.Observe(s, func(Observation) {})
	}
	if len(d.movers) > maxMovers || len(d.classes) > maxClasses || len(d.habits.of) > maxHabits {
		t.Errorf("it keeps %d owners, %d classes and %d habits, without end", len(d.movers), len(d.classes), len(d.habits.of))
	}
	c := newMovedClass(day)
	for i := range 5000 {
		c.know(knownNetwork{Network: netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i), byte(i >> 8), 0, 0}), 16), Last: day.Add(time.Duration(i) * time.Minute)})
	}
	if len(c.Networks) > maxKnown {
		t.Errorf("it keeps %d networks of one class, want at most %d", len(c.Networks), maxKnown)
	}
}

// TestCrossingsIsABound plays healthy hours, and counts how often their sum crosses the
// limit: never more than the bound says.
func TestCrossingsIsABound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct{ k, mean, excess float64 }{{1, 0.5, 0.5}, {1, 0.8, 1}, {2, 0.2, 8}, {1, 0.1, 15}} {
		for _, limit := range []float64{1, 3, 10} {
			const hours = 400_000
			sum, times, over := 0.0, 0, false
			for range hours {
				x := c.k + c.excess*rng.ExpFloat64()
				if rng.Float64() >= 0.05 {
					// The widest spread of what is below k, at the mean.
					x = 0
					if rng.Float64() < c.mean/c.k {
						x = c.k
					}
				}
				sum = max(0, sum+x-c.k)
				if over = sum >= limit; over {
					times++
				}
			}
			if got, bound := float64(times)*hoursPerWeek/hours, crossings(limit, c.k, c.mean, c.excess); got > bound*1.05+0.01 {
				t.Errorf("%+v, limit %v: above it in %v hours of a week, and the bound is %v", c, limit, got, bound)
			}
		}
	}
	if got := crossings(50, 1, 0.5, 0.3); got > 1e-6 {
		t.Errorf("fifty gigabytes above a habit of one happen %v times a week, want next to never", got)
	}
	if got := crossings(50, 1, 2, 0.3); got != hoursPerWeek {
		t.Errorf("without a drift the bound is %v, want every hour", got)
	}
}

func TestBeyondFallsWithSize(t *testing.T) {
	if got := beyond(2, 1, 0.01); math.Abs(got-0.01/32) > 1e-12 {
		t.Errorf("twice the 99th percentile is as rare as %v, want a 32nd of one in a hundred", got)
	}
	if got := beyond(0.5, 1, 0.01); got != 0.01 {
		t.Errorf("below the percentile it is %v, want its share", got)
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), 0, -1, 1e-300, 1e300} {
		if got := surpriseOf(x); !(got >= leastSurprise && got <= mostSurprise) {
			t.Errorf("%v findings a week are %v nats", x, got)
		}
	}
}

// eightMovers returns a detector that knows eight owners, and their next snapshot.
func eightMovers() (*Movement, func() *collector.Snapshot) {
	d, at := NewMovement(), day
	var ring []*collector.Snapshot
	var all []*moving
	for i := range 8 {
		all = append(all, &moving{owner: collector.Owner{Kind: "pod", ID: fmt.Sprintf("ns/app%c-0", 'a'+i)}, sent: steadily(1), networks: always(known)})
	}
	for range 4096 {
		at = at.Add(15 * time.Second)
		s := node(at, 8)
		for _, m := range all {
			m.play(s)
		}
		ring = append(ring, s)
	}
	next := 0
	for range 400 {
		d.Observe(ring[next], func(Observation) {})
		next++
	}
	return d, func() *collector.Snapshot {
		s := ring[next]
		next = min(next+1, len(ring)-1)
		return s
	}
}

func TestMovementAllocatesNothing(t *testing.T) {
	d, next := eightMovers()
	report := func(Observation) {}
	if got := testing.AllocsPerRun(2000, func() { d.Observe(next(), report) }); got > 0.01 {
		t.Errorf("a snapshot of eight owners costs %.2f allocations, want none", got)
	}
}

func BenchmarkMovement(b *testing.B) {
	d, next := eightMovers()
	report := func(Observation) {}
	b.ReportAllocs()
	for b.Loop() {
		d.Observe(next(), report)
	}
}

// What is remembered is written every half minute.
func TestMovementMemoryIsSmall(t *testing.T) {
	d, _ := eightMovers()
	data, err := d.Save()
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 512<<10 {
		t.Errorf("the memory of eight owners of eight classes takes %d bytes, want half a MiB at most", len(data))
	}
}
