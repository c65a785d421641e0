package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// sweepFigure is a figure of a comparison, with what stands under it.
type sweepFigure struct {
	name, caption string
	figure
}

// figures prepares what there is to draw.
func (s *Sweep) figures() ([]sweepFigure, error) {
	if len(s.Strategies) == 0 {
		return nil, errors.New("there are no strategies to draw")
	}
	for i := range s.Strategies {
		r := &s.Strategies[i]
		for _, v := range []float64{r.Grams, r.Cost, r.EnergyKWh, r.Saving.Value, r.MeanWaitHours} {
			if !finite(v) {
				return nil, fmt.Errorf("%s: a figure is %v", s.label(r), v)
			}
		}
	}
	all := []sweepFigure{
		{"strategies", "Emissions, turnaround and cost with emissions priced, by strategy.", s.barsFigure()},
		{
			"pareto",
			"What is saved against how long jobs wait: the best is at the upper left. Bars: 95 % interval over starts.",
			s.paretoFigure(),
		},
		{"zones", "Savings by zone, with intervals of 95 %; grey lines: the clairvoyant optima.", s.zonesFigure()},
		{"nodes", "Energy by type of node.", s.nodesFigure()},
	}
	if len(s.days) > 0 {
		t := &s.days[0]
		caption := fmt.Sprintf(
			"The carbon intensity of a day in %s, and the cores that the jobs of every strategy keep busy.", t.Zone)
		all = append(all, sweepFigure{"day", caption, s.dayFigure()})
	}
	return all, nil
}

// png draws the figure for a paper: three dots for each point of a printed page.
func (f *figure) png() ([]byte, error) {
	const dotsPerInch = 216
	canvas := vgimg.NewWith(vgimg.UseWH(f.width, f.height), vgimg.UseDPI(dotsPerInch))
	f.draw(newPen(draw.New(canvas)))
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// label names a row as briefly as tells it apart.
func (s *Sweep) label(r *SweepRow) string {
	label := r.Strategy
	if r.Forecast != "" && slices.ContainsFunc(s.Strategies, func(o SweepRow) bool {
		return o.Forecast != "" &&
			o.Forecast != r.Forecast
	}) {
		label += " " + r.Forecast
	}
	if slices.ContainsFunc(s.Strategies, func(o SweepRow) bool {
		return o.Strategy == r.Strategy && o.Forecast == r.Forecast && o.RestartCost != r.RestartCost
	}) {
		label += fmt.Sprintf(" %g min", r.RestartCost.Minutes())
	}
	return label
}

func (s *Sweep) labels() []string {
	names := make([]string, len(s.Strategies))
	for i := range names {
		names[i] = s.label(&s.Strategies[i])
	}
	return names
}

func (s *Sweep) barsFigure() figure {
	rows := make([]*SweepRow, len(s.Strategies))
	for i := range rows {
		rows[i] = &s.Strategies[i]
	}
	charts := []chart{
		{"Emissions, estimated (kgCO2e)", each(rows, func(r *SweepRow) float64 { return r.Grams / 1000 })},
		{"Mean turnaround (h)", each(rows, func(r *SweepRow) float64 { return r.TurnaroundHours })},
	}
	if s.CarbonPrice > 0 {
		label := fmt.Sprintf("Cost, emissions at %g a tonne included", s.CarbonPrice)
		charts = append(charts, chart{label, each(rows, func(r *SweepRow) float64 { return *r.AdjustedCost })})
	}
	const margin, least = 75, 18 // points: of a vertical axis, and of a bar whose name and figure are turned
	width := max(figureWidth, vg.Length(len(charts)*(margin+least*len(rows))))
	return figure{width, 5 * vg.Inch, func(p pen) { p.bars(charts, s.labels()) }}
}

// mark is how a row is drawn as a point: its colour is the strategy's, its shape the forecast's.
type mark struct {
	name string
	draw.GlyphStyle
}

func newMark(name string, colour, shape int) mark {
	return mark{name, draw.GlyphStyle{
		Color: palette[colour%len(palette)], Radius: 3.4, Shape: shapes[shape%len(shapes)],
	}}
}

var shapes = [...]draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, diamond{}}

// diamond is a square that stands on a corner.
type diamond struct{}

// DrawGlyph implements [draw.GlyphDrawer].
func (diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := 1.25 * style.Radius
	c.FillPolygon(style.Color, []vg.Point{
		{X: at.X, Y: at.Y + r}, {X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y - r}, {X: at.X + r, Y: at.Y},
	})
}

