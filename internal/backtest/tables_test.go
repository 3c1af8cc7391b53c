package backtest

import (
	"encoding"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/detect/stream"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/text"
)

const docs = "../../docs/backtest.md"

// The part of the page that a test makes.
const (
	madeFrom = "<!-- from here on made by go test ./internal/backtest -update -->\n"
	madeTo   = "<!-- to here -->\n"
)

// course is what one detector made of many synthetic series with a fault each.
type course struct {
	detector, fault string
	found, of       int
	after           []time.Duration
	wrong           int     // alarms outside the fault and the hour after it
	days            float64 // that alarms count in
}

// TestTheTablesOfThePage makes what of the page can be made in seconds.
func TestTheTablesOfThePage(t *testing.T) {
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), madeFrom)
	_, after, ends := strings.Cut(rest, madeTo)
	if !ok || !ends {
		t.Fatalf("the page lacks the lines %q and %q", madeFrom, madeTo)
	}
	var b strings.Builder
	b.WriteString("| detector | a synthetic fault | found | after, median | false alarms, series-days |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range []course{shifted("+8 deviations for 2 h", 24, func(x, _ float64) float64 { return x + 16 }), shifted("stuck for 2 h", 24, func(_, held float64) float64 { return held }), leaking(), straggling()} {
		fmt.Fprintf(&b, "| `%s` | %s | %d of %d | %s | %d in %.0f |\n", c.detector, c.fault, c.found, c.of, text.Span(quantileOf(c.after, 0.5)), c.wrong, c.days)
	}
	b.WriteString("\n| what is saved of a detector | bytes |\n| --- | --- |\n")
	for _, s := range []struct {
		what  string
		state encoding.BinaryMarshaler
	}{{"`level`, of a day", levelAfter(1)}, {"`level`, of two weeks: it knows the hours of the week", levelAfter(14)}, {"`leak`", stream.NewLeak()}} {
		saved, err := s.state.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| %s | %d |\n", s.what, len(saved))
	}
	golden.Check(t, docs, before+madeFrom+b.String()+madeTo+after, "the page does not say what the detectors make of synthetic series now")
}

const fiveMinutes = 5 * time.Minute

// gaugeOf is a reading with a course of a day, at a sample.
func gaugeOf(r *rand.Rand, k int) float64 {
	return 50 + 20*math.Sin(2*math.Pi*float64(k)/288) + 2*r.NormFloat64()
}

func levelAfter(days int) *stream.Level {
	r, l := rand.New(rand.NewPCG(1, 3)), &stream.Level{}
	for k := range days * 288 {
		l.Add(recordedAt.Add(time.Duration(k)*fiveMinutes), gaugeOf(r, k))
	}
	return l
}

// shifted has a fault of so many samples on the ninth day of each series.
func shifted(fault string, lasts int, wrong func(x, held float64) float64) course {
	c := course{detector: level, fault: fault}
	for seed := range uint64(20) {
		r, d, held := rand.New(rand.NewPCG(seed, 7)), singles()[level](), 0.0
		from := 8*288 + int(seed)*13
		c.judge(fiveMinutes, 10*288, from, from+lasts, func(k int) float64 {
			x := gaugeOf(r, k)
			if k >= from && k < from+lasts {
				x = wrong(x, held)
			} else {
				held = x
			}
			return d.Add(recordedAt.Add(time.Duration(k)*fiveMinutes), x)
		})
	}
	return c
}

func leaking() course {
	c := course{detector: "leak", fault: "+25 % in 5 h, to the end"}
	for seed := range uint64(20) {
		r, d := rand.New(rand.NewPCG(seed, 8)), singles()["leak"]()
		from := 48 * 60
		c.judge(time.Minute, from+300, from, from+300, func(k int) float64 {
			return d.Add(recordedAt.Add(time.Duration(k)*time.Minute), 40+10*max(0, float64(k-from))/300+r.Float64())
		})
	}
	return c
}

// straggling has jobs of 16 workers of which one becomes slower, with a step each ten
// seconds.
func straggling() course {
	c := course{detector: straggler, fault: "20 % slower, one of 16"}
	const step, from, steps = 10 * time.Second, 1000, 1100
	for seed := range uint64(20) {
		r, p := rand.New(rand.NewPCG(seed, 9)), stream.NewPeers(16)
		xs, scores := make([]float64, 16), make([]float64, 16)
		c.judge(step, steps, from, steps, func(k int) float64 {
			for i := range xs {
				if xs[i] = 1 + 0.02*r.NormFloat64(); k >= from && i == int(seed%16) {
					xs[i] *= 1.2
				}
			}
			p.Add(xs, scores)
			slow := scores[seed%16]
			scores[seed%16] = 0
			if slices.Max(scores) >= 1 {
				c.wrong++
			}
			return slow
		})
		c.days += 15 * (step * steps).Hours() / 24
	}
	return c
}

// judge plays one series of so many samples, with a fault from one to another, and
// takes its alarms after the first day's quarter.
func (c *course) judge(step time.Duration, samples, from, to int, score func(k int) float64) {
	c.of++
	c.days += (time.Duration(samples) * step).Hours() / 24
	hit, hour := false, int(time.Hour/step)
	for k := range samples {
		switch alarm := score(k) >= 1; {
		case !alarm || time.Duration(k)*step < 6*time.Hour && k < from:
		case k >= from && k < to:
			if !hit {
				hit = true
				c.found++
				c.after = append(c.after, time.Duration(k-from)*step)
			}
		case k < from || k >= to+hour:
			c.wrong++
		}
	}
}

// TestThePageNamesWhatThereIs: columns, detectors, sizes and budgets that the page tells of.
func TestThePageNamesWhatThereIs(t *testing.T) {
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	says := strings.Join(strings.Fields(string(page)), " ")
	var want []string
	for _, column := range labelColumns {
		want = append(want, "`"+column+"`")
	}
	for _, d := range Detectors() {
		want = append(want, "| `"+d+"`")
	}
	sizes := make([]string, len(FleetSizes))
	for i, n := range FleetSizes {
		if sizes[i] = fmt.Sprint(n); n >= 1000 {
			sizes[i] = fmt.Sprintf("%d,%03d", n/1000, n%1000)
		}
	}
	want = append(want, strings.Join(sizes[:len(sizes)-1], ", ")+" and "+sizes[len(sizes)-1]+" GPUs",
		fmt.Sprintf("%.0f, %.0f (the default) and %.0f false tickets a week", Budgets[0], Budgets[1], Budgets[2]), "Where "+word(settled)+" rows in order", "`"+MapFile+"`")
	for _, w := range want {
		if !strings.Contains(says, w) {
			t.Errorf("the page does not say %q, which is so", w)
		}
	}
}

func word(n int) string { return []string{"no", "one", "two", "three", "four", "five", "six"}[n] }
