package stream

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

// day returns n samples, a minute apart, of a load with a daily course and noise.
func day(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float64, n)
	for i := range x {
		x[i] = 50 + float64(20*math.Sin(float64(i)*2*math.Pi/1440)) + float64(2*r.NormFloat64())
	}
	return x
}

func scores(l *Level, from int, x []float64) []float64 {
	s := make([]float64, len(x))
	for i := range x {
		s[i] = l.Add(start.Add(time.Duration(from+i)*time.Minute), x[i])
	}
	return s
}

func raised(s []float64) (n, first int) {
	first = -1
	for i, x := range s {
		if x >= 1 {
			if n++; n == 1 {
				first = i
			}
		}
	}
	return n, first
}

func TestLevelFindsWhatAPersonSees(t *testing.T) {
	const at = 6 * 1440 // after six days
	for _, c := range []struct {
		name   string
		within int // minutes
		change func(k int, x float64) float64
	}{
		{"a single spike", 1, func(k int, x float64) float64 {
			if k == 0 {
				return x * 4
			}
			return x
		}},
		{"a level that doubles", 10, func(_ int, x float64) float64 { return 2 * x }},
		{"a drop to nothing", 10, func(int, float64) float64 { return 0 }},
		{"a value that freezes", 60, func(int, float64) float64 { return 77 }},
		{"the night's load at noon", 10, func(k int, x float64) float64 { return x - 2*20*math.Sin(float64(at+360+k)*2*math.Pi/1440) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The change begins in a quarter of a day, where the course is at its top.
			x := day(at+360+240, 3)
			for k := 360; k < 600; k++ {
				x[at+k] = c.change(k-360, x[at+k])
			}
			var l Level
			s := scores(&l, 0, x)
			if n, first := raised(s[2*1440 : at+360]); n > 1 {
				t.Errorf("%d alarms in four usual days, the first after %d min", n, first)
			}
			if _, first := raised(s[at+360:]); first < 0 || first > c.within {
				t.Errorf("alarm after %d min, want one within %d", first, c.within)
			}
		})
	}
}

// What is wrong with one series must not depend on the unit that it is measured in.
func TestLevelDoesNotKnowTheUnit(t *testing.T) {
	x := day(3000, 5)
	for i := 2500; i < 2560; i++ {
		x[i] *= 2
	}
	var a Level
	want := scores(&a, 0, x)
	for _, unit := range []float64{1.0 / 1024, 16, 1 << 30} {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = x[i] * unit
		}
		var b Level
		for i, s := range scores(&b, 0, y) {
			if math.Abs(s-want[i]) > 1e-6 {
				t.Fatalf("in units %g times as large sample %d scores %g, not %g", unit, i, s, want[i])
			}
		}
	}
}

// A score may depend on the sample and on earlier ones only.
func TestLevelDoesNotLookAhead(t *testing.T) {
	x := day(2000, 7)
	var a Level
	want := scores(&a, 0, x)
	for i := 1500; i < 2000; i++ {
		x[i] = -1e6
	}
	var b Level
	for i, s := range scores(&b, 0, x)[:1500] {
		if s != want[i] {
			t.Fatalf("the score of sample %d changes with what comes after sample 1500", i)
		}
	}
}

func TestLevelGoesOnWhereItWasSaved(t *testing.T) {
	for _, n := range []int{1, 50, 700, 12 * 1440} {
		x := day(n+2000, 11)
		for i := n + 500; i < n+600; i++ {
			x[i] += 60
		}
		var whole, first, second Level
		want := scores(&whole, 0, x)
		scores(&first, 0, x[:n])
		state, err := first.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := second.UnmarshalBinary(state); err != nil {
			t.Fatal(err)
		}
		for i, s := range scores(&second, n, x[n:]) {
			if s != want[n+i] {
				t.Fatalf("saved after %d samples: sample %d scores %g after the restart and %g without one", n, n+i, s, want[n+i])
			}
		}
	}
}

// An agent that is brought up to date does not begin anew.
func TestLevelTakesUpAnOlderState(t *testing.T) {
	x := day(3000, 37)
	var whole, l Level
	want := scores(&whole, 0, x)
	scores(&l, 0, x[:2000])
	w := newRecord(levelName, levelOldest, levelSize)
	w.bool(l.season.week != nil)
	for _, field := range l.fields(levelOldest) {
		w.b, _ = binary.Append(w.b, binary.LittleEndian, field)
	}
	var next Level
	if err := next.UnmarshalBinary(w.finish()); err != nil {
		t.Fatal(err)
	}
	for i, s := range scores(&next, 2000, x[2000:]) {
		if s != want[2000+i] {
			t.Fatalf("with the state of version %d sample %d scores %g, not %g", levelOldest, 2000+i, s, want[2000+i])
		}
	}
}

