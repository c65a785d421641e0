package report

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// maxHolds is the maximum number of held jobs above each other, and minHolds the minimum number per run.
const maxHolds, minHolds = 60, 10

// holdDays is the maximum number of days in the figure, because holds of hours are not visible in months.
const holdDays = 7

// holds returns the indices of the jobs of a run that were held and then started, in descending order of the hold's
// duration.
func holds(r *sim.Result) (jobs []int) {
	for i := range r.Outcomes {
		if o := &r.Outcomes[i]; o.Held() && o.Placed.Node != "" {
			jobs = append(jobs, i)
		}
	}
	slices.SortStableFunc(jobs, func(a, b int) int { return cmp.Compare(heldFor(r, b), heldFor(r, a)) })
	return jobs
}

// heldFor returns how long a job was held.
func heldFor(r *sim.Result, job int) time.Duration {
	return r.Outcomes[job].Released.Sub(r.Scenario.Jobs[job].Submitted)
}

// holdTable lists the held jobs of each run, in descending order of the hold's duration.
func holdTable(results []*sim.Result) *Table {
	t := Sheet("strategy", "emptyNodes", "job", "submitted", "released", "started", "finished", "latestStart",
		"finishBy", "heldSeconds")
	for _, r := range results {
		for _, i := range holds(r) {
			j, o := &r.Scenario.Jobs[i], &r.Outcomes[i]
			t.Add(r.Strategy, emptyNodes(r), j.ID, j.Submitted, o.Released, o.Start, o.Finish, j.LatestStart(),
				j.FinishBy, heldFor(r, i).Seconds())
		}
	}
	return t
}

// The styles of the parts of a hold. Jobs have the color of their strategy, which is paler while they are held.
var (
	waitStyle   = draw.LineStyle{Color: color.Gray{Y: 0x50}, Width: 0.8}
	latestStyle = draw.LineStyle{Color: color.Black, Width: 1.4}
	black       = color.RGBA{A: 0xFF}
)

const paler = 0.68

// upright is a vertical line in a legend.
type upright draw.LineStyle

// Thumbnail implements [plot.Thumbnailer].
func (u upright) Thumbnail(c *draw.Canvas) {
	x := c.Center().X
	c.StrokeLine2(draw.LineStyle(u), x, c.Min.Y, x, c.Max.Y)
}

// holdsPlot draws a row for each of the jobs, until the end of the axis.
func holdsPlot(r *sim.Result, jobs []int, title string, columns int, start time.Time, span float64,
	colour color.RGBA,
) *plot.Plot {
	var held, runs []plotter.XYs
	waits, latest := strokes{LineStyle: waitStyle}, strokes{LineStyle: latestStyle}
	at := func(t time.Time, y float64) plotter.XY { return plotter.XY{X: min(t.Sub(start).Seconds(), span), Y: y} }
	names := make([]string, len(jobs))
	for row, i := range jobs {
		j, o, y := &r.Scenario.Jobs[i], &r.Outcomes[i], -float64(row)
		names[row] = j.ID
		held = append(held, box(at(j.Submitted, y).X, at(o.Released, y).X, y, 0.34))
		waits.XYs = append(waits.XYs, at(o.Released, y), at(o.Start, y))
		for _, w := range o.Windows() {
			runs = append(runs, box(at(w.Start, y).X, at(w.End, y).X, y, 0.34))
		}
		if mark := at(j.LatestStart(), y-0.46); mark.X < span {
			latest.XYs = append(latest.XYs, mark, at(j.LatestStart(), y+0.46))
		}
	}
	p := rowPlot(title, "Job", names, columns)
	p.Add(&plotter.Polygon{XYs: held, Color: blend(colour, 0xFF, paler)}, &plotter.Polygon{XYs: runs, Color: colour},
		waits, latest)
	return p
}

// busiest returns the first day of the week with the most holds, and limits held to holds that begin in this week.
// Weeks are counted from start.
func busiest(results []*sim.Result, held [][]int, start, end time.Time) time.Time {
	const week = holdDays * 24 * time.Hour
	weekOf := func(run, job int) int { return int(results[run].Scenario.Jobs[job].Submitted.Sub(start) / week) }
	counts := make([]int, end.Sub(start)/week+1)
	for i, jobs := range held {
		for _, k := range jobs {
			counts[weekOf(i, k)]++
		}
	}
	best := slices.Index(counts, slices.Max(counts))
	for i := range held {
		held[i] = slices.DeleteFunc(held[i], func(k int) bool { return weekOf(i, k) != best })
	}
	return start.AddDate(0, 0, best*holdDays)
}

// holdsFigure draws when jobs were held and when they ran, in a panel for each run that held jobs.
func holdsFigure(results []*sim.Result) figure {
	start, end := period(results)
	names, which := runNames(results), ""
	var most, left int
	held, panelled := sliceutil.Map(results, holds), 0
	for _, jobs := range held {
		left += len(jobs)
	}
	if left > 0 && end.Sub(start) > holdDays*24*time.Hour {
		start = busiest(results, held, start.Truncate(24*time.Hour), end)
		end = timeutil.Earlier(end, start.AddDate(0, 0, holdDays))
		which = " in the week with the most holds, from " + start.Format(time.DateOnly)
	}
	span := end.Sub(start).Seconds()
	for _, jobs := range held {
		panelled += min(1, len(jobs))
	}
	columns := min(2, max(1, panelled))
	limit := max(minHolds, maxHolds/max(1, (panelled+1)/2))
	var plots []*plot.Plot
	for i, r := range results {
		if len(held[i]) == 0 {
			continue
		}
		jobs := held[i][:min(len(held[i]), limit)]
		left, most = left-len(jobs), max(most, len(jobs))
		slices.SortFunc(jobs, func(a, b int) int {
			return cmp.Or(r.Scenario.Jobs[a].Submitted.Compare(r.Scenario.Jobs[b].Submitted), a-b)
		})
		plots = append(plots, holdsPlot(r, jobs, names[i], columns, start, span,
			runStyle(results, i).Color.(color.RGBA)))
	}
	title := "Held jobs" + which + ", in order of submission"
	if len(plots) == 0 {
		plots, most = []*plot.Plot{rowPlot("", "Job", []string{"no job was held"}, columns)}, 1
	} else if left > 0 {
		title = fmt.Sprintf("The longest holds%s, in order of submission. holds.csv has %d more.", which, left)
	}
	keys := []key{
		{"held", &plotter.Polygon{Color: blend(black, 0xFF, paler)}},
		{"released, waiting for capacity", &plotter.Line{LineStyle: waitStyle}},
		{"runs", &plotter.Polygon{Color: blend(black, 0xFF, paler/3)}},
		{"latest start", upright(latestStyle)},
	}
	return panelFigure(title, keys, most, panels(start, span, columns, plots))
}
