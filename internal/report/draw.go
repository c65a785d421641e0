package report

import (
	"bytes"
	"image/color"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

const (
	figureWidth = 9 * vg.Inch
	fontSize    = 11 // in points, like all lengths below
	lineHeight  = 13
	padding     = 10 // between the edge of a figure and its contents
	longestName = 150
)

// lettering is the style of all texts.
var lettering = text.Style{
	Color: color.Black, Handler: plot.DefaultTextHandler,
	Font: font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: fontSize},
}

// figure is a grid of plots below the rows of their legends.
type figure struct {
	width, height vg.Length
	keys          [][]key
	plots         [][]*plot.Plot
}

// namedFigure is a figure with the base name of its files and its caption on a page.
type namedFigure struct {
	name, caption string
	figure
}

// drawAll adds the SVG and PNG files of figures to files.
func drawAll(figures []namedFigure, files map[string][]byte) {
	for _, f := range figures {
		files[f.name+".svg"], files[f.name+".png"] = f.svg(), f.png()
	}
}

// key is an entry of a legend. If sample is nil, the key is a title of the figure.
type key struct {
	name   string
	sample plot.Thumbnailer
}

func (f *figure) svg() []byte {
	canvas := &titledCanvas{Canvas: vgsvg.New(f.width, f.height)}
	f.draw(canvas)
	var b bytes.Buffer
	_, _ = canvas.WriteTo(&b) // a bytes.Buffer never fails
	drawn := b.Bytes()
	if end := []byte("</g>\n</svg>\n"); canvas.titles.Len() > 0 && bytes.HasSuffix(drawn, end) {
		drawn = slices.Concat(bytes.TrimSuffix(drawn, end), []byte(`<g fill="none" pointer-events="all">`),
			canvas.titles.Bytes(), []byte("</g>"), end)
	}
	// Texts are measured in Liberation Sans, which few systems except Linux have. Arial has exactly the same
	// widths. Without a fallback, viewers would use a serif font.
	return bytes.ReplaceAll(drawn, []byte("font-family:Liberation Sans;"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
}

// titledCanvas is an SVG canvas with invisible areas on top that show titles under the pointer.
type titledCanvas struct {
	*vgsvg.Canvas
	titles bytes.Buffer
}

// png draws the figure for print, with three pixels per point.
func (f *figure) png() []byte {
	const dotsPerInch = 216
	canvas := vgimg.NewWith(vgimg.UseWH(f.width, f.height), vgimg.UseDPI(dotsPerInch))
	f.draw(canvas)
	var b bytes.Buffer
	_, _ = vgimg.PngCanvas{Canvas: canvas}.WriteTo(&b) // a bytes.Buffer never fails
	return b.Bytes()
}

func (f *figure) draw(on vg.CanvasSizer) {
	c := draw.New(on)
	c.SetColor(color.White)
	c.Fill(c.Path()) // without a background, texts would be black on black in dark viewers
	c = draw.Crop(c, padding, -padding, padding, -padding)
	for _, row := range f.keys {
		c.Max.Y = legend(c, row)
	}
	c.Max.Y -= padding
	for _, p := range slices.Concat(f.plots...) {
		if p == nil {
			continue
		}
		for _, axis := range []*plot.Axis{&p.X, &p.Y} {
			if axis.Min == axis.Max {
				axis.Max++
			}
		}
	}
	tiles := draw.Tiles{Rows: len(f.plots), Cols: len(f.plots[0]), PadX: padding, PadY: padding}
	for i, row := range plot.Align(f.plots, tiles, c) {
		for k, at := range row {
			if p := f.plots[i][k]; p != nil {
				p.Draw(at)
			}
		}
	}
}

// legend draws keys from the top of a canvas downwards, in as many rows as they need. It returns the lower edge of
// the last row.
func legend(c draw.Canvas, keys []key) vg.Length {
	const space = 5
	x, y := c.Min.X, c.Max.Y
	for i, k := range keys {
		sample := vg.Length(22)
		if k.sample == nil {
			sample = -space
		}
		name := fitted(k.name, c.Size().X-sample-space)
		width := sample + space + lettering.Width(name)
		if i == 0 || x+width > c.Max.X {
			x, y = c.Min.X, y-lineHeight-2
		}
		at := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y}, Max: vg.Point{X: x + sample, Y: y + fontSize},
		}}
		if k.sample != nil {
			k.sample.Thumbnail(&at)
		}
		c.FillText(lettering, vg.Point{X: x + sample + space, Y: y}, name)
		x += width + 2*padding
	}
	return y
}

