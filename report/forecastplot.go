package report

import (
	"errors"
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// Outlook is a signal's present and future, and the window of it that is cheapest.
type Outlook struct {
	Title     string
	Label     []string // of the vertical axis, in at most two lines, the last one with the unit
	Series    *grid.Series
	Low, High *grid.Series // percentiles of the same steps; nil: not known
	Band      string       // what Low and High are
	Window    sched.Window // empty: none is marked
}

// SVG draws the outlook. The same outlook gives the same bytes.
func (o *Outlook) SVG() ([]byte, error) {
	switch {
	case o.Series == nil:
		return nil, errors.New("there is no forecast to draw")
	case o.Low != nil && o.High == nil || o.Low == nil && o.High != nil:
		return nil, errors.New("a band needs both percentiles")
	}
	for name, s := range map[string]*grid.Series{"low": o.Low, "high": o.High} {
		if s != nil && (s.Len() != o.Series.Len() || !s.Start().Equal(o.Series.Start()) ||
			s.Step() != o.Series.Step()) {
			return nil, fmt.Errorf("the %s percentile has other steps than the forecast", name)
		}
	}
	f := figure{figureWidth, 4 * vg.Inch, o.draw}
	return f.svg()
}

var (
	bandColour   = color.RGBA{0xD6, 0xE6, 0xF2, 0xFF}
	windowColour = color.RGBA{0xDD, 0xF1, 0xE8, 0xFF}
)

func (o *Outlook) draw(p pen) {
	start := o.Series.Start()
	span := o.Series.End().Sub(start).Seconds()
	middle := panel{label: o.Label, lines: []line{{strategyStyle(0, 1), o.stairs(o.Series, span)}}}
	all := middle
	if o.Low != nil {
		all.lines = append(all.lines, line{points: o.stairs(o.Low, span)}, line{points: o.stairs(o.High, span)})
	}
	x := axis{max: span, ticks: timeTicks(start, span), label: "Time (UTC)"}
	y := all.axis()
	under := 1
	for _, t := range x.ticks {
		under = max(under, len(t.lines))
	}
	margin := p.margin([]axis{y})
	area := draw.Crop(p.Canvas, margin, -3*padding, tickLength+vg.Length(under+1)*lineHeight+padding, 0).Rectangle
	area.Max.Y -= fontSize
	p.text(area.Min.X, area.Max.Y, 0, p.fitted(o.Title, area.Size().X))
	area.Max.Y = o.legend(p, area) - padding
	f := frame{pen: p, Rectangle: area, x: x, y: y, margin: margin}
	o.shade(&f, start, span)
	f.grid()
	f.axes(o.Label...)
	f.lines(middle.lines)
	f.below(under)
}

func (o *Outlook) stairs(s *grid.Series, span float64) []xy {
	levels := make([]level, s.Len())
	for i := range levels {
		levels[i] = level{float64(i) * s.Step().Seconds(), s.Value(i)}
	}
	return staircase(levels, span, resolution(1))
}

func (o *Outlook) legend(p pen, area vg.Rectangle) vg.Length {
	wide := func(c color.Color) draw.LineStyle { return draw.LineStyle{Color: c, Width: fontSize * 0.8} }
	keys := []key{{name: "forecast", style: strategyStyle(0, 1)}}
	if o.Low != nil {
		keys = append(keys, key{name: o.Band, style: wide(bandColour)})
	}
	if o.windowed() {
		length := o.Window.End.Sub(o.Window.Start)
		name := fmt.Sprintf("cheapest %s, from %s", plainly(length), o.Window.Start.UTC().Format("2 Jan 15:04"))
		keys = append(keys, key{name: name, style: wide(windowColour)})
	}
	return p.legend(area, keys)
}

func (o *Outlook) windowed() bool { return o.Window.End.After(o.Window.Start) }

// shade fills the window, and between the percentiles.
func (o *Outlook) shade(f *frame, start time.Time, span float64) {
	if o.windowed() {
		from := max(0, o.Window.Start.Sub(start).Seconds())
		to := min(span, o.Window.End.Sub(start).Seconds())
		f.fill(windowColour, []xy{{from, f.y.min}, {from, f.y.max}, {to, f.y.max}, {to, f.y.min}})
	}
	if o.Low != nil {
		outline := o.stairs(o.High, span)
		for _, v := range slices.Backward(o.stairs(o.Low, span)) {
			outline = append(outline, v)
		}
		f.fill(bandColour, outline)
	}
}

// fill fills a polygon of values.
func (f *frame) fill(c color.Color, outline []xy) {
	points := make([]vg.Point, len(outline))
	for i, v := range outline {
		points[i] = f.at(v)
	}
	f.FillPolygon(c, points)
}

// plainly shows a duration without what is zero.
func plainly(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", int(d.Hours()))
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return span(d.Seconds())
}
