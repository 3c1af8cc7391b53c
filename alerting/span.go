package alerting

import (
	"fmt"
	"time"
)

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
