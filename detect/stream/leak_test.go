package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// epoch is where the longest blocks of a Leak begin.
var epoch = time.Unix(1772006400/(blockSeconds<<6)*(blockSeconds<<6), 0)

// noise is about normal with deviation 1, and the same on every architecture.
func noise(r *rand.Rand) float64 {
	sum := -6.0
	for range 12 {
		sum += r.Float64()
	}
	return sum
}

// course is a series: its value at so many seconds from the start.
type course func(r *rand.Rand) func(second int) float64

// alarms feeds a course and returns the seconds of the first sample of each alarm, at
// least an hour apart.
func alarms(l *Leak, c course, seed uint64, length, step time.Duration) (at []int) {
	value := c(rand.New(rand.NewPCG(seed, 1)))
	last := -3600
	for s := 0; s < int(length.Seconds()); s += int(step.Seconds()) {
		if l.Add(epoch.Add(time.Duration(s)*time.Second), value(s)) >= 1 && s-last >= 3600 {
			at, last = append(at, s), s
		}
	}
	return at
}

const anHour = 3600

// leaking is flat for eight hours and then grows by the share in the time.
func leaking(share float64, hours int) course {
	return func(r *rand.Rand) func(int) float64 {
		return func(s int) float64 {
			return 40*(1+share*float64(max(s-8*anHour, 0))/float64(hours*anHour)) + 0.2*noise(r)
		}
	}
}

func TestLeakIsFound(t *testing.T) {
	f := func(name string, c course, length, step, within time.Duration) {
		t.Helper()
		got := alarms(NewLeak(), c, 1, length, step)
		if len(got) == 0 {
			t.Errorf("%s, sampled every %s: not found in %s", name, step, length)
			return
		}
		if d := time.Duration(got[0]-8*anHour) * time.Second; d < 0 || d > within {
			t.Errorf("%s, sampled every %s: found %s after it began, want within %s and not before", name, step, d, within)
		}
	}
	for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute, 5 * time.Minute} {
		f("a quarter in five hours", leaking(0.25, 5), 13*time.Hour, step, 150*time.Minute)
	}
	f("a quarter in five hours", leaking(0.25, 5), 13*time.Hour, 20*time.Minute, 5*time.Hour)
	f("double in an hour", leaking(1, 1), 10*time.Hour, 15*time.Second, 70*time.Minute)
	f("half in four days", leaking(0.5, 96), 104*time.Hour, time.Minute, 48*time.Hour)
	f("half in four days", leaking(0.5, 96), 104*time.Hour, time.Hour, 72*time.Hour)
	f("below garbage collection", func(r *rand.Rand) func(int) float64 {
		base := leaking(0.5, 5)(r)
		return func(s int) float64 { return base(s) + 8*float64(s%1500)/1500 }
	}, 13*time.Hour, 15*time.Second, 3*time.Hour)
	f("with holes", func(r *rand.Rand) func(int) float64 {
		base := leaking(0.25, 5)(r)
		return func(s int) float64 {
			if x := base(s); s/600%4 != 0 {
				return x
			}
			return math.NaN()
		}
	}, 13*time.Hour, 15*time.Second, 5*time.Hour)
}

// lookAlikes grow, too, and do not leak. What comes and goes may be taken for a leak
// before it has come and gone, and jobs whose sizes happen to rise, now and then.
var lookAlikes = map[string]struct {
	learning int // hours
	most     int // false alarms in 35 series-days after that
	make     course
}{
	"constant": {0, 0, func(*rand.Rand) func(int) float64 { return func(int) float64 { return 7 } }},
	"noise":    {0, 0, func(r *rand.Rand) func(int) float64 { return func(int) float64 { return 10 + 3*noise(r) } }},
	"slow drift of a per cent a day": {0, 0, func(r *rand.Rand) func(int) float64 {
		return func(s int) float64 { return 10*(1+0.01*float64(s)/86400) + 0.1*noise(r) }
	}},
	"steps of jobs": {0, 2, func(r *rand.Rand) func(int) float64 {
		x := 10.0
		return func(s int) float64 {
			if s%60 == 0 && r.Float64() < 1./200 {
				x = 5 + 20*r.Float64()
			}
			return x + 0.1*noise(r)
		}
	}},
	"garbage collection of 45 min": {0, 0, sawtooth(45*60, 5)},
	"garbage collection of 3 h":    {4, 0, sawtooth(3*anHour, 5)},
	"checkpoint buffers": {0, 0, func(r *rand.Rand) func(int) float64 {
		return func(s int) float64 {
			if s%1800 < 180 {
				return 14 + 0.1*noise(r)
			}
			return 10 + 0.1*noise(r)
		}
	}},
	"nightly batch": {36, 0, func(r *rand.Rand) func(int) float64 {
		return func(s int) float64 {
			if at := s % 86400; at > 2*anHour && at < 9*anHour/2 {
				return 10 + 8*float64(at-2*anHour)/9000 + 0.1*noise(r)
			}
			return 10 + 0.1*noise(r)
		}
	}},
	"page cache after a start": {0, 0, func(r *rand.Rand) func(int) float64 {
		x := 1.0
		return func(int) float64 {
			x *= 59.0 / 60 // each minute
			return 10 - 6*x + 0.05*noise(r)
		}
	}},
}

