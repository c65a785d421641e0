package report

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// figures returns all figures of the comparison.
func (s *Sweep) figures() []namedFigure {
	bars := "Emissions and turnaround"
	if s.CarbonPrice > 0 {
		bars = "Emissions, turnaround and cost with carbon"
	}
	all := []namedFigure{
		{"strategies", bars + " by strategy, means over the trials.", s.barsFigure()},
		{
			"pareto",
			"Savings versus wait time of jobs. The best strategies are at the upper left. Bars: 95 % interval over " +
				s.Varied + ".",
			s.paretoFigure(),
		},
		{"zones", "Savings by zone with 95 % intervals. Gray lines: the clairvoyant optima.", s.zonesFigure()},
		{"nodes", "Energy by type of node, means over the trials.", s.nodesFigure()},
	}
	if len(s.days) > 0 {
		t := &s.days[0]
		caption := fmt.Sprintf(
			"Carbon intensity of a day in %s, and the number of cores that the jobs of each strategy use.", t.Zone)
		all = append(all, namedFigure{"day", caption, s.dayFigure()})
	}
	return all
}

// label returns the shortest unambiguous name of a row.
func (s *Sweep) label(r SweepRow) string {
	label := r.Strategy
	if r.Forecast != "" && slices.ContainsFunc(s.Strategies, func(o SweepRow) bool {
		return o.Forecast != "" && o.Forecast != r.Forecast
	}) {
		label += " " + r.Forecast
	}
	if slices.ContainsFunc(s.Strategies, func(o SweepRow) bool {
		return o.Strategy == r.Strategy && o.Forecast == r.Forecast && o.RestartCost != r.RestartCost
	}) {
		label += fmt.Sprintf(" %g min", r.RestartCost.Minutes())
	}
	if r.StayOn {
		label += ", stay on"
	}
	return label
}

func (s *Sweep) barsFigure() figure {
	grams := func(r SweepRow) float64 { return r.mean(r.Grams / 1000) }
	charts := []chart{
		{"Emissions, estimated (kgCO2e)", sliceutil.Map(s.Strategies, grams)},
		{"Mean turnaround (h)", sliceutil.Map(s.Strategies, func(r SweepRow) float64 { return r.TurnaroundHours })},
	}
	if s.CarbonPrice > 0 {
		label := fmt.Sprintf(adjustedLabel, s.CarbonPrice)
		adjusted := func(r SweepRow) float64 { return r.mean(*r.AdjustedCost) }
		charts = append(charts, chart{label, sliceutil.Map(s.Strategies, adjusted)})
	}
	return barCharts(charts, sliceutil.Map(s.Strategies, s.label), s.colours())
}

var shapes = [...]draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}}

// colours returns the color of each row. A strategy has the same color in all figures. Further forecasts and
// restart costs of a strategy have paler colors. If there are more strategies than colors in the Palette, the
// colors are reused in darker shades.
func (s *Sweep) colours() []color.Color {
	variants := map[string]int{}
	for i := range s.Strategies {
		variants[s.Strategies[i].Strategy]++
	}
	numbers, seen := map[string]int{}, map[string]int{}
	return sliceutil.Map(s.Strategies, func(r SweepRow) color.Color {
		name := r.Strategy
		if _, ok := numbers[name]; !ok {
			numbers[name] = len(numbers)
		}
		round := numbers[name] / len(Palette)
		c := blend(Palette[numbers[name]%len(Palette)], 0x00, min(0.8, 0.4*float64(round)))
		c = blend(c, 0xFF, 0.65*float64(seen[name])/float64(variants[name]))
		seen[name]++
		return c
	})
}

// blend moves a color by a fraction of the way to a gray.
func blend(c color.RGBA, grey uint8, share float64) color.RGBA {
	for _, v := range []*uint8{&c.R, &c.G, &c.B} {
		*v = uint8(math.Round(float64(*v) + share*(float64(grey)-float64(*v))))
	}
	return c
}

// marked returns the rows that are drawn as points, which are all but the baseline, with their styles. The shape of
// a point identifies the forecast.
func (s *Sweep) marked() (rows []*SweepRow, keys []key, styles []draw.GlyphStyle) {
	var forecasts []string
	colours := s.colours()
	for i := range s.Strategies {
		r := &s.Strategies[i]
		if r.Strategy == s.Baseline {
			continue
		}
		shape := 0
		if r.Forecast != "" {
			if shape = slices.Index(forecasts, r.Forecast); shape < 0 {
				shape, forecasts = len(forecasts), append(forecasts, r.Forecast)
			}
		}
		style := draw.GlyphStyle{Color: colours[i], Radius: 3.4, Shape: shapes[shape%len(shapes)]}
		rows, styles = append(rows, r), append(styles, style)
		keys = append(keys, key{s.label(*r), &plotter.Scatter{GlyphStyle: style}})
	}
	return rows, keys, styles
}