func TestLevelRefusesABadState(t *testing.T) {
	var l Level
	scores(&l, 0, day(500, 1))
	good, err := l.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	before := l
	for _, c := range []struct {
		name string
		edit func([]byte) []byte
	}{
		{"empty", func([]byte) []byte { return nil }},
		{"cut off", func(b []byte) []byte { return b[:len(b)/2] }},
		{"a flipped bit", func(b []byte) []byte { b[100] ^= 4; return b }},
		{"a later version", func(b []byte) []byte { b[4]++; return b }},
	} {
		bad := c.edit(append([]byte(nil), good...))
		if err := l.UnmarshalBinary(bad); !errors.Is(err, errRecord) {
			t.Errorf("%s: error %v", c.name, err)
		}
		if l != before {
			t.Errorf("%s: the detector changed", c.name)
		}
	}
}

func TestLevelSurvivesHolesAndBackwardTime(t *testing.T) {
	x := day(4000, 13)
	var l Level
	scores(&l, 0, x[:3000])
	if s := l.Add(start.Add(100*time.Minute), 1e9); s != 0 {
		t.Errorf("a sample older than the last scores %g", s)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300} {
		if s := l.Add(start.Add(3000*time.Minute), bad); s != 0 {
			t.Errorf("%g scores %g", bad, s)
		}
	}
	// A day is missing; the time of day is the same again.
	if n, first := raised(scores(&l, 3000+1440, x[3000:])); n > 0 {
		t.Errorf("%d alarms after a hole of a day, the first %d min after it", n, first)
	}
}

const replayHash = 0x44f7b8194d8cd63

// The bits of the scores must be the same on every architecture.
func TestLevelReplayHash(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 19))
	h := fnv.New64a()
	var l Level
	x := 100.0
	for i := range 20_000 {
		switch {
		case i%997 == 0:
			x = float64(r.IntN(1000))
		case i%5 == 0:
			x += float64(r.IntN(9)-4) / 8
		}
		s := l.Add(start.Add(time.Duration(i)*time.Minute), x)
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(s))
		h.Write(b[:])
	}
	if got := h.Sum64(); got != replayHash {
		t.Errorf("the scores of the replay have the hash %#x, want %#x: they differ between architectures, or the detector was changed", got, uint64(replayHash))
	}
}

func TestLevelDoesNotAllocate(t *testing.T) {
	var l Level
	x := day(20*1440, 23)
	scores(&l, 0, x[:10*1440])
	i := 10 * 1440
	if n := testing.AllocsPerRun(5000, func() {
		l.Add(start.Add(time.Duration(i)*time.Minute), x[i])
		i++
	}); n != 0 {
		t.Errorf("%g allocations a sample", n)
	}
}

func FuzzLevel(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 60})
	f.Fuzz(func(t *testing.T, b []byte) {
		var l Level
		at := start
		for len(b) >= 9 {
			x := math.Float64frombits(binary.LittleEndian.Uint64(b))
			at = at.Add(time.Duration(int8(b[8])) * time.Minute)
			for range 3 {
				if s := l.Add(at, x); !(s >= 0) || math.IsInf(s, 0) {
					t.Fatalf("%g at %s scores %g", x, at, s)
				}
				at = at.Add(time.Second)
			}
			b = b[9:]
		}
	})
}

func FuzzLevelState(f *testing.F) {
	var l Level
	scores(&l, 0, day(300, 1))
	b, err := l.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 { // let it past the checksum
			binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], crc32.MakeTable(crc32.Castagnoli)))
		}
		var l Level
		if l.UnmarshalBinary(b) == nil {
			scores(&l, 400, day(50, 2))
		}
	})
}

func BenchmarkLevel(b *testing.B) {
	x := day(30*1440, 29)
	var l Level
	scores(&l, 0, x)
	b.ReportAllocs()
	b.ResetTimer()
	i := 0
	for b.Loop() {
		l.Add(start.Add(time.Duration(len(x)+i)*time.Minute), x[i%len(x)])
		i++
	}
}

// What a series costs is stated in docs/backtest.md.
func TestLevelIsSmall(t *testing.T) {
	var l Level
	scores(&l, 0, day(10*1440, 31))
	record, err := l.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	week := int(unsafe.Sizeof(*l.season.week))
	if memory := int(unsafe.Sizeof(l)); memory > 4<<10 || week > 2<<10 || len(record)-week > 4<<10 {
		t.Errorf("a series takes %d bytes of memory, %d more for the week, and %d when saved; want 4 KiB, 2 KiB and 6 KiB at the most", memory, week, len(record))
	}
}