func sawtooth(period int, height float64) course {
	return func(r *rand.Rand) func(int) float64 {
		return func(s int) float64 { return 10 + height*float64(s%period)/float64(period) + 0.1*noise(r) }
	}
}

func TestLookAlikesStaySilent(t *testing.T) {
	for name, l := range lookAlikes {
		var wrong []string
		for seed := range uint64(5) {
			for _, at := range alarms(NewLeak(), l.make, seed, 7*24*time.Hour, time.Minute) {
				if at > l.learning*anHour {
					wrong = append(wrong, fmt.Sprintf("seed %d after %s", seed, time.Duration(at)*time.Second))
				}
			}
		}
		if len(wrong) > l.most {
			t.Errorf("%s: taken for a leak %d times in 35 series-days, want %d: %v", name, len(wrong), l.most, wrong)
		}
	}
}

// TestLeakAfterRestart: what starts grows, and a process that leaks does so again.
func TestLeakAfterRestart(t *testing.T) {
	crash := func(growth float64) course {
		return func(r *rand.Rand) func(int) float64 {
			return func(s int) float64 {
				if s < 8*anHour {
					return 40 + 0.1*noise(r)
				}
				return 10*(1+growth*min(1, float64(s-8*anHour)/float64(anHour))) + 0.1*noise(r)
			}
		}
	}
	if got := alarms(NewLeak(), crash(1.5), 1, 20*time.Hour, 15*time.Second); len(got) > 0 {
		t.Errorf("the warming up of an hour after a restart is taken for a leak %s after the start", time.Duration(got[0])*time.Second)
	}
	l := NewLeak()
	twice := func(r *rand.Rand) func(int) float64 {
		return func(s int) float64 { return 10*(1+float64(s%(12*anHour))/float64(6*anHour)) + 0.1*noise(r) }
	}
	if got := alarms(l, twice, 1, 12*time.Hour, 15*time.Second); len(got) == 0 || got[0] > 4*anHour {
		t.Errorf("a leak from the start on is found at %v s, want within four hours", got)
	}
	l.Restart()
	if g := l.Growth(); g.Score != 0 {
		t.Errorf("after a restart the score is still %v", g.Score)
	}
}

func TestUntil(t *testing.T) {
	l, now := NewLeak(), epoch.Add(12*time.Hour)
	if soonest, _, _ := l.Growth().Until(80, now); soonest != math.MaxInt64 {
		t.Errorf("without any sample the limit is reached in %s", soonest)
	}
	alarms(l, leaking(0.5, 5), 1, 12*time.Hour, 15*time.Second) // 56 of 80 when it ends, 4 an hour
	soonest, likely, latest := l.Growth().Until(80, now)
	if want := 6 * time.Hour; (likely-want).Abs() > 5*time.Minute || soonest > likely || latest < likely || latest-soonest > time.Hour {
		t.Errorf("limit in %s to %s, most likely %s; want about %s", soonest, latest, likely, want)
	}
	if _, likely, _ := l.Growth().Until(50, now); likely != 0 {
		t.Errorf("a limit that is exceeded is reached in %s, want 0", likely)
	}
}

