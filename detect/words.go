package detect

import (
	"math"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"gpuvigil/internal/text"
)

// percentOf writes a ratio as people read it: "11 %".
func percentOf(ratio float64) string { return strconv.FormatFloat(100*ratio, 'f', 0, 64) + " %" }

// span writes how long something lasted, as whoever tells of a finding does.
func span(d time.Duration) string { return text.Span(d) }

// seconds writes a time to wait: "0.3 s", "4.1 s", "38 s".
func seconds(s float64) string {
	switch {
	case s < 0.1:
		return significant(s, 1) + " s"
	case s < 10:
		return significant(s, 2) + " s"
	default:
		return strconv.FormatFloat(s, 'f', 0, 64) + " s"
	}
}

// significant writes a number with so many digits and no trailing zeros.
func significant(x float64, digits int) string {
	if x == 0 {
		return "0"
	}
	scale := math.Pow10(digits - 1 - int(math.Floor(math.Log10(math.Abs(x)))))
	return strconv.FormatFloat(math.Round(x*scale)/scale, 'f', -1, 64)
}

func gibibytes(b float64) string { return significant(b/(1<<30), 3) + " GiB" }

func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// count writes "1 process", "3 processes".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// capital writes a clause as the beginning of a sentence.
func capital(clause string) string {
	if clause == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(clause)
	return string(unicode.ToUpper(first)) + clause[size:]
}
