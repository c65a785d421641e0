package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// plots returns the figures that compare runs. The same results give the same bytes.
func plots(results []*sim.Result) []namedFigure {
	return []namedFigure{
		{name: "timeline", figure: timelineFigure(results)},
		{name: "bars", figure: barsFigure(results)},
		{name: "waits", figure: waitsFigure(results)},
		{name: "nodes", figure: nodesFigure(results)},
		{name: "holds", figure: holdsFigure(results)},
	}
}

// timelineFigure stacks power, the carbon intensity of the grids, and the number of running jobs over one time
// axis.
func timelineFigure(results []*sim.Result) figure {
	start, end := period(results)
	span := end.Sub(start).Seconds()
	sites := results[0].Scenario.Sites
	most := resolution(2*len(results) + len(sites))
	power := newPlot("", "Facility power,\nestimated (kW)", faint)
	carbon := newPlot("", "Carbon intensity\n(gCO2e/kWh)", faint)
	running := newPlot("Time (UTC)", "Running jobs", faint)
	running.Y.Tick.Marker = plot.TickerFunc(wholeTicks)
	for i, r := range results {
		watts, jobs := make([]level, len(r.Timeline)), make([]level, len(r.Timeline))
		for k, s := range r.Timeline {
			at := s.Time.Sub(start).Seconds()
			watts[k], jobs[k] = level{at, float64(s.Power) / 1000}, level{at, float64(s.Running)}
		}
		until, style := r.Accounted.Sub(start).Seconds(), runStyle(results, i)
		addLine(power, style, staircase(watts, until, most))
		addLine(running, style, staircase(jobs, until, most))
	}
	plots, siteKeys := []*plot.Plot{power, running}, []key(nil)
	for _, site := range sites {
		if site.Carbon.Series == nil {
			continue
		}
		label := "grid " + string(site.Zone)
		if site.Name != string(site.Zone) {
			label = fmt.Sprintf("grid of %s (%s)", site.Name, site.Zone)
		}
		line := addLine(carbon, siteStyle(len(siteKeys)), seriesSteps(site.Carbon.Series, start, span, most))
		siteKeys = append(siteKeys, key{label, line})
		plots = []*plot.Plot{power, carbon, running}
	}
	return figure{
		figureWidth, 6.5 * vg.Inch, [][]key{strategyKeys(results), siteKeys}, overTime(start, span, plots...),
	}
}

// waitsFigure draws the fraction of jobs that started within a given wait after submission. Jobs that never start
// count, so that their curve ends below 100 %.
func waitsFigure(results []*sim.Result) figure {
	var longest, shortest float64
	all := make([][]float64, len(results))
	for i, r := range results {
		for k := range r.Outcomes {
			if o := &r.Outcomes[k]; o.Placed.Node != "" {
				all[i] = append(all[i], o.Idle(&r.Scenario.Jobs[k]).Hours())
			}
		}
		slices.Sort(all[i])
		if n := len(all[i]); n > 0 {
			shortest, longest = min(shortest, all[i][0]), max(longest, all[i][n-1])
		}
	}
	if longest == shortest {
		longest++ // no job waited, so any axis will do
	}
	p := newPlot("Wait from submission to start (h)", "Jobs started (% of all)", faint)
	p.Y.Max = 100
	none := true
	for i, r := range results {
		points := distribution(all[i], len(r.Outcomes), shortest, longest, resolution(len(results)))
		addLine(p, runStyle(results, i), points)
		none = none && len(points) == 0
	}
	if none {
		middle := lettering
		middle.XAlign = draw.XCenter
		p.Add(&plotter.Labels{
			XYs: plotter.XYs{{X: longest / 2, Y: 50}}, Labels: []string{"no job started"},
			TextStyle: []text.Style{middle},
		})
		p.X.Max = longest
	}
	return figure{figureWidth, 5 * vg.Inch, [][]key{strategyKeys(results)}, [][]*plot.Plot{{p}}}
}

