package host

// sum adds up counters of devices that come and go, without ever falling: a
// device that is unplugged, or whose counter restarts, would otherwise look like
// a restart of all, and the rate over it like a burst that never was.
type sum struct {
	total float64
	last  map[string]float64
	next  map[string]float64
}

// begin starts a round of add calls.
func (s *sum) begin() { s.next = make(map[string]float64, len(s.last)) }

// add takes the device's counter into the round. In the first round counters
// count in full, so that the sum begins where the devices' own do.
func (s *sum) add(device string, counter float64) {
	before, known := s.last[device]
	if s.last == nil {
		s.total += counter
	} else if known && counter > before {
		s.total += counter - before
	}
	s.next[device] = counter
}

// end closes the round and returns the sum; ok is false if there was no device.
func (s *sum) end() (total float64, ok bool) {
	ok = len(s.next) > 0
	if ok || s.last != nil {
		s.last = s.next
	}
	return s.total, ok
}