// fitted returns s, shortened in the middle if it is wider than width.
func fitted(s string, width vg.Length) string {
	runes := []rune(s)
	for n := len(runes) - 1; n > 0 && lettering.Width(s) > width; n-- {
		s = string(runes[:(n+1)/2]) + "…" + string(runes[len(runes)-n/2:])
	}
	return s
}

var (
	faint  = draw.LineStyle{Color: color.Gray{Y: 0xE4}, Width: 0.6}
	strong = draw.LineStyle{Color: color.Gray{Y: 0x40}, Width: 0.8}
)

// newPlot returns a plot of values from 0 upwards. x and y are the axis labels, with the unit in the last line.
// upright is the style of the vertical grid lines.
func newPlot(x, y string, upright draw.LineStyle) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Min, axis.Max, axis.Padding, axis.LineStyle = 0, 0, 0, strong
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = lettering.Font, lettering.Font
		axis.Label.Padding, axis.Tick.Length, axis.Tick.LineStyle = 4, 4, strong
		axis.Tick.Marker, axis.AutoRescale = plot.TickerFunc(NumberTicks), true
	}
	p.X.Label.Text, p.Y.Label.Text, p.Title.TextStyle.Font = x, y, lettering.Font
	p.Add(&plotter.Grid{Vertical: upright, Horizontal: faint})
	return p
}

// NumberTicks returns ticks at about five round numbers, from the last one that is not above lo to the first one
// that is not below hi.
func NumberTicks(lo, hi float64) (ticks []plot.Tick) {
	const most, slip = 5, 1e-9 // slip is the rounding error of a quotient of two multiples
	const least, greatest = 1e-290, 1e300
	size := max(math.Abs(lo), math.Abs(hi))
	if !(hi-lo >= max(least, slip*size)) || !(size <= greatest) { // there are no distinguishable round numbers
		return []plot.Tick{{Value: lo, Label: number(lo)}}
	}
	step := roundUp((hi-lo)/most, slip, 1, 2, 5)
	decimals := max(0, -int(math.Floor(math.Log10(step)+slip)))
	for k := math.Floor(lo/step + slip); k <= math.Ceil(hi/step-slip); k++ {
		ticks = append(ticks, plot.Tick{Value: k * step, Label: strconv.FormatFloat(k*step, 'f', decimals, 64)})
	}
	return ticks
}

// wholeTicks returns ticks without fractions, for counts.
func wholeTicks(lo, hi float64) []plot.Tick { return NumberTicks(lo, max(hi, lo+5)) }

// TimeTicks returns at most nine ticks at round times of a span in seconds. The label of the first tick, and of
// each tick with a new date, has a second line with the date, or the year for long spans. For a span of more than
// 290 years, which is close to the maximum [time.Duration], it only returns ticks for the first 290 years.
func TimeTicks(start time.Time, span float64) (ticks plot.ConstantTicks) {
	const day, month = 24 * time.Hour, 30 * 24 * time.Hour
	span = min(span, (290 * 365 * day).Seconds())
	steps := []time.Duration{
		10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
		15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 7 * day, 14 * day, month, 2 * month, 3 * month, 6 * month, 12 * month, 24 * month, 60 * month,
		120 * month, 240 * month, 600 * month, 1200 * month,
	}
	const most = 8 // maximum number of intervals
	step := steps[len(steps)-1]
	if i := slices.IndexFunc(steps, func(d time.Duration) bool { return span <= most*d.Seconds() }); i >= 0 {
		step = steps[i]
	}
	small, large, at, months := "15:04", "2 Jan 2006", start.Truncate(step), 0
	switch {
	case step < time.Minute:
		small = "15:04:05"
	case step >= month:
		small, large, at = "Jan", "2006", time.Date(start.Year(), time.January, 1, 0, 0, 0, 0, time.UTC)
		step, months = 0, int(step/month)
	case step >= day:
		small, large = "2 Jan", "2006"
	}
	last := ""
	for ; at.Sub(start).Seconds() <= span; at = at.Add(step).AddDate(0, months, 0) {
		if at.Before(start) {
			continue
		}
		label := at.Format(small)
		if l := at.Format(large); l != last {
			label, last = label+"\n"+l, l
		}
		ticks = append(ticks, plot.Tick{Value: at.Sub(start).Seconds(), Label: label})
	}
	return ticks
}

