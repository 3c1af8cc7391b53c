package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

const (
	slowWindow   = 10 * time.Minute
	slowHardware = 0.01 // of the window: a board that is well never slows itself down
	slowSoftware = 0.05 // of the window: the driver's own way to keep a warm board below its limit
)

// slowdown is one reason for which clocks are held down that is no part of normal work.
// The software power cap is: a GPU at full power has it all day.
type slowdown struct {
	cause string
	bit   int // of metric.ClockReason
	held  int // of metric.HeldReason, -1 if its time is not counted
	limit float64
}

// The slowdowns, the most precise reason first: the hardware's own bit is also set by
// its thermal one and by the brake.
var slowdownReasons = [...]slowdown{
	{"hw_thermal", metric.ClockReason.Index("hw_thermal"), metric.HeldReason.Index("hw_thermal"), slowHardware},
	{"hw_power_brake", metric.ClockReason.Index("hw_power_brake"), metric.HeldReason.Index("hw_power_brake"), slowHardware},
	{"sw_thermal", metric.ClockReason.Index("sw_thermal"), metric.HeldReason.Index("sw_thermal"), slowSoftware},
	{"hw_slowdown", metric.ClockReason.Index("hw_slowdown"), -1, slowHardware},
}

const (
	byHeat = iota
	byBrake
	bySoftHeat
	byHardware
)

// slowdowns is for how much of the last minutes each reason held one GPU's clocks.
type slowdowns struct {
	of [len(slowdownReasons)]struct {
		mean      *stream.Mean
		held      rate
		last, one time.Time // when it was last seen, and the time before that
	}
}

func newSlowdowns() (d slowdowns) {
	for i := range d.of {
		d.of[i].mean = stream.NewMean(slowWindow, 20, sampleGap)
	}
	return d
}

// take takes up a reading. A GPU that does nothing has reasons of its own, and some
// show them for an instant when clocks change: they count while it works, and from the
// second reading on.
func (d *slowdowns) take(at time.Time, g *collector.GPU, util float64) {
	for i, r := range slowdownReasons {
		k := &d.of[i]
		share := g.ValueAt(metric.ClockEvent, r.bit)
		if r.held >= 0 {
			if counted := k.held.next(at, g.ValueAt(metric.ClockHeld, r.held)); !math.IsNaN(counted) {
				share = min(counted, 1)
			}
		}
		if util < idleUtilization {
			share = min(share, 0)
		}
		k.mean.Add(at, share)
		if share > 0 {
			k.last, k.one = at, k.last
		}
	}
}

// share returns for how much of the window a reason held the clocks; what no reading
// covers counts as time without it.
func (d *slowdowns) share(i int, now time.Time) float64 {
	k := &d.of[i]
	if k.one.IsZero() || now.Sub(k.one) > slowWindow {
		return 0
	}
	mean, covered := k.mean.Over(now, slowWindow)
	if covered == 0 {
		return 0
	}
	return mean * covered.Seconds() / slowWindow.Seconds()
}

// score returns how far a reason is beyond what is normal; 1 is the limit. A bit that
// a more precise reason sets, too, is that one's.
func (d *slowdowns) score(i int, now time.Time) float64 {
	if i == byHardware && (d.share(byHeat, now) > 0 || d.share(byBrake, now) > 0) {
		return 0
	}
	return d.share(i, now) / slowdownReasons[i].limit
}

// recent reports whether a reason is beyond what is normal and still there.
func (d *slowdowns) recent(i int, now time.Time) bool {
	return d.score(i, now) > 1 && now.Sub(d.of[i].last) <= verdictWindow
}

func (d *slowdowns) shift(by time.Duration) {
	for i := range d.of {
		k := &d.of[i]
		k.mean.Shift(by)
		k.held.shift(by)
		shift(by, &k.last, &k.one)
	}
}
