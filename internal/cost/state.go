package cost

import (
	"fmt"

	"gpuvigil/internal/metric"
)

// State is what a GPU was to the one who pays for it: a position in
// metric.GPUState.
type State uint8

// The states, each from evidence of its own.
const (
	Busy               State = iota // it worked
	IdleHeld                        // a context was open on it and it did not work
	HeldWithoutProcess              // it was given to somebody who had no context open
	Free                            // it was given to nobody
	Unavailable                     // nobody could have used it: lost, hung, to be reset, drained
	Unobserved                      // nobody knows: the agent was down, or its readings were old
	States                          // the number of states
)

// String returns the state as labels spell it.
func (s State) String() string { return metric.GPUState.Values[s] }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) {
	if s >= States {
		return nil, fmt.Errorf("write GPU state %d: there are %d", s, States)
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(text []byte) error {
	i := metric.GPUState.Index(string(text))
	if i < 0 {
		return fmt.Errorf("%.40q is no state of a GPU: known are %v", text, metric.GPUState.Values)
	}
	*s = State(i)
	return nil
}
