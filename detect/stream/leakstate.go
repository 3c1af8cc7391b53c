package stream

import (
	"time"
)

const (
	leakName    = "gvLK"
	leakVersion = 1
	leakSize    = 1210 // bytes of a record
)

// MarshalBinary packs all that the detector remembers, into 1210 bytes. It never fails.
func (l *Leak) MarshalBinary() ([]byte, error) {
	w := newRecord(leakName, leakVersion, leakSize)
	w.bool(l.begun)
	w.i64(l.since)
	w.i64(l.open.number)
	for i := range l.open.sums {
		w.f64(l.open.sums[i])
		w.u32(l.open.counts[i])
	}
	for k := range l.levels {
		v := &l.levels[k]
		w.bool(v.ring.filled)
		w.i64(v.ring.newest)
		for _, y := range v.ring.values {
			w.f32(y)
		}
		writeGrowth(w, v.growth)
		for i := range v.windows {
			m := &v.windows[i]
			w.f32(m.usual)
			w.u32(uint32(m.weight))
			w.f32(m.came)
			w.i64(m.cameAt)
			w.f32(m.pending)
			w.f32(m.halfBack)
		}
	}
	writeGrowth(w, l.best)
	return w.finish(), nil
}

// UnmarshalBinary takes up what MarshalBinary packed; from then on the detector does
// what the other would have done. What is damaged, or of another version, is an error
// and leaves the detector as it was.
func (l *Leak) UnmarshalBinary(data []byte) error {
	r, err := openRecord(data, leakName, leakVersion, leakVersion)
	if err != nil {
		return err
	}
	var n Leak
	n.begun, n.since, n.open.number = r.bool(), r.i64(), r.i64()
	for i := range n.open.sums {
		n.open.sums[i], n.open.counts[i] = r.f64(), r.u32()
	}
	for k := range n.levels {
		v := &n.levels[k]
		v.ring.filled, v.ring.newest = r.bool(), r.i64()
		for i := range v.ring.values {
			v.ring.values[i] = r.f32()
		}
		v.growth = readGrowth(r)
		for i := range v.windows {
			v.windows[i] = leakWindow{usual: r.f32(), weight: uint16(r.u32()), came: r.f32(), cameAt: r.i64(), pending: r.f32(), halfBack: r.f32()}
		}
	}
	n.best = readGrowth(r)
	if err := r.finish(); err != nil {
		return err
	}
	*l = n
	return nil
}

func writeGrowth(w *recordWriter, g Growth) {
	w.i64(int64(g.Over))
	w.i64(g.At.Unix())
	for _, x := range [...]float64{g.Score, g.Z, g.Rise, g.Level, g.PerSecond, g.Low, g.High} {
		w.f64(x)
	}
}

func readGrowth(r *recordReader) Growth {
	return Growth{Over: time.Duration(r.i64()), At: time.Unix(r.i64(), 0).UTC(), Score: r.f64(), Z: r.f64(), Rise: r.f64(), Level: r.f64(), PerSecond: r.f64(), Low: r.f64(), High: r.f64()}
}
