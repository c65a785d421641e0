package report

import (
	"fmt"
	"html"
	"image/color"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// heatmap contains a value for each row, such as a node, and each time slot.
type heatmap struct {
	title string
	what  string // the kind of the rows
	rows  []heatRow
	slot  float64 // in seconds
}

type heatRow struct {
	name  string
	cells []heat
}

// heat is the value of a cell. A line is drawn through marked cells.
type heat struct {
	value  float64
	marked bool
}

// shades is ColorBrewer's YlGnBu. Each shade is darker than the one before, so that people with any kind of color
// vision, and readers of a gray print, can distinguish them.
var shades = [...]color.RGBA{
	{0xFF, 0xFF, 0xD9, 0xFF},
	{0xED, 0xF8, 0xB1, 0xFF},
	{0xC7, 0xE9, 0xB4, 0xFF},
	{0x7F, 0xCD, 0xBB, 0xFF},
	{0x41, 0xB6, 0xC4, 0xFF},
	{0x1D, 0x91, 0xC0, 0xFF},
	{0x22, 0x5E, 0xA8, 0xFF},
	{0x25, 0x34, 0x94, 0xFF},
	{0x08, 0x1D, 0x58, 0xFF},
}

// markStyle is the style of the line through marked cells.
var markStyle = draw.LineStyle{Color: color.Gray{Y: 0x80}, Width: 0.8}

// scale returns the width of one shade if the darkest shade has to include the maximum value.
func scale(most float64) float64 {
	step := most / float64(len(shades))
	if !(step >= 1e-290 && step <= 1e300) { // zero, or not a number that can be drawn
		return 1
	}
	return roundUp(step, 0, 1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8)
}

// heatFigure draws maps over one time span with one scale, in columns that are filled one after the other. mark is
// the meaning of a line through a cell.
func heatFigure(title, mark string, start time.Time, span float64, columns int, maps []heatmap) figure {
	most, marked, rows := 0.0, false, 0
	for _, m := range maps {
		rows = max(rows, len(m.rows))
		for _, row := range m.rows {
			for _, c := range row.cells {
				most, marked = max(most, c.value), marked || c.marked
			}
		}
	}
	step := scale(most)
	plots := sliceutil.Map(maps, func(m heatmap) *plot.Plot { return m.plot(step, span, columns) })
	keys := make([]key, 0, len(shades)+1)
	for i, shade := range shades {
		name := fmt.Sprintf("%.4g–%.4g", step*float64(i), step*float64(i+1))
		keys = append(keys, key{name, &plotter.Polygon{Color: shade}})
	}
	if marked {
		keys = append(keys, key{mark, &plotter.Line{LineStyle: markStyle}})
	}
	return panelFigure(title, keys, rows, panels(start, span, columns, plots))
}

// panelFigure returns a figure of panels with at most the given number of rows each.
func panelFigure(title string, keys []key, rows int, plots [][]*plot.Plot) figure {
	height := 100 + vg.Length(len(plots))*(40+rowHeight(rows)*vg.Length(rows))
	return figure{figureWidth, height, [][]key{{{name: title}}, keys}, plots}
}

// rowHeight returns the height of a row in points. If there are few rows, they are higher to leave space for the
// axis label.
func rowHeight(rows int) vg.Length {
	n := vg.Length(max(1, rows))
	return max(6.5, 70/n, min(20, 260/n))
}

// panels arranges plots over one time span in columns.
func panels(start time.Time, span float64, columns int, plots []*plot.Plot) [][]*plot.Plot {
	rows := make([][]*plot.Plot, (len(plots)+columns-1)/columns)
	for first := 0; first < len(plots); first += len(rows) {
		for i, row := range overTime(start, span, plots[first:min(first+len(rows), len(plots))]...) {
			rows[i] = append(rows[i], row...)
		}
	}
	for i := range rows {
		for len(rows[i]) < len(rows[0]) {
			rows[i] = append(rows[i], nil)
		}
	}
	return rows
}

// plot draws each row as bars. Adjacent cells with the same shade form one bar.
func (m *heatmap) plot(step, span float64, columns int) *plot.Plot {
	areas, marks := make([][]plotter.XYs, len(shades)), strokes{LineStyle: markStyle}
	shade := func(h heat) int { return min(len(shades)-1, max(0, int(h.value/step))) }
	names := make([]string, len(m.rows))
	for y, row := range m.rows {
		names[y] = row.name
		middle := -float64(y)
		for from := 0; from < len(row.cells); {
			first, to := row.cells[from], from+1
			for to < len(row.cells) && row.cells[to].marked == first.marked && shade(row.cells[to]) == shade(first) {
				to++
			}
			left, right := float64(from)*m.slot, min(span, float64(to)*m.slot)
			areas[shade(first)] = append(areas[shade(first)], box(left, right, middle, 0.46))
			if first.marked {
				marks.XYs = append(marks.XYs, plotter.XY{X: left, Y: middle}, plotter.XY{X: right, Y: middle})
			}
			from = to
		}
	}
	p := rowPlot(m.title, m.what, names, columns)
	for i, rings := range areas {
		p.Add(&plotter.Polygon{XYs: rings, Color: shades[i]})
	}
	p.Add(marks)
	return p
}

// rowPlot returns a plot of rows over time for one of several columns. The first row is at the top, and each row
// has a height of 1. If the rows are low, their names are smaller. If there is no space for all names, only some
// are shown, and every row has its name under the pointer.
func rowPlot(title, what string, names []string, columns int) *plot.Plot {
	p := newPlot("Time (UTC)", what, draw.LineStyle{})
	p.Title.Text = fitted(title, figureWidth/vg.Length(columns)-longestName/2)
	p.Y.Min, p.Y.Max, p.Y.AutoRescale, p.Y.Tick.Length = 0.5-float64(len(names)), 0.5, false, 2
	const smallest, line = 6.5, vg.Length(lineHeight) / fontSize
	size := min(fontSize, max(smallest, rowHeight(len(names))/line))
	p.Y.Tick.Label.Font.Size = size
	every := max(1, int(math.Ceil(float64(size*line/rowHeight(len(names))-1e-9))))
	if every > 1 {
		p.Add(rowNames(names))
	}
	var ticks plot.ConstantTicks
	for i := 0; i < len(names); i += every {
		label := fitted(names[i], (longestName/vg.Length(columns)+padding)*fontSize/size)
		ticks = append(ticks, plot.Tick{Value: -float64(i), Label: label})
	}
	p.Y.Tick.Marker = ticks
	return p
}

// rowNames shows the name of the row under the pointer, in SVG only.
type rowNames []string

// Plot implements [plot.Plotter].
func (names rowNames) Plot(c draw.Canvas, p *plot.Plot) {
	on := c.Canvas
	// plots in a grid have nested canvases
	for within, ok := on.(draw.Canvas); ok; within, ok = on.(draw.Canvas) {
		on = within.Canvas
	}
	svg, ok := on.(*titledCanvas)
	if !ok {
		return
	}
	_, y := p.Transforms(&c)
	for i, name := range names {
		low, high := y(-float64(i)-0.5), y(-float64(i)+0.5)
		fmt.Fprintf(&svg.titles, `<rect x="%.0f" y="%.1f" width="%.0f" height="%.1f"><title>%s</title></rect>`+"\n",
			c.Min.X.Points(), low.Points(), c.Size().X.Points(), (high - low).Points(), html.EscapeString(name))
	}
}

// box returns the outline of an area between two times around a middle height.
func box(left, right, middle, half float64) plotter.XYs {
	return plotter.XYs{
		{X: left, Y: middle - half},
		{X: right, Y: middle - half},
		{X: right, Y: middle + half},
		{X: left, Y: middle + half},
	}
}

// strokes draws lines between pairs of points.
type strokes struct {
	plotter.XYs
	draw.LineStyle
}

// Plot implements [plot.Plotter].
func (s strokes) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var path vg.Path
	for i, v := range s.XYs {
		if at := (vg.Point{X: x(v.X), Y: y(v.Y)}); i%2 == 0 {
			path.Move(at)
		} else {
			path.Line(at)
		}
	}
	c.SetLineStyle(s.LineStyle)
	c.Stroke(path)
}