// addSaving draws a saving as a point, and its interval as a vertical line.
func addSaving(p *plot.Plot, x float64, saving *Interval, style draw.GlyphStyle) {
	percent := func(share float64) plotter.XY { return plotter.XY{X: x, Y: 100 * share} }
	if saving.Low != nil {
		addLine(p, draw.LineStyle{Color: style.Color, Width: 0.9},
			plotter.XYs{percent(*saving.Low), percent(*saving.High)})
	}
	p.Add(&plotter.Scatter{XYs: plotter.XYs{percent(saving.Value)}, GlyphStyle: style})
}

const savedLabel = "Emissions saved,\nestimated (%)"

func (s *Sweep) paretoFigure() figure {
	rows, keys, styles := s.marked()
	p := newPlot("Mean wait between submission and finish (h)", savedLabel, faint)
	for i, r := range rows {
		addSaving(p, r.MeanWaitHours, &r.Saving, styles[i])
	}
	return figure{figureWidth, 5.5 * vg.Inch, [][]key{keys}, [][]*plot.Plot{{p}}}
}

// zonesFigure draws the savings of all rows in each zone next to each other.
func (s *Sweep) zonesFigure() figure {
	rows, keys, styles := s.marked()
	width := max(figureWidth, vg.Length(len(s.Zones))*(vg.Length(len(rows))*7+12)+100)
	p := newPlot("", savedLabel, draw.LineStyle{})
	step := 0.86 / float64(max(1, len(rows))) // as a fraction of the width of a zone
	for i, r := range rows {
		for k := range r.ByZone {
			z, x := &r.ByZone[k], float64(k)-0.43+(float64(i)+0.5)*step
			if z.OptimumSaving != nil {
				optimum := 100 * *z.OptimumSaving
				addLine(p, draw.LineStyle{Color: color.Gray{Y: 0xA0}, Width: 1.2},
					plotter.XYs{{X: x - step/2, Y: optimum}, {X: x + step/2, Y: optimum}})
			}
			addSaving(p, x, &z.Saving, styles[i])
		}
	}
	nameBars(p, (width-100)/vg.Length(len(s.Zones)), s.Zones)
	return figure{width, 5.5 * vg.Inch, [][]key{keys}, [][]*plot.Plot{{p}}}
}

// nodesFigure stacks the energy of the types of nodes.
func (s *Sweep) nodesFigure() figure {
	types := map[string]float64{}
	for i := range s.Strategies {
		maps.Copy(types, s.Strategies[i].NodeEnergy)
	}
	labels := sliceutil.Map(s.Strategies, s.label)
	f, slot := figureOfBars(1, labels)
	p := newPlot("", "Energy, estimated (kWh)", draw.LineStyle{})
	var keys []key
	var below *plotter.BarChart
	for i, name := range slices.Sorted(maps.Keys(types)) {
		chart := &plotter.BarChart{Width: 0.68 * slot, Color: Palette[i%len(Palette)]}
		chart.Values = sliceutil.Map(s.Strategies, func(r SweepRow) float64 { return r.mean(r.NodeEnergy[name]) })
		if below != nil {
			chart.StackOn(below)
		}
		below = chart
		p.Add(chart)
		keys = append(keys, key{name, chart})
	}
	nameBars(p, slot, labels)
	f.keys, f.plots[0] = [][]key{keys}, []*plot.Plot{p}
	return f
}

// dayFigure draws the carbon intensity of one day above the number of cores that jobs keep busy.
func (s *Sweep) dayFigure() figure {
	days := slices.Clone(s.days)
	rank := func(t Trial) int {
		return slices.IndexFunc(s.Strategies, func(r SweepRow) bool { return r.Variant == t.Variant })
	}
	slices.SortStableFunc(days, func(a, b Trial) int { return cmp.Compare(rank(a), rank(b)) })
	zone, first := days[0].Zone, days[0].Day
	// The figure shows one day in one zone.
	days = slices.DeleteFunc(days, func(t Trial) bool { return t.Zone != zone || !t.Day.Start.Equal(first.Start) })
	span := first.Step.Seconds() * float64(len(first.Intensity))
	stairs := func(values []float64) plotter.XYs {
		levels := make([]level, len(values))
		for i, v := range values {
			levels[i] = level{float64(i) * first.Step.Seconds(), v}
		}
		return staircase(levels, span, math.MaxInt32)
	}
	carbon := newPlot("", "Carbon intensity\n(gCO2e/kWh)", faint)
	cores := newPlot("Time (UTC)", "Busy cores", faint)
	grid := []key{{"grid " + zone, addLine(carbon, siteStyle(0), stairs(first.Intensity))}}
	var keys []key
	colours := s.colours()
	for i := range days {
		style := strategyStyle(i, len(days))
		style.Color = colours[rank(days[i])]
		line := addLine(cores, style, stairs(days[i].Day.Cores))
		keys = append(keys, key{strings.TrimSpace(days[i].Strategy + " " + days[i].Forecast), line})
	}
	return figure{figureWidth, 6 * vg.Inch, [][]key{keys, grid}, overTime(first.Start, span, carbon, cores)}
}
