package report

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Outlook is the present and the forecast of a signal, with the cheapest window.
type Outlook struct {
	Title     string
	Label     string // label of the vertical axis, in at most two lines, with the unit in the last one
	Series    *grid.Series
	Low, High *grid.Series // percentiles with the steps of Series; both nil if unknown
	Band      string       // the name of the interval between Low and High
	Window    sched.Window // empty to mark none
}

var (
	bandColour   = color.RGBA{0xD6, 0xE6, 0xF2, 0xFF}
	windowColour = color.RGBA{0xDD, 0xF1, 0xE8, 0xFF}
)

// SVG draws the outlook. The same outlook gives the same bytes.
func (o *Outlook) SVG() ([]byte, error) {
	start := o.Series.Start()
	span := o.Series.End().Sub(start).Seconds()
	p := newPlot("Time (UTC)", o.Label, faint)
	p.Title.Text = fitted(o.Title, figureWidth-10*padding)
	line := &plotter.Line{XYs: seriesSteps(o.Series, start, span, resolution(1)), LineStyle: strategyStyle(0, 1)}
	keys := []key{{"forecast", line}}
	if length := o.Window.End.Sub(o.Window.Start); length > 0 {
		from, to := o.Window.Start.Sub(start).Seconds(), o.Window.End.Sub(start).Seconds()
		p.Add(stripe{max(0, from), min(span, to), windowColour})
		name := fmt.Sprintf("cheapest %s, from %s", humanize.Rounded(length),
			o.Window.Start.UTC().Format("2 Jan 15:04"))
		keys = append(keys, key{name, &plotter.Polygon{Color: windowColour}})
	}
	if o.Low != nil {
		band := seriesSteps(o.High, start, span, resolution(1))
		for _, v := range slices.Backward(seriesSteps(o.Low, start, span, resolution(1))) {
			band = append(band, v)
		}
		area := &plotter.Polygon{XYs: []plotter.XYs{band}, Color: bandColour}
		p.Add(area)
		keys = append(keys, key{o.Band, area})
	}
	p.Add(line)
	f := figure{figureWidth, 4 * vg.Inch, [][]key{keys}, overTime(start, span, p)}
	return f.svg(), nil
}

// stripe fills a plot from bottom to top between two values of the horizontal axis.
type stripe struct {
	from, to float64
	color.Color
}

// Plot implements [plot.Plotter].
func (s stripe) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	c.Min.X, c.Max.X = x(s.from), x(s.to)
	c.SetColor(s.Color)
	c.Fill(c.Path())
}
