// Package chart draws what an incident's reading did in the last hours, as a PNG that
// is understood at a glance: the line, the expected band behind it, and the moment at
// which it began.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"gpuvigil/alerting"
)

// The picture's size in points, and the dots for each inch of 72 points: 1200 by 600
// dots, which a phone shows sharply.
const (
	width  = 432 * vg.Length(1)
	height = 216 * vg.Length(1)
	dpi    = 200
)

// maxGap is the distance of two points between which no line is drawn: nobody looked.
const maxGap = 5 * time.Minute

var (
	ink    = color.NRGBA{0x1d, 0x1c, 0x1d, 0xff}
	faint  = color.NRGBA{0xe3, 0xe3, 0xe3, 0xff}
	line   = color.NRGBA{0x12, 0x64, 0xa3, 0xff}
	spread = color.NRGBA{0x12, 0x64, 0xa3, 0x40}
	band   = color.NRGBA{0x2e, 0xb6, 0x7d, 0x38}
	onset  = color.NRGBA{0xe0, 0x1e, 0x5a, 0xff}
)

// PNG draws the chart. It returns an error if there are fewer than two points.
func PNG(c *alerting.Chart) ([]byte, error) {
	if len(c.Points) < 2 {
		return nil, errors.New("draw a chart: there are fewer than two points")
	}
	p := plot.New()
	p.TextHandler = text.Plain{Fonts: font.DefaultCache}
	style(p, c)
	first, last := c.Points[0].Time, c.Points[len(c.Points)-1].Time
	low, high := reach(c)
	p.X.Min, p.X.Max = seconds(first), seconds(later(last, c.Onset))
	p.Y.Min, p.Y.Max = low, high
	p.Add(grid())
	if err := addBand(p, c); err != nil {
		return nil, err
	}
	for _, run := range runs(c.Points) {
		if err := addRun(p, run); err != nil {
			return nil, err
		}
	}
	if err := addOnset(p, c, low, high); err != nil {
		return nil, err
	}
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	p.Draw(draw.Crop(draw.New(canvas), 6, -10, 6, -6))
	var png bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(&png); err != nil {
		return nil, fmt.Errorf("draw a chart: %w", err)
	}
	return png.Bytes(), nil
}

func style(p *plot.Plot, c *alerting.Chart) {
	p.Title.Text = c.Title
	if c.Unit != "" {
		p.Title.Text += ", " + c.Unit
	}
	if c.Simulated {
		p.Title.Text = "SIMULATED  " + p.Title.Text
	}
	p.Title.TextStyle.Font = font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Weight: 2, Size: 12}
	p.Title.TextStyle.Color = ink
	p.Title.Padding = 5
	p.X.Tick.Marker, p.Y.Tick.Marker = clock{}, numbers{}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = faint, faint
		a.Tick.Label.Color = ink
		a.Tick.Label.Font = font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: 10}
		a.Padding = 0
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font = font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: 9}
	p.Legend.TextStyle.Color = ink
	p.Legend.ThumbnailWidth = 14
	p.Legend.Padding = 2
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = faint, faint
	return g
}

// reach returns the vertical axis: all values and the band, with room for the legend.
func reach(c *alerting.Chart) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range c.Points {
		low, high = math.Min(low, p.Min), math.Max(high, p.Max)
	}
	if !math.IsNaN(c.Low) && !math.IsNaN(c.High) {
		low, high = math.Min(low, c.Low), math.Max(high, c.High)
	}
	// A reading that never is negative is easier to judge against zero, unless that
	// would flatten it.
	if low > 0 && low < 0.5*high {
		low = 0
	}
	room := high - low
	if room == 0 {
		room = math.Max(0.1*math.Abs(high), 1)
	}
	return low - 0.02*room, high + 0.28*room
}

