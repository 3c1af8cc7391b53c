package stream

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// fleetJob is a synthetic job: step times with static differences between workers, a
// noise that lasts, a pace that varies for all, pauses of all at every checkpoint, and
// single long steps of one worker.
type fleetJob struct {
	r                  *rand.Rand
	sigma, lasts, pace float64
	every              int
	shares, wander     []float64
	values             []float64
}

// newJob makes a job of 8 to 64 workers from a seed. Noise is of 1 to 5 per cent and is
// correlated by up to 0.6 from step to step; the real job of Weng et al. 2022 with the
// most has 4 per cent and 0.6.
func newJob(seed uint64) *fleetJob {
	j := &fleetJob{r: rand.New(rand.NewPCG(seed, 11))}
	n := 8 + j.r.IntN(57)
	j.sigma, j.lasts, j.pace = 0.01+0.04*j.r.Float64(), 0.6*j.r.Float64(), 0.1
	j.every = 20 + j.r.IntN(100)
	differ := 0.2 * j.r.Float64()
	j.shares, j.wander, j.values = make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range j.shares {
		j.shares[i] = math.Exp(differ * j.r.NormFloat64())
	}
	return j
}

// step returns the times of the next step; they are overwritten by the one after it.
func (j *fleetJob) step(k int) []float64 {
	pace := math.Exp(j.pace * j.r.NormFloat64())
	if k%j.every == 0 {
		pace *= 8
	}
	for i := range j.values {
		j.wander[i] = j.lasts*j.wander[i] + math.Sqrt(1-j.lasts*j.lasts)*j.sigma*j.r.NormFloat64()
		x := j.shares[i] * math.Exp(j.wander[i]) * pace
		if j.r.Float64() < 0.005 {
			x *= 1.5 + 2*j.r.Float64()
		}
		j.values[i] = x
	}
	return j.values
}

// TestPeersStaySilent: over a million worker-steps without a straggler.
func TestPeersStaySilent(t *testing.T) {
	total := 0
	for seed := uint64(1); total < 1_000_000; seed++ {
		j := newJob(seed)
		p, scores := NewPeers(len(j.values)), make([]float64, len(j.values))
		for k := range 500 {
			p.Add(j.step(k), scores)
			total += len(scores)
			if s := slices.Max(scores); s >= 1 {
				t.Errorf("job %d, step %d: worker %d of %d is called a straggler, score %.2f", seed, k, slices.Index(scores, s), len(scores), s)
			}
		}
	}
}

// found returns after how many steps the worker that is slowed from step 100 on is
// found, 0 if never; anybody else's alarm fails the test.
func found(t *testing.T, seed uint64, slow float64) int {
	t.Helper()
	j := newJob(seed)
	p, scores := NewPeers(len(j.values)), make([]float64, len(j.values))
	slowed, at := int(seed)%len(j.values), 0
	for k := range 200 {
		xs := j.step(k)
		if k >= 100 {
			xs[slowed] *= slow
		}
		p.Add(xs, scores)
		for i, s := range scores {
			if s < 1 {
				continue
			}
			if got := p.Slower(slowed); k == 115 && math.Abs(got-(slow-1)) > 0.15 {
				t.Errorf("job %d: a worker that is slower by %.2f is said to be by %.2f", seed, slow-1, got)
			}
			if i != slowed || k < 100 {
				t.Errorf("job %d, step %d: worker %d is called a straggler, the slow one is %d", seed, k, i, slowed)
			} else if at == 0 {
				at = k - 99
			}
		}
	}
	return at
}

func TestPeersFindTheStraggler(t *testing.T) {
	for _, c := range []struct {
		slow         float64
		within, most int // of 100 jobs, how many may take longer
	}{{1.3, 6, 0}, {1.2, 6, 5}, {1.1, 30, 30}} {
		var late []int
		for seed := range uint64(100) {
			if d := found(t, seed+1000, c.slow); d == 0 || d > c.within {
				late = append(late, d)
			}
		}
		if len(late) > c.most {
			t.Errorf("slower by %.0f %%: %d of 100 are not found within %d steps, want at most %d: %v", 100*(c.slow-1), len(late), c.within, c.most, late)
		}
	}
}