// adjustedLabel is the label of the CI-adjusted cost at a carbon price.
const adjustedLabel = "Cost with carbon, estimated\n(CO2e at %g a tonne)"

// barsFigure draws the totals of every run next to each other. It omits quantities if no site has their signal,
// because their total of 0 has no meaning.
func barsFigure(results []*sim.Result) figure {
	sites, price := results[0].Scenario.Sites, results[0].Scenario.CarbonPrice
	var charts []chart
	add := func(known bool, label string, of func(*sim.Result) float64) {
		if known {
			charts = append(charts, chart{label, sliceutil.Map(results, of)})
		}
	}
	add(true, "Energy, estimated (kWh)", func(r *sim.Result) float64 { return r.Energy.KWh() })
	add(slices.ContainsFunc(sites, func(site *sched.Site) bool { return site.Carbon.Series != nil }),
		"Emissions, estimated (kgCO2e)", func(r *sim.Result) float64 { return r.Carbon.Kg() })
	add(slices.ContainsFunc(sites, func(site *sched.Site) bool { return site.Price.Series != nil }),
		"Cost, estimated (in the prices' currency)", func(r *sim.Result) float64 { return float64(r.Cost) })
	add(price > 0, fmt.Sprintf(adjustedLabel, price),
		func(r *sim.Result) float64 { return *adjustedCost(float64(r.Cost), float64(r.Carbon), price) })
	colours := make([]color.Color, len(results))
	for i := range colours {
		colours[i] = runStyle(results, i).Color
	}
	return barCharts(charts, runNames(results), colours)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// period returns the time span of all runs. It is never empty, even if no job ever ran.
func period(results []*sim.Result) (start, end time.Time) {
	start, end = results[0].Scenario.Start, results[0].Accounted
	for _, r := range results {
		start = timeutil.Earlier(start, r.Scenario.Start)
		end = timeutil.Later(end, r.Accounted)
	}
	end = timeutil.Later(end, start.Add(time.Minute))
	return start.UTC(), end.UTC()
}

// resolution returns the maximum number of steps of a line in a figure with n lines. More steps would not be
// visible, and the file should stay below 500 kB.
func resolution(n int) int { return min(600, max(40, 14000/n)) }

// seriesSteps draws the known part of a series over span seconds from start.
func seriesSteps(s *grid.Series, start time.Time, span float64, most int) plotter.XYs {
	var levels []level
	for i := range s.Len() {
		from := s.Start().Add(time.Duration(i) * s.Step()).Sub(start).Seconds()
		if from < span && from+s.Step().Seconds() > 0 {
			levels = append(levels, level{max(0, from), s.Value(i)})
		}
	}
	return staircase(levels, min(span, s.End().Sub(start).Seconds()), most)
}

// level is a value that holds from a time in seconds on the axis until the next level.
type level struct{ from, value float64 }

// staircase draws levels, the last one up to end. If there are more than most levels, adjacent ones are replaced by
// their mean over time.
func staircase(levels []level, end float64, most int) plotter.XYs {
	var stairs plotter.XYs
	group := (len(levels) + most - 1) / most
	for i := 0; i < len(levels); i += group {
		next, until := min(i+group, len(levels)), end
		if next < len(levels) {
			until = levels[next].from
		}
		from, value := levels[i].from, average(levels[i:next], until)
		if n := len(stairs); n > 0 {
			if stairs[n-1].Y == value {
				continue
			}
			stairs = append(stairs, plotter.XY{X: from, Y: stairs[n-1].Y})
		}
		stairs = append(stairs, plotter.XY{X: from, Y: value})
	}
	if n := len(stairs); n > 0 {
		stairs = append(stairs, plotter.XY{X: max(end, stairs[n-1].X), Y: stairs[n-1].Y})
	}
	return stairs
}

func average(levels []level, until float64) float64 {
	from := levels[0].from
	if len(levels) == 1 || until <= from {
		return levels[0].value
	}
	var sum float64
	for i, l := range levels {
		next := until
		if i+1 < len(levels) {
			next = levels[i+1].from
		}
		sum += l.value * (next - l.from)
	}
	return sum / (until - from)
}

// distribution draws the percentage of values that are at most x, between the ends of an axis. Steps that are
// smaller than the resolution in both directions are combined.
func distribution(sorted []float64, all int, from, to float64, most int) plotter.XYs {
	var stairs plotter.XYs
	var at, share float64 // of the last drawn step
	for i, v := range sorted {
		reached := 100 * float64(i+1) / float64(all)
		if i+1 < len(sorted) && (sorted[i+1] == v || v-at < (to-from)/float64(most) &&
			reached-share < 100/float64(most)) {
			continue
		}
		stairs = append(stairs, plotter.XY{X: v, Y: share}, plotter.XY{X: v, Y: reached})
		at, share = v, reached
	}
	if len(stairs) > 0 {
		stairs = append(stairs, plotter.XY{X: to, Y: share})
	}
	return stairs
}

func strategyKeys(results []*sim.Result) []key {
	keys := make([]key, len(results))
	for i, name := range runNames(results) {
		keys[i] = key{name, &plotter.Line{LineStyle: runStyle(results, i)}}
	}
	return keys
}

// runNames returns the strategy of each run, and the state of machines without jobs if it differs between runs.
func runNames(results []*sim.Result) []string {
	if sleepAndStay(results) {
		return sliceutil.Map(results,
			func(r *sim.Result) string { return r.Strategy + ", " + machinesDo[emptyNodes(r)] })
	}
	return sliceutil.Map(results, func(r *sim.Result) string { return r.Strategy })
}

// sleepAndStay reports whether empty machines sleep in some runs and stay on in others.
func sleepAndStay(results []*sim.Result) bool {
	return slices.ContainsFunc(results, func(r *sim.Result) bool { return emptyNodes(r) != emptyNodes(results[0]) })
}

// runStyle returns the line style of a run. A strategy has the same color in all runs. If machines sleep only in
// some runs, the lines of the others are dashed.
func runStyle(results []*sim.Result, i int) draw.LineStyle {
	strategies := sliceutil.Distinct(sliceutil.Map(results, func(r *sim.Result) string { return r.Strategy }))
	style := strategyStyle(slices.Index(strategies, results[i].Strategy), len(strategies))
	if sleepAndStay(results) && !results[i].Scenario.Sleeps() {
		style.Dashes = dashes[2]
	}
	return style
}

// Palette contains the colors of Okabe and Ito, which people with any kind of color vision can distinguish. It
// omits yellow, which is too pale for a line on white.
var Palette = [...]color.RGBA{
	{0x00, 0x72, 0xB2, 0xFF}, // blue
	{0xE6, 0x9F, 0x00, 0xFF}, // orange
	{0x00, 0x9E, 0x73, 0xFF}, // bluish green
	{0xD5, 0x5E, 0x00, 0xFF}, // vermilion
	{0xCC, 0x79, 0xA7, 0xFF}, // reddish purple
	{0x56, 0xB4, 0xE9, 0xFF}, // sky blue
	{0x00, 0x00, 0x00, 0xFF},
}

// dashes distinguish lines of the same color.
var dashes = [...][]vg.Length{nil, {6, 3}, {2, 2}, {9, 2, 2, 2}}

// strategyStyle returns the style of line i of n in all figures. Lines that coincide hide each other, so a later
// line is thinner and the earlier one remains visible as its border.
func strategyStyle(i, n int) draw.LineStyle {
	return draw.LineStyle{
		Color:  Palette[i%len(Palette)],
		Width:  vg.Points(1.3 + min(0.8, 2/float64(n))*float64(n-1-i)),
		Dashes: dashes[i/len(Palette)%len(dashes)],
	}
}

// siteStyle returns a gray style, because the colors identify strategies.
func siteStyle(i int) draw.LineStyle {
	return draw.LineStyle{
		Color: color.Gray{Y: uint8(0x30 + 0x58*(i/len(dashes)%2))}, Width: 1.4, Dashes: dashes[i%len(dashes)],
	}
}
