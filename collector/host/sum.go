package host

// Sum adds up counters of devices that come and go, without ever falling: a
// device that is unplugged, or whose counter restarts, would otherwise look like
// a restart of all, and the rate over it like a burst that never was.
type Sum struct {
	total float64
	last  map[string]float64
	next  map[string]float64
}

// Begin starts a round of Add calls.
func (s *Sum) Begin() { s.next = make(map[string]float64, len(s.last)) }

// Add takes the device's counter into the round. In the first round counters
// count in full, so that the sum begins where the devices' own do.
func (s *Sum) Add(device string, counter float64) {
	before, known := s.last[device]
	if s.last == nil {
		s.total += counter
	} else if known && counter > before {
		s.total += counter - before
	}
	s.next[device] = counter
}

// End closes the round and returns the sum; ok is false if there was no device.
func (s *Sum) End() (total float64, ok bool) {
	ok = len(s.next) > 0
	if ok || s.last != nil {
		s.last = s.next
	}
	return s.total, ok
}