// runs splits the points where nobody looked.
func runs(points []alerting.ChartPoint) [][]alerting.ChartPoint {
	var all [][]alerting.ChartPoint
	from := 0
	for i := 1; i <= len(points); i++ {
		if i == len(points) || points[i].Time.Sub(points[i-1].Time) > maxGap {
			all = append(all, points[from:i])
			from = i
		}
	}
	return all
}

func addBand(p *plot.Plot, c *alerting.Chart) error {
	if math.IsNaN(c.Low) || math.IsNaN(c.High) {
		return nil
	}
	// A reading that never moved has a band that nobody would see.
	low, high, least := c.Low, c.High, (p.Y.Max-p.Y.Min)/40
	if narrow := least - (high - low); narrow > 0 {
		low, high = low-narrow/2, high+narrow/2
	}
	area, err := plotter.NewPolygon(plotter.XYs{{X: p.X.Min, Y: low}, {X: p.X.Max, Y: low}, {X: p.X.Max, Y: high}, {X: p.X.Min, Y: high}})
	if err != nil {
		return fmt.Errorf("draw the expected band of a chart: %w", err)
	}
	area.Color, area.LineStyle.Width = band, 0
	p.Add(area)
	p.Legend.Add(c.Band, area)
	return nil
}

// addRun draws the minutes' means, and behind them from the least to the most.
func addRun(p *plot.Plot, run []alerting.ChartPoint) error {
	means, area := make(plotter.XYs, len(run)), make(plotter.XYs, 2*len(run))
	for i, pt := range run {
		x := seconds(pt.Time)
		means[i] = plotter.XY{X: x, Y: pt.Mean}
		area[i], area[len(area)-1-i] = plotter.XY{X: x, Y: pt.Max}, plotter.XY{X: x, Y: pt.Min}
	}
	around, err := plotter.NewPolygon(area)
	if err != nil {
		return fmt.Errorf("draw the spread of a chart: %w", err)
	}
	around.Color, around.LineStyle.Width = spread, 0
	mean, err := plotter.NewLine(means)
	if err != nil {
		return fmt.Errorf("draw the line of a chart: %w", err)
	}
	mean.Color, mean.Width = line, 1.6
	p.Add(around, mean)
	return nil
}

// addOnset marks when it began.
func addOnset(p *plot.Plot, c *alerting.Chart, low, high float64) error {
	x := seconds(c.Onset)
	if c.Onset.IsZero() || x < p.X.Min {
		return nil
	}
	mark, err := plotter.NewLine(plotter.XYs{{X: x, Y: low}, {X: x, Y: high}})
	if err != nil {
		return fmt.Errorf("draw the beginning in a chart: %w", err)
	}
	mark.Color, mark.Width, mark.Dashes = onset, 1.4, []vg.Length{4, 2}
	p.Add(mark)
	p.Legend.Add("began "+c.Onset.UTC().Format("15:04 MST"), mark)
	return nil
}

// numbers has few ticks, written without idle zeros.
type numbers struct{}

// Ticks returns the ticks of an axis of values.
func (numbers) Ticks(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	for _, t := range (plot.DefaultTicks{}).Ticks(from, to) {
		if !t.IsMinor() {
			ticks = append(ticks, plot.Tick{Value: t.Value, Label: strconv.FormatFloat(t.Value, 'g', 6, 64)})
		}
	}
	return ticks
}

// clock has a tick at each whole quarter, half or full hour, so that there are few.
type clock struct{}

// Ticks returns the ticks of an axis in seconds since 1970.
func (clock) Ticks(from, to float64) []plot.Tick {
	step := time.Hour
	for _, d := range []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute} {
		if (to-from)/d.Seconds() <= 7 {
			step = d
			break
		}
	}
	var ticks []plot.Tick
	for t := time.Unix(int64(from), 0).UTC().Truncate(step); seconds(t) <= to && len(ticks) < 50; t = t.Add(step) {
		if seconds(t) >= from {
			ticks = append(ticks, plot.Tick{Value: seconds(t), Label: t.Format("15:04")})
		}
	}
	return ticks
}

func seconds(t time.Time) float64 { return float64(t.Unix()) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
