package stream

import (
	"math"
	"slices"
)

// blockRing holds the medians of the newest blocks of one length, numbered by time.
type blockRing struct {
	newest int64
	filled bool
	values [maxTrend]float32 // NaN where a block had no sample; block n is at n modulo the length
}

func slotOf(n int64) int64 { return ((n % maxTrend) + maxTrend) % maxTrend }

// push adds block n, which is newer than all.
func (r *blockRing) push(n int64, y float64) {
	if !r.filled || n-r.newest >= maxTrend {
		for i := range r.values {
			r.values[i] = float32(math.NaN())
		}
	} else {
		for i := r.newest + 1; i < n; i++ {
			r.values[slotOf(i)] = float32(math.NaN())
		}
	}
	r.filled, r.newest = true, n
	r.values[slotOf(n)] = float32(y)
}

// gather writes the values of the newest width blocks to ys, and which of them they
// are to ts, without those that have none.
func (r *blockRing) gather(width int, ts *[maxTrend]int, ys *[maxTrend]float64) (n int) {
	for i := range width {
		if y := float64(r.values[slotOf(r.newest-int64(width-1-i))]); !math.IsNaN(y) {
			ts[n], ys[n] = i, y
			n++
		}
	}
	return n
}

// median returns the median of the newest width blocks, NaN if none has a value.
func (r *blockRing) median(width int) float64 {
	if !r.filled {
		return math.NaN()
	}
	var ts [maxTrend]int
	var ys [maxTrend]float64
	n := r.gather(width, &ts, &ys)
	return medianOf(ys[:n])
}

// medianOf sorts the values and returns their median, NaN of none.
func medianOf(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return middle(values)
}

// A block is five minutes. The value of a block is the median of the means of its
// fifteen parts, so that neither many samples nor a few wild ones move it.
const (
	blockSeconds = 300
	blockParts   = 15
)

// block is the block that is being filled.
type block struct {
	number int64
	sums   [blockParts]float64
	counts [blockParts]uint32
}

// number returns the block that the second belongs to, and its part.
func blockOf(second int64) (number, part int64) {
	number = second / blockSeconds
	if second%blockSeconds < 0 {
		number--
	}
	return number, (second - number*blockSeconds) * blockParts / blockSeconds
}

func (b *block) add(part int64, x float64) {
	if b.counts[part] < math.MaxUint32 {
		b.sums[part] += x
		b.counts[part]++
	}
}

// value is the median of the parts that have a sample, NaN if none has.
func (b *block) value() float64 {
	var means [blockParts]float64
	n := 0
	for i, c := range b.counts {
		if c > 0 {
			means[n] = b.sums[i] / float64(c)
			n++
		}
	}
	return medianOf(means[:n])
}
