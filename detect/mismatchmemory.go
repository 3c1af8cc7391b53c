package detect

import (
	"encoding/json"
	"slices"
	"time"
)

type mismatchState struct {
	Version int      `json:"version"`
	Clashes []*clash `json:"clashes"`
}

// Save returns since when versions have not fitted.
func (d *Mismatch) Save() ([]byte, error) { return json.Marshal(mismatchState{1, d.clashes}) }

// Restore takes up what Save returned. What it was about is found by the next look.
func (d *Mismatch) Restore(data []byte) error {
	var s mismatchState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	s.Clashes = slices.DeleteFunc(s.Clashes, func(c *clash) bool { return c == nil || c.Subject.ID == "" || c.Cause == "" })
	d.clashes, d.looked = s.Clashes[:min(len(s.Clashes), mostClash)], time.Time{}
	return nil
}

// Shift moves since when versions have not fitted.
func (d *Mismatch) Shift(by time.Duration) {
	shift(by, &d.looked)
	for _, c := range d.clashes {
		shift(by, &c.Since, &c.Seen)
	}
}