// TestLeakProperties: scores follow a doubling, and days between, exactly; and hardly
// depend on how often a sample is taken.
func TestLeakProperties(t *testing.T) {
	run := func(scale float64, shift, step time.Duration) (scores []float64) {
		l, value := NewLeak(), leaking(0.25, 5)(rand.New(rand.NewPCG(3, 1)))
		for s := 0; s < 13*anHour; s += int(step.Seconds()) {
			scores = append(scores, l.Add(epoch.Add(shift+time.Duration(s)*time.Second), scale*value(s)))
		}
		return scores
	}
	plain := run(1, 0, time.Minute)
	for i, s := range run(1<<30, 4*320*time.Minute, time.Minute) {
		if s != plain[i] {
			t.Fatalf("sample %d of the same series in another unit and another week: score %v, want %v", i, s, plain[i])
		}
	}
	for i, s := range run(1, 0, 20*time.Second) {
		if want := plain[i/3]; i%900 == 899 && (s >= 1) != (want >= 1) && math.Abs(s-want) > 0.5 {
			t.Errorf("sampled three times as often, the score after %d min is %v, not %v", i/3, s, want)
		}
	}
}

func TestLeakTakesTimeAsItComes(t *testing.T) {
	l := NewLeak()
	alarms(l, leaking(0.5, 5), 1, 12*time.Hour, time.Minute)
	before := l.Growth()
	if before.Score < 1 {
		t.Fatalf("no leak to begin with: score %v", before.Score)
	}
	now := epoch.Add(12 * time.Hour)
	if got := l.Add(now.Add(-6*time.Minute), 1e9); got != before.Score {
		t.Errorf("a sample of the block before changed the score from %v to %v", before.Score, got)
	}
	if got := l.Add(now.Add(9*time.Hour), 60); got != 0 {
		t.Errorf("after nine hours without a sample the score is still %v", got)
	}
	if got := l.Add(now.Add(-5*time.Hour), 60); got != 0 || l.open.number != blockOfTime(now.Add(-5*time.Hour)) {
		t.Errorf("a clock that was set back left the score %v, in block %d", got, l.open.number)
	}
}

func blockOfTime(at time.Time) int64 {
	n, _ := blockOf(at.Unix())
	return n
}

func TestLeakSurvivesARestart(t *testing.T) {
	value := leaking(0.5, 5)(rand.New(rand.NewPCG(3, 1)))
	l := NewLeak()
	for s := 0; s < 13*anHour; s += 45 {
		at := epoch.Add(time.Duration(s) * time.Second)
		if s%1000 < 45 {
			l = restored(t, l)
		}
		l.Add(at, value(s))
	}
	want := NewLeak()
	value = leaking(0.5, 5)(rand.New(rand.NewPCG(3, 1)))
	for s := 0; s < 13*anHour; s += 45 {
		want.Add(epoch.Add(time.Duration(s)*time.Second), value(s))
	}
	if l.Growth() != want.Growth() || want.Growth().Score < 1 {
		t.Errorf("with restarts the evidence is %+v, without %+v", l.Growth(), want.Growth())
	}
	data, err := l.MarshalBinary()
	if err != nil || len(data) != leakSize {
		t.Fatalf("the state has %d bytes, error %v; want %d as documented", len(data), err, leakSize)
	}
	for i := range data {
		bad := append([]byte(nil), data...)
		bad[i] ^= 4
		if err := NewLeak().UnmarshalBinary(bad); !errors.Is(err, errRecord) {
			t.Fatalf("a state that is damaged in byte %d is taken up: %v", i, err)
		}
	}
	for n := range len(data) {
		if err := NewLeak().UnmarshalBinary(data[:n]); !errors.Is(err, errRecord) {
			t.Fatalf("a state that is cut to %d bytes is taken up: %v", n, err)
		}
	}
}

func restored(t *testing.T, l *Leak) *Leak {
	t.Helper()
	data, err := l.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	back := NewLeak()
	if err := back.UnmarshalBinary(data); err != nil {
		t.Fatalf("take up the state: %v", err)
	}
	return back
}

