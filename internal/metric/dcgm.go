package metric

import "math"

// Generation is which releases of dcgm-exporter use a name.
type Generation uint8

// The generations, as a set of bits.
const (
	Until48 Generation = 1 << iota // up to 4.8
	Since49                        // from 4.9, which renamed 23 names and changed 11 units
	AnyDCGM = Until48 | Since49
)

// DCGM is one name under which dcgm-exporter publishes a row, or one value of its
// dimension. A renderer of the DCGM page needs nothing else:
//
//	value := Scale × reading     (Scale 0 means 1)
//
// A row of entity GPU is published with the labels of a GPU, one of entity
// Instance with those of a MIG instance. The one row of entity Xid,
// DCGM_FI_DEV_XID_ERRORS, has the code that fell last as its value.
type DCGM struct {
	Name       string
	Generation Generation
	Kind       Kind    // the type that dcgm-exporter declares, which is not always the right one
	At         int     // position in the row's dimension
	Sum        bool    // of all positions, instead of the one at At
	Scale      float64 // base unit to DCGM's unit; 0 means 1
	Integer    bool    // DCGM publishes no fraction
	Listed     bool    // in dcgm-exporter's default or DCP file; else known from users' own lists
}

// Value converts a reading in the row's base unit into DCGM's unit.
func (d DCGM) Value(v float64) float64 {
	if d.Scale == 0 {
		return v
	}
	return v * d.Scale
}

// Reading converts a value in DCGM's unit into one in the row's base unit.
func (d DCGM) Reading(v float64) float64 {
	switch {
	case d.Scale == 0:
		return v
	case d.Scale < 1: // 1980 MHz / 1e-6 is not quite 1.98 GHz
		return v * math.Round(1/d.Scale)
	}
	return v / d.Scale
}

// renamed is a name up to 4.8, whose unit is the base unit divided by scale, and
// the name since, in base units.
func renamed(kind Kind, at int, scale float64, before, since string) []DCGM {
	return []DCGM{
		{Name: before, Generation: Until48, Kind: kind, At: at, Scale: scale, Integer: scale != 0, Listed: true},
		{Name: since, Generation: Since49, Kind: kind, At: at, Listed: true},
	}
}

// kept is a name of dcgm-exporter's files that no release has changed.
func kept(kind Kind, at int, scale float64, name string) []DCGM {
	return []DCGM{{Name: name, Generation: AnyDCGM, Kind: kind, At: at, Scale: scale, Listed: true}}
}

// custom is a field that dcgm-exporter publishes only for who lists it.
func custom(kind Kind, at int, scale float64, name string) []DCGM {
	return []DCGM{{Name: name, Generation: AnyDCGM, Kind: kind, At: at, Scale: scale}}
}

func names(lists ...[]DCGM) []DCGM {
	var all []DCGM
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
