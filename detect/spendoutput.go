package detect

import (
	"fmt"
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

const (
	outputBegins  = 30 * time.Minute // compilation, data and the first steps say nothing
	outputKnown   = time.Hour        // of work, before it is known what a unit takes
	outputWorse   = 2                // times the usual GPU time for a unit
	outputLasts   = 30 * time.Minute
	outputHalf    = 24 * time.Hour
	longestPause  = 6 * time.Hour // that is learned: what is longer is no habit
	pauseTimes    = 2             // times the longest pause so far, and at least outputLasts
	halfHoursWeek = 2 * hoursPerWeek
	checkpointing = 20e6 // bytes a second
)

// unitsOfWork are the rates that GPU time is held against, the first that is told.
var unitsOfWork = [...]struct {
	row  *metric.Def
	name string
	by   float64
}{
	{metric.WorkloadStepRate, "step", 1},
	{metric.WorkloadSampleRate, "sample", 1},
	{metric.WorkloadTokenRate, "million tokens", 1e6},
}

// output is what comes of one owner's GPU time. Its exported fields survive a restart.
type output struct {
	At       time.Time         `json:"at"`            // the newest reading
	First    time.Time         `json:"first"`         // of its progress
	Progress time.Time         `json:"progress"`      // or checkpoint, the newest
	Longest  time.Duration     `json:"longest_pause"` // between two of them
	Unit     int               `json:"unit"`          // of unitsOfWork; -1: none yet
	Usual    *stream.Histogram `json:"usual"`         // GPU-seconds for a unit
	Step     float64           `json:"step"`          // the highest
	Bad      time.Time         `json:"bad,omitzero"`  // since when a unit takes too much
	Now      float64           `json:"now"`           // GPU-seconds for a unit
	Least    float64           `json:"least"`         // the least since Bad
	Held     float64           `json:"held"`          // GPUs
	Written  rate              `json:"written"`       // bytes, to wherever a checkpoint may go
	Writing  bool              `json:"writing"`       // so much that it may be a checkpoint

	told   Evidence
	toldAt time.Time
}

func newOutput() *output { return &output{Unit: -1, Usual: stream.NewHistogram(outputHalf)} }

// read takes up what the owner tells of its work.
func (st *output) read(w *collector.Workload, held float64, at time.Time) {
	elapsed := min(at.Sub(st.At), sampleGap)
	if st.At.IsZero() {
		elapsed = 0
	}
	progress := later(unixTime(w.Value(metric.WorkloadProgress)), unixTime(w.Value(metric.WorkloadCheckpoint)))
	step := w.Value(metric.WorkloadStep)
	if st.First.IsZero() || at.Sub(st.At) > moverGone || step < st.Step/2 {
		*st = *newOutput() // another run, of which nothing is known
		st.First, st.Progress = at, at
	}
	if step > st.Step {
		st.Step = step
	}
	st.At, st.Held = at, held
	st.Writing = st.Written.next(at, writtenBy(w)) >= checkpointing
	if progress.After(st.Progress) && !progress.After(at) {
		if pause := progress.Sub(st.Progress); pause <= longestPause {
			st.Longest = max(st.Longest, pause)
		}
		st.Progress = progress
	}
	st.Now = st.gpuTime(w, held)
	if math.IsNaN(st.Now) || held == 0 {
		st.Now, st.Bad = 0, time.Time{}
		return
	}
	usual := st.usual()
	if usual > 0 && st.Now >= outputWorse*usual {
		if st.Bad.IsZero() {
			st.Bad, st.Least = at, st.Now
		}
		st.Least = min(st.Least, st.Now)
		return
	}
	st.Bad = time.Time{}
	if at.Sub(st.First) >= outputBegins {
		st.Usual.Add(at, st.Now, elapsed.Seconds())
	}
}

// writtenBy counts the bytes that an owner wrote to anything but memory; NaN if it tells
// of none.
func writtenBy(w *collector.Workload) float64 {
	sum, told := 0.0, false
	for _, d := range [...]*metric.Def{metric.WorkloadBlockBytes, metric.WorkloadNetworkFileBytes, metric.WorkloadNetworkBytes} {
		if v := w.ValueAt(d, 1); !math.IsNaN(v) {
			sum, told = sum+v, true
		}
	}
	if !told {
		return math.NaN()
	}
	return sum
}

// gpuTime returns the GPU-seconds that a unit of work takes now, NaN if it cannot be
// told: no progress at all is another finding.
func (st *output) gpuTime(w *collector.Workload, held float64) float64 {
	for i := range unitsOfWork {
		u := &unitsOfWork[i]
		if st.Unit >= 0 && i != st.Unit || !w.Has(u.row) {
			continue
		}
		rate := w.Value(u.row)
		if !(rate > 0) {
			return math.NaN()
		}
		st.Unit = i
		return held / rate * u.by
	}
	return math.NaN()
}

// usual is what a unit takes; 0 while it is not known.
func (st *output) usual() float64 {
	if st.Usual.Weight() < outputKnown.Seconds() {
		return 0
	}
	return st.Usual.Typical(0.5)
}

// patience is for how long no progress is no finding.
func (st *output) patience() time.Duration { return max(outputLasts, pauseTimes*st.Longest) }

// stopped reports for how long there has been no progress while GPUs are held. What was
// never seen to work long enough has not stopped.
func (st *output) stopped(now time.Time) time.Duration {
	if st.Held == 0 || st.Writing || st.Progress.Sub(st.First) < outputBegins {
		return 0
	}
	return now.Sub(st.Progress)
}

// began is since when work has been expensive, or without progress if there is none.
func (st *output) began(now time.Time) time.Time {
	if st.stopped(now) >= st.patience() {
		return st.Progress
	}
	return st.Bad
}

func (st *output) score(now time.Time) float64 {
	score := st.stopped(now).Seconds() / st.patience().Seconds()
	if !st.Bad.IsZero() {
		lasted := now.Sub(st.Bad).Seconds() / outputLasts.Seconds()
		score = max(score, min(lasted, st.Now/(outputWorse*st.usual())))
	}
	return max(score, 0)
}

// surprise is of work that became slower; that there is none at all is a fact.
func (st *output) surprise() float64 {
	if st.Bad.IsZero() {
		return 0
	}
	return surpriseOf(halfHoursWeek * beyond(st.Least, st.Usual.Quantile(0.99), 0.01))
}

func (st *output) evidence(s *collector.Snapshot, w *collector.Workload) Evidence {
	gpus := count(int(st.Held), "GPU", "GPUs")
	cost := costOf(s, w.Owner)
	if quiet := st.stopped(s.Time); quiet >= st.patience() {
		want := st.patience().Seconds()
		return Evidence{
			Title: "Spending without output", Observed: quiet.Seconds(), Want: &want, Confidence: Certain,
			Seen:     fmt.Sprintf("%s held and no progress since %s, for %s%s", gpus, clock(st.Progress), span(quiet), cost),
			Expected: fmt.Sprintf("progress or a checkpoint within %s (its longest pause so far is %s)", span(st.patience()), span(st.Longest)),
			Why:      "by what the workload tells of its own work",
		}
	}
	usual, unit := st.usual(), unitsOfWork[max(st.Unit, 0)].name
	return Evidence{
		Title: "Work has become expensive", Observed: st.Now, Want: &usual, Confidence: confidenceOf(st.surprise()),
		Seen: fmt.Sprintf("%s GPU-seconds for a %s, %s times its own usual, since %s%s",
			significant(st.Now, 3), unit, significant(st.Now/usual, 2), clock(st.Bad), cost),
		Expected: fmt.Sprintf("about %s GPU-seconds for a %s", significant(usual, 3), unit),
		Why:      fmt.Sprintf("against %s of its own work", span(time.Duration(st.Usual.Weight())*time.Second)),
	}
}

// costOf says what an owner's GPUs cost, where all their prices are known.
func costOf(s *collector.Snapshot, o collector.Owner) string {
	sum := 0.0
	for i := range s.GPUs {
		if g := &s.GPUs[i]; holder(g) == o {
			sum += s.Money.PriceOf(g.UUID)
		}
	}
	if s.Money == nil || math.IsNaN(sum) || sum == 0 {
		return ""
	}
	return fmt.Sprintf(", at %s an hour", amount(sum, s.Money.Currency))
}

// unixTime reads seconds since 1970; zero if there are none.
func unixTime(v float64) time.Time {
	if math.IsNaN(v) {
		return time.Time{}
	}
	whole, part := math.Modf(v)
	return time.Unix(int64(whole), int64(part*1e9))
}