// TestLeakReplay: every architecture computes the same bits. The series are made without
// a product, which some architectures would add to a sum unrounded.
func TestLeakReplay(t *testing.T) {
	h, r := fnv.New64a(), rand.New(rand.NewPCG(1, 1))
	for _, base := range []func(s int) float64{
		func(s int) float64 { return 40 + float64(max(s-20*anHour, 0))/3000 },
		func(s int) float64 { return 40 + float64(s%(5*anHour))/1000 },
		func(s int) float64 { return 40 + float64(s/40000*7919%31) },
	} {
		l := NewLeak()
		for s := 0; s < 72*anHour; s += 30 {
			x := base(s) + float64(r.Uint32()%1000)/4096
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(l.Add(epoch.Add(time.Duration(s)*time.Second), x))))
		}
		fmt.Fprint(h, math.Float64bits(l.Growth().High))
	}
	const want = 0x63d03aaff330865b
	if got := h.Sum64(); got != want {
		t.Errorf("replay hash %#x, want %#x: scores differ from those of other architectures, or the detector was changed", got, uint64(want))
	}
}

func TestLeakAllocatesNothing(t *testing.T) {
	l, s := NewLeak(), 0
	if n := testing.AllocsPerRun(20000, func() {
		l.Add(epoch.Add(time.Duration(s)*15*time.Second), float64(s%40))
		s++
	}); n != 0 {
		t.Errorf("a sample allocates %v times, want 0", n)
	}
}

func FuzzLeak(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 255, 2, 3, 9, 9})
	f.Add([]byte{1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 7, 7, 6, 6, 5, 5})
	values := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, 1e36, -1e36, 5e-324, 0, 1, 1.5, 40, -3}
	moves := []time.Duration{0, time.Second, 15 * time.Second, 5 * time.Minute, 20 * time.Minute, time.Hour, 26 * time.Hour, -time.Second, -6 * time.Minute, -time.Hour, 1 << 62, -1 << 62}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, at := NewLeak(), epoch
		for i := 0; i+1 < len(data); i += 2 {
			x := values[int(data[i])%len(values)]
			if data[i] >= 128 {
				x = float64(i) * float64(data[i])
			}
			at = at.Add(moves[int(data[i+1])%len(moves)])
			for range 1 + int(data[i+1])/64*30 {
				at = at.Add(5 * time.Minute)
				if s := l.Add(at, x); !(s >= 0 && s < 1e6) {
					t.Fatalf("score %v", s)
				}
			}
		}
		if back := restored(t, l); back.Add(at.Add(5*time.Minute), 3) != l.Add(at.Add(5*time.Minute), 3) {
			t.Fatal("a restored detector goes on otherwise")
		}
	})
}

func BenchmarkLeak(b *testing.B) {
	for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
		b.Run(step.String(), func(b *testing.B) {
			l, value := NewLeak(), leaking(0.25, 5)(rand.New(rand.NewPCG(3, 1)))
			xs := make([]float64, 4096)
			for i := range xs {
				xs[i] = value(i * 12)
			}
			at := epoch
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at = at.Add(step)
				l.Add(at, xs[i%len(xs)])
			}
		})
	}
}

// A cache that fills over hours and levels off is no leak, however steady it looks for an
// hour or two; what grows after a short warm-up is one.
func TestSlowWarmUpIsNoLeak(t *testing.T) {
	fill := func(tau float64) func(h float64) float64 {
		return func(h float64) float64 { return 10 + 30*(1-math.Exp(-h/tau)) }
	}
	for _, c := range []struct {
		what  string
		value func(h float64) float64
		leaks bool
	}{
		{"a cache that fills with a time constant of 1 h", fill(1), false},
		{"a cache that fills with a time constant of 2 h", fill(2), false},
		{"a cache that fills with a time constant of 3 h", fill(3), false},
		{"a leak from the start", func(h float64) float64 { return 20 + 3*h }, true},
		{"a leak behind a warm-up of an hour", func(h float64) float64 { return 10 + 10*(1-math.Exp(-3*h)) + 3*h }, true},
	} {
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, 3))
			l, found := NewLeak(), 0.0
			for m := range 60 * 24 {
				h := float64(m) / 60
				if s := l.Add(time.Unix(1_700_000_000+int64(60*m), 0), c.value(h)*(1+0.01*rng.NormFloat64())); s >= 1 && found == 0 {
					found = h
				}
			}
			if found > 0 != c.leaks || found > 6 {
				t.Errorf("%s, seed %d: found after %.1f h, want a leak: %t, within 6 h", c.what, seed, found, c.leaks)
			}
		}
	}
}
