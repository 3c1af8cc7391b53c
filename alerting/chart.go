package alerting

import "time"

// Chart is one reading over the last hours, with what is usual of it and the moment
// at which an incident began. Its texts are plain and bounded.
type Chart struct {
	Title     string // what is drawn, and of what: "power, gpu-117/3"
	Unit      string // W, %, °C …; may be empty
	Points    []ChartPoint
	Low, High float64 // the expected band, in the unit; both NaN if there is none
	Band      string  // what the band is: "usual before it began"
	Onset     time.Time
	Simulated bool
}

// ChartPoint is one minute of a chart, in the chart's unit.
type ChartPoint struct {
	Time           time.Time
	Min, Mean, Max float64
}
