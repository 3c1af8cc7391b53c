package stream

import "math"

const (
	tailBins = 40 // ten octaves below the largest value seen
	// A value in the lower four fifths of the history is no evidence of anything.
	tailShare = 5
	// One sample weighs between unit and 2 unit, so that forgetting by halves leaves
	// a single sample countable for five half-lives.
	tailUnit = 16
	// A value in an empty history may leave so much of the bins below it.
	tailLeap = 16
	// Samples of which a history is as good as empty.
	tailFew = 4
	// The most that counts are made coarser by, so that one sample is still one count.
	tailShift = 4
)

// tailLaw is how a Tail reads its history.
type tailLaw struct {
	least  float64 // samples above a value for their number to be its probability; beyond, the tail is extrapolated
	fit    float64 // samples to fit the extrapolation to, at most a tenth of all
	index  float64 // prior of the tail's index: ln(x) beyond the fitted ones is exponential with this mean
	weight float64 // of the prior, in samples
	reach  float64 // most that is extrapolated, nats
	// Most that is extrapolated, as a multiple of what the history itself can tell.
	stretch float64
}

// known returns the nats of what is beyond all but the fewest of n samples whose number
// is a probability.
func (law *tailLaw) known(n float64) float64 { return max(0, ln((n+1)/(min(law.least, n)+0.5))) }

// Tail learns how large a positive statistic usually is, and says in nats how
// unlikely a value is: -ln of the probability of one as large. It counts samples in
// quarters of an octave below the largest value seen and forgets exponentially.
//
// Where there are enough samples above a value, their share is its probability. Beyond
// that the tail is a power law fitted to the largest samples (Hill 1975, A simple
// general approach to inference about the tail of a distribution, eq. 2.3),
// with a prior, and no further than a few nats: a peak over the threshold
// (Pickands 1975) whose extrapolation is bounded, because what was never seen has no
// known probability.
type Tail struct {
	counts [tailBins]uint16
	base   int16  // number of the first bin
	high   uint8  // the bin that the upper fifth begins in
	shift  uint8  // one count is 2^shift units
	total  uint32 // in counts; what is below the bins included
}

// tailBin returns the number of x's bin, for x > 0, and how far x is up in it.
func tailBin(x float64) (int, float64) {
	b := math.Float64bits(x)
	return int(b >> 50), float64(b&(1<<50-1)) / (1 << 50)
}

// tailEdge returns the value that lies so far up in a bin.
func tailEdge(bin int, part float64) float64 {
	return math.Float64frombits(uint64(bin)<<50 | uint64(float64(part*(1<<50-1))))
}

// add counts x with a weight in units. Zero and what is negative or not a number
// counts as less than everything.
func (t *Tail) add(x float64, weight uint32) {
	if x > 0 {
		t.count(x, weight)
	} else {
		t.below(weight)
	}
}

// below counts what is less than everything.
func (t *Tail) below(weight uint32) { t.total += weight >> t.shift }

// count counts x > 0.
func (t *Tail) count(x float64, weight uint32) {
	b := int(math.Float64bits(x) >> 50)
	i := b - int(t.base)
	if uint(i) >= tailBins {
		if i = t.place(b); i < 0 {
			t.total += weight >> t.shift
			return
		}
	}
	w := weight >> t.shift
	for uint32(t.counts[i])+w > math.MaxUint16 {
		if t.shift == tailShift {
			return // full: one more would not change what is usual
		}
		t.halve()
		t.shift++
		w = weight >> t.shift
	}
	t.total += w
	t.counts[i] += uint16(w)
}

// place makes room for a bin that is not there and returns its position, negative for
// one below all.
func (t *Tail) place(bin int) int {
	if t.base == 0 {
		t.base = int16(max(1, bin-tailBins+9)) // room above the first value
	}
	i := bin - int(t.base)
	if i < 0 && t.high == 0 {
		i = t.lower(i)
	}
	if i >= tailBins {
		t.raise(min(i-tailBins+1, t.room()))
		i = tailBins - 1
	}
	return i
}

// room returns how many bins a single larger value may move the others down by: the
// upper fifth of the history stays, else one wild value would make all others look
// like nothing.
func (t *Tail) room() int {
	if t.high == 0 {
		return tailLeap
	}
	return max(perOctave, int(t.high)-perOctave)
}

