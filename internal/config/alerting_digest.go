package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Digest is the summary that receivers get in place of messages about what is worth
// knowing only.
type Digest struct {
	Receivers []string `yaml:"receivers"` // none: no digest
	Daily     bool     `yaml:"daily"`
	Weekly    bool     `yaml:"weekly"`
	At        string   `yaml:"at"`        // time of day: 08:00
	Weekday   string   `yaml:"weekday"`   // of the weekly one
	TimeZone  string   `yaml:"time_zone"` // of at: UTC, Europe/Berlin
}

func defaultDigest() Digest {
	return Digest{Daily: true, Weekly: true, At: "08:00", Weekday: "monday", TimeZone: "UTC"}
}

// Clock returns hour and minute of the digest.
func (d *Digest) Clock() (hour, minute int) {
	t, _ := time.Parse("15:04", d.At) // checked when it was read
	return t.Hour(), t.Minute()
}

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// Day returns the day of the weekly digest.
func (d *Digest) Day() time.Weekday { return time.Weekday(slices.Index(weekdays, d.Weekday)) }

// Location returns the time zone of the digest.
func (d *Digest) Location() (*time.Location, error) { return time.LoadLocation(d.TimeZone) }

func (a *Alerting) checkDigest(fail func(key, format string, args ...any)) {
	d, names := &a.Digest, a.receivers()
	for i, r := range d.Receivers {
		if !names[r] {
			fail(fmt.Sprintf("alerting.digest.receivers[%d]", i), "found %q, allowed: %s", clean(r), orNone(sorted(names), "", "none, as no receiver is given under alerting.slack, alerting.webhook or alerting.alertmanager"))
		}
	}
	if _, err := time.Parse("15:04", d.At); err != nil {
		fail("alerting.digest.at", "found %q, allowed: a time of day such as 08:00", clean(d.At))
	}
	if d.Day() < 0 {
		fail("alerting.digest.weekday", "found %q, allowed: %s", clean(d.Weekday), strings.Join(weekdays, ", "))
	}
	if _, err := d.Location(); err != nil || d.TimeZone == "" {
		fail("alerting.digest.time_zone", "found %q, allowed: a name such as UTC or Europe/Berlin that this machine knows", clean(d.TimeZone))
	}
}
