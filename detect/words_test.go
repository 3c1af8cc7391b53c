package detect

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		percentOf(0.114):                     "11 %",
		percentOf(1):                         "100 %",
		span(41 * time.Second):               "41 s",
		span(6*time.Minute + 59*time.Second): "6 min",
		span(2 * time.Hour):                  "2 h",
		span(130 * time.Minute):              "2 h 10 min",
		span(49 * time.Hour):                 "2 d",
		seconds(0):                           "0 s",
		seconds(0.0123):                      "0.01 s",
		seconds(0.31):                        "0.31 s",
		seconds(4.123):                       "4.1 s",
		seconds(38.4):                        "38 s",
		significant(0.0042, 1):               "0.004",
		significant(1234, 2):                 "1200",
		gibibytes(61.23 * (1 << 30)):         "61.2 GiB",
		count(1, "process", "processes"):     "1 process",
		count(0, "process", "processes"):     "0 processes",
		clock(day.Add(3*time.Hour + 12*time.Minute + 4*time.Second)): "03:12:04 UTC",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