// TestPeersCommonChanges: what happens to all, or to half of all, has no odd one out.
func TestPeersCommonChanges(t *testing.T) {
	f := func(name string, change func(k, i int) float64) {
		t.Helper()
		j := newJob(7)
		p, scores := NewPeers(len(j.values)), make([]float64, len(j.values))
		for k := range 300 {
			xs := j.step(k)
			for i := range xs {
				xs[i] *= change(k, i)
			}
			p.Add(xs, scores)
			if s := slices.Max(scores); s >= 1 {
				t.Errorf("%s: step %d: worker %d is called a straggler", name, k, slices.Index(scores, s))
				return
			}
		}
	}
	f("all slow down to a third", func(k, _ int) float64 { return 1 + 2*min(1, float64(k/150)) })
	f("half of them slow down by a third", func(k, i int) float64 { return 1 + float64(i%2)*min(1, float64(k/150))/3 })
	f("one is always three times slower", func(_, i int) float64 { return 1 + 2*float64(1-min(i, 1)) })
	f("one gets faster", func(k, i int) float64 { return 1 - 0.4*float64(1-min(i, 1))*min(1, float64(k/150)) })
	f("one has a step of ten times the length each 40", func(k, i int) float64 {
		if i == 3 && k%40 == 0 {
			return 10
		}
		return 1
	})
}

// TestPeersProperties: another unit and another order of the members change nothing.
func TestPeersProperties(t *testing.T) {
	j := newJob(3)
	n := len(j.values)
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	a, b := NewPeers(n), NewPeers(n)
	as, bs, moved := make([]float64, n), make([]float64, n), make([]float64, n)
	for k := range 200 {
		xs := j.step(k)
		if k > 100 {
			xs[2] *= 1.2
		}
		for i, o := range order {
			moved[i] = 1024 * xs[o]
		}
		a.Add(xs, as)
		b.Add(moved, bs)
		for i, o := range order {
			if as[o] != bs[i] {
				t.Fatalf("step %d: worker %d has score %v, in another place and unit %v", k, o, as[o], bs[i])
			}
		}
	}
	if as[2] < 1 {
		t.Errorf("the straggler's score is %v at the end, want an alarm", as[2])
	}
}

func TestPeersWithGaps(t *testing.T) {
	j := newJob(5)
	p, scores := NewPeers(len(j.values)), make([]float64, len(j.values))
	hit := 0
	for k := range 260 {
		xs := j.step(k)
		if k >= 100 {
			xs[1] *= 1.3
		}
		absent := (k * 7) % len(xs)
		xs[absent] = []float64{math.NaN(), 0, -1, math.Inf(1), 1e300}[k%5]
		if k%9 == 0 { // a step of which little was seen
			for i := range xs {
				if i > 2 {
					xs[i] = math.NaN()
				}
			}
		}
		p.Add(xs, scores)
		if scores[absent] != 0 {
			t.Fatalf("step %d: worker %d has no value and the score %v", k, absent, scores[absent])
		}
		if hit == 0 && scores[1] >= 1 {
			hit = k - 99
		}
	}
	if hit <= 0 || hit > 12 {
		t.Errorf("with holes a worker slower by a third of a step is found after %d steps, want 12", hit)
	}
	p.Restart(1)
	if p.Add(j.step(1), scores); scores[1] != 0 || p.Slower(1) != 0 {
		t.Errorf("a new process in the place is still suspected: score %v", scores[1])
	}
	three, s := NewPeers(3), make([]float64, 3)
	for range 100 {
		three.Add([]float64{1, 1, 9}, s)
	}
	if slices.Max(s) != 0 {
		t.Errorf("of three peers one is called odd: %v", s)
	}
}

func TestPeersSurviveARestart(t *testing.T) {
	j := newJob(9)
	n := len(j.values)
	p, q := NewPeers(n), NewPeers(n)
	ps, qs := make([]float64, n), make([]float64, n)
	for k := range 150 {
		xs := j.step(k)
		p.Add(xs, ps)
		q.Add(xs, qs)
		data, err := q.MarshalBinary()
		if err != nil || len(data) != 13+52*n {
			t.Fatalf("the state of %d peers has %d bytes, error %v; want %d as documented", n, len(data), err, 13+52*n)
		}
		q = NewPeers(n)
		if err := q.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ps, qs) {
			t.Fatalf("step %d: a detector that is restarted at each step has other scores", k)
		}
		if k == 100 {
			for i := range data {
				bad := slices.Clone(data)
				bad[i] ^= 1
				if err := NewPeers(n).UnmarshalBinary(bad); !errors.Is(err, errRecord) {
					t.Fatalf("a state that is damaged in byte %d is taken up: %v", i, err)
				}
			}
			if err := NewPeers(n + 1).UnmarshalBinary(data); !errors.Is(err, errRecord) {
				t.Errorf("the state of %d peers is taken up by %d: %v", n, n+1, err)
			}
		}
	}
}