// marked returns the rows that are drawn as points, all but the baseline, each with its mark.
func (s *Sweep) marked() (rows []*SweepRow, marks []mark) {
	var strategies, forecasts []string
	number := func(of *[]string, name string) int {
		if i := slices.Index(*of, name); i >= 0 {
			return i
		}
		*of = append(*of, name)
		return len(*of) - 1
	}
	for i := range s.Strategies {
		r := &s.Strategies[i]
		if r.Strategy == s.Baseline {
			continue
		}
		k := number(&strategies, fmt.Sprint(r.Strategy, r.RestartCost))
		shape := k / len(palette)
		if r.Forecast != "" {
			shape += number(&forecasts, r.Forecast)
		}
		rows, marks = append(rows, r), append(marks, newMark(s.label(r), k, shape))
	}
	return rows, marks
}

// span draws an interval as a vertical line.
func (f *frame) span(m mark, x vg.Length, i Interval, scale float64) {
	if i.Low == nil {
		return
	}
	low, high := f.at(xy{0, scale * *i.Low}).Y, f.at(xy{0, scale * *i.High}).Y
	f.StrokeLine2(draw.LineStyle{Color: m.Color, Width: 0.9}, x, low, x, high)
}

// plane prepares a frame under a legend, with room for so many lines below.
func (p pen) plane(x, y axis, marks []mark, below vg.Length) frame {
	margin := p.margin([]axis{y})
	area := draw.Crop(p.Canvas, margin, -3*padding, below, 0).Rectangle
	keys := make([]key, len(marks))
	for i, m := range marks {
		keys[i] = key{name: m.name, mark: m.GlyphStyle}
	}
	area.Max.Y = p.legend(area, keys) - padding
	return frame{pen: p, Rectangle: area, x: x, y: y, margin: margin}
}

const hundred = 100 // percent

// bounds are those of a saving in percent, its interval included.
func (i *Interval) bounds() (low, high float64) {
	if i.Low == nil {
		return hundred * i.Value, hundred * i.Value
	}
	return hundred * min(*i.Low, i.Value), hundred * max(*i.High, i.Value)
}

func (s *Sweep) paretoFigure() figure {
	rows, marks := s.marked()
	var low, high, longest float64
	for _, r := range rows {
		l, h := r.Saving.bounds()
		low, high, longest = min(low, l), max(high, h), max(longest, r.MeanWaitHours)
	}
	x := numberAxis(0, longest, 9)
	x.label = "Mean time without running between submission and finish (h)"
	y := numberAxis(low, high, 6)
	return figure{figureWidth, 5.5 * vg.Inch, func(p pen) {
		f := p.plane(x, y, marks, tickLength+2*lineHeight+padding)
		f.grid()
		f.axes("Emissions saved,", "estimated (%)")
		for i, r := range rows {
			at := f.at(xy{r.MeanWaitHours, hundred * r.Saving.Value})
			f.span(marks[i], at.X, r.Saving, hundred)
			f.DrawGlyph(marks[i].GlyphStyle, at)
		}
		f.below(1)
	}}
}

func (s *Sweep) zonesFigure() figure {
	rows, marks := s.marked()
	var low, high float64
	for _, r := range rows {
		for k := range r.ByZone {
			z := &r.ByZone[k]
			l, h := z.Saving.bounds()
			low, high = min(low, l), max(high, h)
			if z.OptimumSaving != nil {
				high = max(high, hundred**z.OptimumSaving)
			}
		}
	}
	y := numberAxis(low, high, 6)
	width := max(figureWidth, vg.Length(len(s.Zones))*(vg.Length(len(rows))*7+12)+100)
	return figure{width, 5.5 * vg.Inch, func(p pen) {
		slot := (p.Size().X - p.margin([]axis{y}) - 3*padding) / vg.Length(len(s.Zones))
		names, height := p.names(s.Zones, slot)
		f := p.plane(axis{max: float64(len(s.Zones))}, y, marks, height)
		f.grid()
		f.axes("Emissions saved,", "estimated (%)")
		for k, write := range names {
			f.zone(rows, marks, k, slot)
			write(f.Min.X+(vg.Length(k)+0.5)*slot, f.Min.Y-tickLength)
		}
	}}
}

