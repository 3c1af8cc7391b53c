package text

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0 s", 0: "0 s", 999 * time.Millisecond: "0 s", 41 * time.Second: "41 s",
		time.Minute: "1 min", 6*time.Minute + 59*time.Second: "6 min", 116 * time.Minute: "1 h 56 min", 2 * time.Hour: "2 h",
		146*time.Minute + 59*time.Second: "2 h 26 min", 48*time.Hour - 1: "47 h 59 min", 48 * time.Hour: "2 d", 71 * time.Hour: "2 d", 300 * time.Hour: "12 d",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}
