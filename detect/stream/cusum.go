package stream

// CUSUM is Page's one-sided cumulative sum for a rise of the mean: S ← max(0, S + x − k)
// (Page 1954, Biometrika 41, eq. 1 and sec. 3). The slack k, half of the rise that is
// looked for, may differ from sample to sample. It goes to no more than twice the
// limit, so that it is soon down again when the rise is over.
type CUSUM struct{ sum float64 }

// Add takes a deviation from the mean and returns the sum in limits: 1 is an alarm.
func (c *CUSUM) Add(deviation, slack, limit float64) float64 {
	c.sum = max(0, min(c.sum+deviation-slack, 2*limit))
	return c.sum / limit
}
