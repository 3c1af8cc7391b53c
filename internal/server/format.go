package server

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/text"
)

// maxText bounds an untrusted text on the page, in characters.
const maxText = 300

// oneLine makes an untrusted text safe to read.
func oneLine(s string) string { return text.Clean(s, maxText) }

// duration writes a time span as findings do, and how old a sample is to a tenth.
func duration(d time.Duration) string {
	if d > 0 && d < 10*time.Second && d%time.Second >= 100*time.Millisecond {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return text.Span(d)
}

// clock writes an instant: the time of day, with the date if it is another day.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("2 Jan 15:04:05")
}

// minute writes an instant without its seconds, for what is known to the minute.
func minute(t, now time.Time) string {
	return strings.TrimSuffix(clock(t.Truncate(time.Minute), now), ":00")
}

var unit = regexp.MustCompile(`(\d) (%|°C|GiB|GHz|MHz|k?W|ms|s|min|h|d|UTC)(\PL|$)`)

// bound keeps numbers and their units on one line.
func bound(s string) string { return unit.ReplaceAllString(s, "$1\u00a0$2$3") }

const none = "n/a" // stands for what was not reported

func percent(v float64) string {
	if !finite(v) {
		return none
	}
	return strconv.FormatFloat(v*100, 'f', 0, 64) + " %"
}

// quantity writes v with the unit, or a dash if it was not reported.
func quantity(v float64, decimals int, unit string) string {
	if !finite(v) {
		return none
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'f', decimals, 64) + " " + unit)
}

// ofWhole writes a part and its whole, as far as they are known.
func ofWhole(part, whole float64, decimals int, unit string) string {
	if !finite(part) || !finite(whole) {
		return quantity(part, decimals, unit)
	}
	return strconv.FormatFloat(part, 'f', decimals, 64) + " of " + quantity(whole, decimals, unit)
}

func gib(bytes float64) float64 { return bytes / (1 << 30) }

// share returns part/whole within 0 and 1, or NaN.
func share(part, whole float64) float64 {
	if !finite(part, whole) || whole <= 0 {
		return math.NaN()
	}
	return min(max(part/whole, 0), 1)
}

// ago writes how long something is past.
func ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return duration(d) + " ago"
}

// ownerText names an owner, empty if there is none.
func ownerText(o collector.Owner) string {
	if o.Kind == "" {
		return ""
	}
	return oneLine(o.Kind + " " + o.ID)
}

func teamText(o collector.Owner) string {
	if o.Team == "" {
		return ""
	}
	return "team " + oneLine(o.Team)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
