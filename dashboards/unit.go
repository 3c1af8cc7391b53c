package dashboards

import (
	"strings"

	"gpuvigil/internal/metric"
)

// Grafana's names of units that more than one place needs.
const (
	unitCount = "short"
	unitShare = "percentunit"
	unitDate  = "dateTimeFromNow"
)

// unit is how Grafana shows a row's value and, for a counter, its growth in a
// second.
type unit struct {
	suffix, value, perSecond string
}

// units are tried in this order: a suffix stands before those that it ends in.
var units = []unit{
	{"_bytes_per_second", "Bps", ""},
	{"_timestamp_seconds", unitDate, ""},
	{"_per_second", "cps", ""},
	{"_bytes_total", "bytes", "Bps"},
	{"_seconds_total", "s", unitShare}, // seconds in a second are a share of time
	{"_joules_total", "joule", "watt"},
	{"_total", unitCount, "cps"},
	{"_bytes", "bytes", ""},
	{"_seconds", "s", ""},
	{"_watts", "watt", ""},
	{"_joules", "joule", ""},
	{"_celsius", "celsius", ""},
	{"_hertz", "hertz", ""},
	{"_ratio", unitShare, ""},
}

// unitOf reads the unit from the suffix of the row's name. A row without one
// counts things.
func unitOf(row *metric.Def) unit {
	for _, u := range units {
		if strings.HasSuffix(row.Name, u.suffix) {
			return u
		}
	}
	return unit{value: unitCount}
}

// isShare reports whether the row is a part of a whole: never more than 1.
func isShare(row *metric.Def) bool {
	return strings.HasSuffix(row.Name, "_ratio") && row.Max == 1
}
