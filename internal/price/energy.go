package price

import (
	"time"
	_ "time/tzdata" // containers often have none
)

// hours is a value for each hour of the day, or one for all.
type hours []float64

func (h hours) at(hour int) float64 {
	switch len(h) {
	case 0:
		return 0
	case 1:
		return h[0]
	}
	return h[hour]
}

// Energy is what a kilowatt-hour costs and causes. A list has one value, or one for
// each hour of the day in the time zone.
type Energy struct {
	PerKWh   []float64 // in Currency; empty: unknown
	Currency string
	PUE      float64   // energy of the data centre over that of its computers; at least 1, 0: 1
	Carbon   []float64 // grams of CO2 equivalent for one kWh; empty: unknown
	TimeZone string    // empty: UTC
}

type energy struct {
	price, carbon hours
	pue           float64
	zone          *time.Location
}

func (e Energy) compile() (energy, error) {
	zone, err := time.LoadLocation(e.TimeZone)
	if err != nil {
		return energy{}, mistake("energy.time_zone", "found %.40q, allowed: a name of the time zone database, such as Europe/Berlin", e.TimeZone)
	}
	for key, list := range map[string][]float64{"energy.price_per_kwh_by_hour": e.PerKWh, "energy.carbon_g_per_kwh_by_hour": e.Carbon} {
		if n := len(list); n > 1 && n != 24 {
			return energy{}, mistake(key, "found %d values, allowed: 24, one for each hour of the day", n)
		}
	}
	out := energy{price: e.PerKWh, carbon: e.Carbon, pue: e.PUE, zone: zone}
	if out.pue == 0 {
		out.pue = 1
	}
	return out, nil
}

// Energy returns, for a kilowatt-hour of a GPU at the time, what it costs in
// billionths of the currency and what it causes in billionths of a gram of CO2
// equivalent, both with what the data centre uses on top; 0 if unknown.
func (b *Book) Energy(at time.Time) (cost, carbon int64) {
	hour := at.In(b.energy.zone).Hour()
	return nano(b.energy.price.at(hour) * b.energy.pue), nano(b.energy.carbon.at(hour) * b.energy.pue)
}

// HasEnergyPrice reports whether energy has a price.
func (b *Book) HasEnergyPrice() bool { return len(b.energy.price) > 0 }

// HasCarbon reports whether it is known what energy causes.
func (b *Book) HasCarbon() bool { return len(b.energy.carbon) > 0 }
