package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
)

// limits bound a number or a length of time, as the tags of its field say: in:"1s..10m" is
// what it may be, zero:"never" what 0 means where that is allowed too. Those of a list or
// a map hold for what is in it. The zero limits bound nothing.
type limits struct{ low, high, zero string }

func limitsOf(tag reflect.StructTag) limits {
	low, high, _ := strings.Cut(tag.Get("in"), "..")
	return limits{low, high, tag.Get("zero")}
}

// allow reports whether a value is within.
func (l limits) allow(x float64) bool {
	return l.low == "" || x >= quantity(l.low) && x <= quantity(l.high) || x == 0 && l.zero != ""
}

// words are what is allowed, such as "1m to 30d, or 0s (never)".
func (l limits) words() string {
	if l.zero == "" {
		return fmt.Sprintf("%s to %s", l.low, l.high)
	}
	zero := "0"
	if _, err := strconv.ParseFloat(l.high, 64); err != nil {
		zero = "0s"
	}
	return fmt.Sprintf("%s to %s, or %s (%s)", l.low, l.high, zero, l.zero)
}

// of says what a value of this kind may be.
func (l limits) of(kind string) string {
	if l.low == "" {
		return kind
	}
	return kind + " from " + l.words()
}

// quantity reads a bound: a number, or a length of time in seconds.
func quantity(text string) float64 {
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return x
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		return math.NaN() // which nothing is within; a test holds the tags against this
	}
	return Duration(d).seconds()
}
