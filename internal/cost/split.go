package cost

import (
	"cmp"
	"math/bits"
	"slices"
)

// PerHour is how many nanoseconds an hour has, and how many microjoules a
// kilowatt-hour: what a rate in billionths per hour or per kWh is divided by.
const PerHour = 3_600_000_000_000

// Meter returns what a quantity comes to at a rate per PerHour of it, in whole
// units of the rate. What is left over is in carry, which the next call takes up:
// over any number of calls the sum is short of the exact one by less than one
// unit. Quantity and rate must not be negative.
func Meter(quantity, rate int64, carry *int64) int64 {
	hi, lo := bits.Mul64(uint64(quantity), uint64(rate))
	lo, over := bits.Add64(lo, uint64(*carry), 0)
	whole, rest := bits.Div64(hi+over, lo, PerHour)
	*carry = int64(rest)
	return int64(whole)
}

// Split divides a total, which must not be negative, in proportion to the
// weights. The parts sum to the total exactly: what rounding leaves goes to those
// with the largest remainders, of equal ones to the first. Without any weight the
// parts are equal. The weights' sum must be below 2^63.
func Split(total int64, weights []uint64) []int64 {
	parts := make([]int64, len(weights))
	var sum uint64
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		weights = slices.Repeat([]uint64{1}, len(weights))
		sum = uint64(len(weights))
	}
	left := total
	rests := make([]uint64, len(weights))
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(total), w)
		whole, rest := bits.Div64(hi, lo, sum)
		parts[i], rests[i] = int64(whole), rest
		left -= parts[i]
	}
	if left == 0 {
		return parts
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rests[b], rests[a]) })
	for _, i := range order[:left] {
		parts[i]++
	}
	return parts
}

// SplitAmounts divides each of the amounts in proportion to the weights.
func SplitAmounts(a Amounts, weights []uint64) []Amounts {
	out := make([][Columns]int64, len(weights))
	for c, v := range a.Array() {
		if v == 0 {
			continue
		}
		for i, part := range Split(v, weights) {
			out[i][c] = part
		}
	}
	parts := make([]Amounts, len(weights))
	for i := range out {
		parts[i] = FromArray(out[i])
	}
	return parts
}