// zone draws the savings of all rows in one zone, beside each other.
func (f *frame) zone(rows []*SweepRow, marks []mark, k int, slot vg.Length) {
	left, step := f.Min.X+vg.Length(k)*slot, slot*0.86/vg.Length(max(1, len(rows)))
	for i, r := range rows {
		z := &r.ByZone[k]
		x := left + 0.07*slot + (vg.Length(i)+0.5)*step
		if z.OptimumSaving != nil {
			y := f.at(xy{0, hundred * *z.OptimumSaving}).Y
			f.StrokeLine2(draw.LineStyle{Color: color.Gray{Y: 0xA0}, Width: 1.2}, x-step/2, y, x+step/2, y)
		}
		f.span(marks[i], x, z.Saving, hundred)
		f.DrawGlyph(marks[i].GlyphStyle, vg.Point{X: x, Y: f.at(xy{0, hundred * z.Saving.Value}).Y})
	}
}

// nodesFigure stacks the energy of the types of nodes.
func (s *Sweep) nodesFigure() figure {
	var types []string
	highest := 0.0
	for i := range s.Strategies {
		var sum float64
		for name, kWh := range s.Strategies[i].NodeEnergy {
			sum += kWh
			if !slices.Contains(types, name) {
				types = append(types, name)
			}
		}
		highest = max(highest, sum)
	}
	slices.Sort(types)
	marks := make([]mark, len(types))
	for i, name := range types {
		marks[i] = newMark(name, i, 1)
	}
	y := numberAxis(0, highest, 6)
	const least = 18 // points of a bar whose name is turned
	width := max(figureWidth, vg.Length(100+least*len(s.Strategies)))
	return figure{width, 5 * vg.Inch, func(p pen) {
		slot := (p.Size().X - p.margin([]axis{y}) - 3*padding) / vg.Length(len(s.Strategies))
		names, height := p.names(s.labels(), slot)
		f := p.plane(axis{max: 1}, y, marks, height)
		f.grid()
		for k, write := range names {
			middle, base := f.Min.X+(vg.Length(k)+0.5)*slot, 0.0
			for i, name := range types {
				top := base + s.Strategies[k].NodeEnergy[name]
				lower, upper, half := f.at(xy{0, base}).Y, f.at(xy{0, top}).Y, 0.34*slot
				f.FillPolygon(marks[i].Color, []vg.Point{
					{X: middle - half, Y: lower},
					{X: middle - half, Y: upper},
					{X: middle + half, Y: upper},
					{X: middle + half, Y: lower},
				})
				base = top
			}
			write(middle, f.Min.Y-tickLength)
		}
		f.axes("Energy, estimated (kWh)")
	}}
}

// dayFigure draws one day's carbon intensity over the cores that jobs keep busy.
func (s *Sweep) dayFigure() figure {
	days := slices.Clone(s.days)
	rank := func(t Trial) int {
		return slices.IndexFunc(s.Strategies, func(r SweepRow) bool {
			return r.Strategy == t.Strategy && r.Forecast == t.Forecast && r.RestartCost == t.RestartCost
		})
	}
	slices.SortStableFunc(days, func(a, b Trial) int { return cmp.Compare(rank(a), rank(b)) })
	first := days[0].Day
	// one day, in one zone
	days = slices.DeleteFunc(days, func(t Trial) bool {
		return t.Zone != days[0].Zone ||
			!t.Day.Start.Equal(first.Start)
	})
	span := first.Step.Seconds() * float64(len(first.Intensity))
	stairs := func(values []float64) []xy {
		levels := make([]level, len(values))
		for i, v := range values {
			levels[i] = level{float64(i) * first.Step.Seconds(), v}
		}
		return staircase(levels, span, math.MaxInt32)
	}
	carbon := panel{
		label: []string{"Carbon intensity", "(gCO2e/kWh)"}, lines: []line{{siteStyle(0), stairs(first.Intensity)}},
	}
	cores := panel{label: []string{"Busy cores"}}
	var keys []key
	for i := range days {
		style := strategyStyle(i, len(days))
		cores.lines = append(cores.lines, line{style, stairs(days[i].Day.Cores)})
		keys = append(keys, key{name: strings.TrimSpace(days[i].Strategy + " " + days[i].Forecast), style: style})
	}
	x := axis{max: span, ticks: timeTicks(first.Start, span), label: "Time (UTC)"}
	grid := []key{{name: "grid " + days[0].Zone, style: siteStyle(0)}}
	return figure{figureWidth, 6 * vg.Inch, func(p pen) { p.stack([]panel{carbon, cores}, x, keys, grid) }}
}