// lower moves the bins down for a value at i, below all, if there is hardly anything in
// them: then what is in them was wild, and counts as the largest that there is room for. It
// returns the value's position.
func (t *Tail) lower(i int) int {
	held := uint32(0)
	for _, c := range t.counts {
		held += uint32(c)
	}
	if held > tailFew*tailUnit>>t.shift || int(t.base)+i < 1 {
		return i
	}
	by := min(-i, tailBins-1)
	for k := tailBins - 1; k >= 0; k-- {
		c := t.counts[k]
		t.counts[k] = 0
		t.counts[min(k+by, tailBins-1)] += c
	}
	t.base -= int16(by)
	return i + by
}

// raise moves the bins up by so many, to make room for a larger value. What falls out
// below is remembered in the total only.
func (t *Tail) raise(by int) {
	if by >= tailBins {
		t.counts = [tailBins]uint16{}
	} else {
		copy(t.counts[:], t.counts[by:])
		clear(t.counts[tailBins-by:])
	}
	t.base += int16(by)
	t.high = uint8(max(0, int(t.high)-by))
}

func (t *Tail) halve() {
	for i := range t.counts {
		t.counts[i] >>= 1
	}
	t.total >>= 1
}

// forget lets everything count half.
func (t *Tail) forget() {
	if t.shift > 0 {
		t.shift-- // a count is worth half a unit less, which is the same
		return
	}
	t.halve()
}

// settle finds where the upper fifth begins. It costs a pass over the bins and is
// needed now and then only.
func (t *Tail) settle() {
	above := uint32(0)
	i := tailBins - 1
	for ; i > 0; i-- {
		if above += uint32(t.counts[i]); above > t.total/tailShare {
			break
		}
	}
	t.high = uint8(i)
}

// usual reports whether x > 0 is in the lower part of the history, so that its surprise
// is 0. It says no where only surprise can tell.
func (t *Tail) usual(x float64) bool { return int(math.Float64bits(x)>>50)-int(t.base) < int(t.high) }

// surprise returns the evidence of x in nats, where one sample weighs so many units.
func (t *Tail) surprise(x, unit float64, law *tailLaw) float64 {
	if !(x > 0) || t.total == 0 {
		return 0
	}
	bin, part := tailBin(x)
	i := bin - int(t.base)
	if i < int(t.high) && t.base != 0 {
		return 0
	}
	one := unit / float64(uint32(1)<<t.shift) // counts of one sample
	n := float64(t.total) / one
	if t.base == 0 { // nothing above zero was ever seen
		return law.known(n)
	}
	if i < tailBins {
		more := uint32(0)
		for _, c := range t.counts[i+1:] {
			more += uint32(c)
		}
		above := (float64(more) + float64(float64(t.counts[i])*(1-part))) / one
		if above >= law.least {
			return max(0, ln((n+1)/(above+0.5)))
		}
	}
	from, _ := t.largest(law.least * one)
	known := law.known(n)
	return known + min(ln(max(1, x/from))/t.index(one, n, law), law.reach, float64(law.stretch*known))
}

// largest returns the value above which so many counts lie, and its bin; the least
// that is in the bins if there are fewer.
func (t *Tail) largest(counts float64) (float64, int) {
	above, least := 0.0, 1
	for i := tailBins - 1; i > 0; i-- {
		c := float64(t.counts[i])
		if above+c >= counts {
			return tailEdge(i+int(t.base), 1-(counts-above)/c), i
		}
		if c > 0 {
			least = i
		}
		above += c
	}
	return tailEdge(least+int(t.base), 0), least - 1
}

// index is Hill's estimate over the largest samples, with the law's prior.
func (t *Tail) index(one, n float64, law *tailLaw) float64 {
	from, bin := t.largest(min(law.fit, n/10) * one)
	above, sum := 0.0, 0.0
	for i := bin + 1; i < tailBins; i++ {
		if c := float64(t.counts[i]); c > 0 {
			above += c
			sum += float64(c * ln(max(1, tailEdge(i+int(t.base), 0.5)/from)))
		}
	}
	return max(0.05, (sum/one+float64(law.weight*law.index))/(above/one+law.weight))
}
