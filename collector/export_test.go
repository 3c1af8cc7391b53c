package collector

import "time"

// SetWall makes the sampler's wall clock show what a test wants.
func (s *Sampler) SetWall(wall func(time.Time) time.Time) { s.wall = wall }