// TestPeersReplay: every architecture computes the same bits.
func TestPeersReplay(t *testing.T) {
	r, h := rand.New(rand.NewPCG(1, 1)), fnv.New64a()
	p, xs, scores := NewPeers(9), make([]float64, 9), make([]float64, 9)
	for k := range 2000 {
		for i := range xs {
			xs[i] = 1 + float64(i)/10 + 0.05*float64(int(r.Uint32()%1000))/1000
			if k > 1000 && i == 4 {
				xs[i] *= 1.15
			}
		}
		p.Add(xs, scores)
		for _, s := range scores {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(s)))
		}
	}
	const want = 0xd70ac056fbc689e8
	if got := h.Sum64(); got != want {
		t.Errorf("replay hash %#x, want %#x: scores differ from those of other architectures, or the detector was changed", got, uint64(want))
	}
}

// TestCUSUM: the worked example of Montgomery, Introduction to Statistical Quality
// Control, 6th ed. 2009, table 9.2: target 10, K = 0.5, some of the upper sums; it signals
// at sample 29 with the limit 5.
func TestCUSUM(t *testing.T) {
	xs := []float64{9.45, 7.99, 9.29, 11.66, 12.16, 10.18, 8.04, 11.46, 9.20, 10.34, 9.03, 11.47, 10.51, 9.40, 10.08,
		9.37, 10.62, 10.31, 8.52, 10.84, 10.90, 9.33, 12.29, 11.50, 10.60, 11.08, 10.38, 11.62, 11.31, 10.52}
	want := map[int]float64{4: 1.16, 5: 2.82, 6: 2.50, 7: 0.04, 8: 1.00, 29: 5.28, 30: 5.30}
	var c CUSUM
	signal := 0
	for i, x := range xs {
		s := c.Add(x-10, 0.5, 5)
		if w, ok := want[i+1]; ok && math.Abs(5*s-w) > 0.011 {
			t.Errorf("sample %d: sum %.2f, want %.2f", i+1, 5*s, w)
		}
		if s >= 1 && signal == 0 {
			signal = i + 1
		}
	}
	if signal != 29 {
		t.Errorf("signal at sample %d, want 29", signal)
	}
	for range 100 {
		c.Add(10, 0.5, 5)
	}
	if got := c.Add(0, 0.5, 5); got > 2 {
		t.Errorf("after a long alarm the sum is at %v limits, want 2 at most", got)
	}
}

func TestPeersAllocateNothing(t *testing.T) {
	j := newJob(1)
	p, scores := NewPeers(len(j.values)), make([]float64, len(j.values))
	xs := slices.Clone(j.step(1))
	if n := testing.AllocsPerRun(2000, func() { p.Add(xs, scores) }); n != 0 {
		t.Errorf("a step allocates %v times, want 0", n)
	}
}

func FuzzPeers(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	values := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, 1e99, 1e-99, 5e-324, 0, 1, 1.5, 40, -3}
	f.Fuzz(func(t *testing.T, data []byte) {
		const n = 5
		p, xs, scores := NewPeers(n), make([]float64, n), make([]float64, n)
		for range 40 {
			for i := range data {
				xs[i%n] = values[int(data[i])%len(values)]
				if i%n < n-1 {
					continue
				}
				p.Add(xs, scores)
				for w, s := range scores {
					if !(s >= 0 && s <= 2) || math.IsNaN(p.Slower(w)) {
						t.Fatalf("score %v, slower by %v", s, p.Slower(w))
					}
				}
			}
		}
	})
}

func BenchmarkPeers(b *testing.B) {
	j := newJob(1)
	p, scores := NewPeers(len(j.values)), make([]float64, len(j.values))
	rows := make([][]float64, 64)
	for k := range rows {
		rows[k] = slices.Clone(j.step(k))
	}
	b.ReportAllocs()
	for k := 0; b.Loop(); k++ {
		p.Add(rows[k%64], scores)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(scores)), "ns/member")
}
