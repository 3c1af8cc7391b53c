package alerting

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// clean makes one line of valid UTF-8 of at most limit runes out of text that
// anybody may have written. Control characters become spaces; those that are not
// seen (directions of writing, joiners) and could make text look like another are
// dropped. What is cut off is marked.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Cf, unicode.Co):
			return -1
		case unicode.IsControl(r), unicode.In(r, unicode.Zl, unicode.Zp):
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > limit {
		return strings.TrimRight(string(runes[:max(limit-1, 0)]), " ") + "…"
	}
	return s
}

// span writes a duration as people say it, with its two largest units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	two := func(large, small time.Duration, l, s string) string {
		if rest := d % large / small; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", d/large, l, rest, s)
		}
		return fmt.Sprintf("%d %s", d/large, l)
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 10*time.Minute:
		return two(time.Minute, time.Second, "min", "s")
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < day:
		return two(time.Hour, time.Minute, "h", "min")
	default:
		return two(day, time.Hour, "d", "h")
	}
}
