package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
)

// pair is a block of steps with the agent and one without it, side by side, so that a clock that drifts changes both.
// Times are in seconds.
type pair struct{ on, off []float64 }

const (
	minPairs   = 4   // fewer have no interval worth its name
	minSteps   = 500 // of a block: its 99th percentile is then the fifth longest
	replicates = 10_000
	confidence = 0.95
)

// parse reads lines of pair, "on" or "off", and seconds, below a line with the names of the columns.
func parse(r io.Reader) ([]pair, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.ReuseRecord = 3, true
	if _, err := in.Read(); err != nil {
		return nil, fmt.Errorf("the names of the columns: %w", err)
	}
	var pairs []pair
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if pairs, err = take(pairs, row); err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	if len(pairs) < minPairs {
		return nil, fmt.Errorf("%d pairs of blocks, want at least %d", len(pairs), minPairs)
	}
	for i, p := range pairs {
		if n := min(len(p.on), len(p.off)); n < minSteps {
			return nil, fmt.Errorf("a block of pair %d has %d steps, want at least %d: make the blocks longer", i, n, minSteps)
		}
	}
	return pairs, nil
}

func take(pairs []pair, row []string) ([]pair, error) {
	number, err := strconv.Atoi(row[0])
	switch {
	case err != nil:
		return nil, err
	case number == len(pairs):
		pairs = append(pairs, pair{})
	case number != len(pairs)-1:
		return nil, fmt.Errorf("pair %d comes after %d", number, len(pairs)-1)
	}
	seconds, err := strconv.ParseFloat(row[2], 64)
	if err != nil {
		return nil, err
	}
	if !(seconds >= 1e-9 && seconds < 3600) {
		return nil, fmt.Errorf("a step of %v s", seconds)
	}
	p := &pairs[number]
	switch row[1] {
	case "on":
		p.on = append(p.on, seconds)
	case "off":
		p.off = append(p.off, seconds)
	default:
		return nil, fmt.Errorf("the agent is %q, want on or off", row[1])
	}
	return pairs, nil
}

// quantile returns the value that a part q of the sorted values does not exceed, between two by the way from one to the
// other. There is at least one.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// cost is by how much steps are longer with the agent, as a part of those without, and between which bounds that is
// with a confidence of 95 %.
type cost struct {
	off           float64 // seconds
	mean          float64
	lower, higher float64
}

// compare takes the mean of the pairs' differences. Steps of one block are not independent of each other, blocks are:
// so the bootstrap draws pairs. Its seed is fixed: the same steps give the same interval.
func compare(pairs []pair, q float64) cost {
	var c cost
	differences := make([]float64, len(pairs))
	for i, p := range pairs {
		on, off := quantile(slices.Sorted(slices.Values(p.on)), q), quantile(slices.Sorted(slices.Values(p.off)), q)
		differences[i] = on/off - 1
		c.off += off / float64(len(pairs))
	}
	c.mean = mean(differences)
	random := rand.New(rand.NewPCG(1, 2))
	drawn, means := make([]float64, len(pairs)), make([]float64, replicates)
	for i := range means {
		for j := range drawn {
			drawn[j] = differences[random.IntN(len(pairs))]
		}
		means[i] = mean(drawn)
	}
	slices.Sort(means)
	c.lower, c.higher = quantile(means, (1-confidence)/2), quantile(means, (1+confidence)/2)
	return c
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// What a measurement says of a goal.
const (
	met       = "met"
	notMet    = "NOT MET"
	undecided = "undecided: the interval holds the goal, measure more blocks"
)

func (c cost) judge(goal float64) string {
	switch {
	case c.higher <= goal:
		return met
	case c.lower > goal:
		return notMet
	}
	return undecided
}

func (c cost) line(name string, goal float64) string {
	return fmt.Sprintf("%s of a step: %.4f ms without the agent, %+.3f %% with it, 95 %% interval %+.3f to %+.3f %%; goal at most %.1f %%: %s",
		name, 1e3*c.off, 100*c.mean, 100*c.lower, 100*c.higher, 100*goal, c.judge(goal))
}