// overTime stacks plots that share one time axis. Only the lowest plot has labels.
func overTime(start time.Time, span float64, plots ...*plot.Plot) (rows [][]*plot.Plot) {
	ticks := TimeTicks(start, span)
	for i, p := range plots {
		p.X.Min, p.X.Max, p.X.AutoRescale, p.X.Tick.Marker = 0, span, false, ticks
		if i < len(plots)-1 {
			bare := slices.Clone(ticks)
			for k := range bare {
				bare[k].Label = " " // an empty label would remove the grid line
			}
			p.X.Label.Text, p.X.Tick.Marker = "", bare
		}
		rows = append(rows, []*plot.Plot{p})
	}
	return rows
}

// addLine adds a line through points. The line may be empty.
func addLine(p *plot.Plot, style draw.LineStyle, points plotter.XYs) *plotter.Line {
	l := &plotter.Line{XYs: points, LineStyle: style}
	p.Add(l)
	return l
}

// chart is a bar chart with one bar for each run or strategy.
type chart struct {
	label  string
	values []float64
}

// figureOfBars returns a figure for charts next to each other, and the distance between their bars.
func figureOfBars(charts int, names []string) (f figure, slot vg.Length) {
	const margin, least = 75, 18 // widths of a vertical axis and of a bar with rotated labels, in points
	f.width, f.height = max(figureWidth, vg.Length(charts*(margin+least*len(names)))), 5*vg.Inch
	f.plots = make([][]*plot.Plot, 1)
	return f, (f.width/vg.Length(charts) - margin) / vg.Length(len(names))
}

// barCharts draws charts next to each other. Each chart has a bar for every name in its color.
func barCharts(charts []chart, names []string, colours []color.Color) figure {
	f, slot := figureOfBars(len(charts), names)
	for _, c := range charts {
		p := newPlot("", c.label, draw.LineStyle{})
		figures := sliceutil.Map(c.values, humanize.Significant)
		upright := slices.ContainsFunc(figures, func(s string) bool { return lettering.Width(s) > slot-2 })
		for i, v := range c.values {
			p.Add(&plotter.BarChart{
				Values: plotter.Values{v}, XMin: float64(i), Width: 0.68 * slot,
				Color: colours[i],
			}, &plotter.Labels{
				XYs: plotter.XYs{{X: float64(i), Y: v}}, Labels: figures[i : i+1],
				TextStyle: []text.Style{beyond(v, upright)}, Offset: vg.Point{Y: vg.Length(math.Copysign(4, v))},
			})
		}
		nameBars(p, slot, names)
		addLine(p, strong, plotter.XYs{{X: p.X.Min}, {X: p.X.Max}})
		f.plots[0] = append(f.plots[0], p)
	}
	return f
}

// beyond returns the style of the value at the end of a bar.
func beyond(v float64, upright bool) text.Style {
	s := lettering
	switch {
	case upright:
		s.Rotation, s.YAlign = math.Pi/2, draw.YCenter
		if v < 0 {
			s.XAlign = draw.XRight
		}
	case v < 0:
		s.XAlign, s.YAlign = draw.XCenter, draw.YTop
	default:
		s.XAlign = draw.XCenter
	}
	return s
}

// nameBars labels the places 0, 1, …, which are slot points apart. It turns the names if they would overlap.
func nameBars(p *plot.Plot, slot vg.Length, names []string) {
	ticks := make(plot.ConstantTicks, len(names))
	for i, name := range names {
		ticks[i] = plot.Tick{Value: float64(i), Label: fitted(name, longestName)}
		if lettering.Width(name) > slot-padding/2 {
			label := &p.X.Tick.Label
			label.Rotation, label.XAlign, label.YAlign = 0.4*math.Pi, draw.XRight, draw.YCenter
		}
	}
	p.X.Min, p.X.Max, p.X.AutoRescale = -0.5, float64(len(names))-0.5, false
	p.X.Tick.Marker, p.X.Tick.Length = ticks, 8
}
