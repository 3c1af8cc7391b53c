package chart_test

import (
	"bytes"
	"flag"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/chart"
)

var update = flag.Bool("update", false, "rewrite the pictures with what the tests get now")

var start = time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)

// power is a GPU that works at about 620 W and hangs at 03:12.
func power() *alerting.Chart {
	c := &alerting.Chart{Title: "Power of gpu-117/3", Unit: "W", Low: 590, High: 652, Band: "usual before", Onset: start.Add(192 * time.Minute)}
	for m := range 220 {
		if m >= 60 && m < 72 {
			continue // nobody looked
		}
		v := 620 + 22*math.Sin(float64(m)/3) + 8*math.Cos(float64(m*m))
		p := alerting.ChartPoint{Time: start.Add(time.Duration(m) * time.Minute), Min: v - 30, Mean: v, Max: v + 20}
		if m >= 192 {
			p.Min, p.Mean, p.Max = 148, 152, 158
		}
		c.Points = append(c.Points, p)
	}
	return c
}

// TestTheChartLooksAsItDid compares with pictures that somebody has looked at: all but a
// few dots, which edges may differ in between processors, are the same within a little.
func TestTheChartLooksAsItDid(t *testing.T) {
	flat := &alerting.Chart{Title: "SM clock of gpu-117/3", Unit: "MHz", Low: math.NaN(), High: math.NaN(), Onset: start.Add(9 * time.Minute), Simulated: true}
	for m := range 20 {
		flat.Points = append(flat.Points, alerting.ChartPoint{Time: start.Add(time.Duration(m) * time.Minute), Min: 1980, Mean: 1980, Max: 1980})
	}
	for name, c := range map[string]*alerting.Chart{"power": power(), "flat": flat} {
		t.Run(name, func(t *testing.T) {
			got, err := chart.PNG(c)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".png")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := differences(t, decode(t, want), decode(t, got)); n > 0.002 {
				t.Errorf("%.2f %% of the picture's dots differ from %s: look at it with -update", 100*n, path)
			}
		})
	}
}

func decode(t *testing.T, b []byte) image.Image {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// differences returns which share of the dots differs visibly.
func differences(t *testing.T, want, got image.Image) float64 {
	t.Helper()
	if want.Bounds() != got.Bounds() {
		t.Fatalf("the picture has %v, had %v", got.Bounds(), want.Bounds())
	}
	size, n := want.Bounds().Size(), 0
	for y := range size.Y {
		for x := range size.X {
			r, g, b, _ := want.At(x, y).RGBA()
			r2, g2, b2, _ := got.At(x, y).RGBA()
			if apart(r, r2) || apart(g, g2) || apart(b, b2) {
				n++
			}
		}
	}
	return float64(n) / float64(size.X*size.Y)
}

func apart(a, b uint32) bool { return max(a, b)-min(a, b) > 24<<8 }

// TestTheChartShowsWhatHappened holds the structure, whatever the fonts: where the line
// is, the band behind it, and the mark.
func TestTheChartShowsWhatHappened(t *testing.T) {
	shown := colours(t, power())
	without := power()
	without.Low, without.High, without.Onset = math.NaN(), math.NaN(), time.Time{}
	bare := colours(t, without)
	if shown.line < 500 || bare.line < 500 {
		t.Errorf("the line has %d dots, without band and mark %d", shown.line, bare.line)
	}
	if shown.band < 5000 || bare.band > 0 {
		t.Errorf("the expected band has %d dots, %d in a chart without one", shown.band, bare.band)
	}
	steady := power()
	steady.Low, steady.High = 700, 700
	if n := colours(t, steady).band; n < 5000 {
		t.Errorf("a band without height has %d dots: nobody sees it", n)
	}
	if shown.mark < 200 || bare.mark > 0 {
		t.Errorf("the beginning is marked by %d dots, by %d in a chart without one", shown.mark, bare.mark)
	}
}

type dots struct{ line, band, mark int }

func colours(t *testing.T, c *alerting.Chart) (n dots) {
	t.Helper()
	raw, err := chart.PNG(c)
	if err != nil {
		t.Fatal(err)
	}
	img := decode(t, raw)
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			switch r, g, b := r>>8, g>>8, b>>8; {
			case r < 0x30 && g < 0x80 && b > 0x80:
				n.line++
			case r > 0xc0 && r < 0xe0 && g > 0xe8 && b > 0xd0 && b < g:
				n.band++
			case r > 0xd0 && g < 0x40 && b < 0x80:
				n.mark++
			}
		}
	}
	return n
}

func TestTooLittleIsNotDrawn(t *testing.T) {
	c := power()
	c.Points = c.Points[:1]
	if _, err := chart.PNG(c); err == nil {
		t.Error("one point is drawn as a chart")
	}
}

// TestOddValuesAreDrawn holds that no chart takes the agent down.
func TestOddValuesAreDrawn(t *testing.T) {
	for name, change := range map[string]func(*alerting.Chart){
		"a band that is a line":      func(c *alerting.Chart) { c.Low = c.High },
		"a beginning after all":      func(c *alerting.Chart) { c.Onset = start.Add(100 * time.Hour) },
		"a beginning before all":     func(c *alerting.Chart) { c.Onset = start.Add(-100 * time.Hour) },
		"huge values":                func(c *alerting.Chart) { c.Points[3].Max = 1e300 },
		"points of the same instant": func(c *alerting.Chart) { c.Points = append(c.Points[:1:1], c.Points[0]) },
		"a long title":               func(c *alerting.Chart) { c.Title = string(bytes.Repeat([]byte("é"), 3000)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := power()
			change(c)
			if _, err := chart.PNG(c); err != nil {
				t.Error(err)
			}
		})
	}
}
