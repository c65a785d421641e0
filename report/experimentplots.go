package report

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figures draws the arms over time, CPU beside power, and the differences from the baseline.
func (e *Experiment) figures() []namedFigure {
	all := []namedFigure{
		{
			name:    "over-time",
			caption: "The arms over time, each line the mean of a contestant's arms.", figure: e.timeFigure(),
		},
		{
			name:    "cpu-energy",
			caption: "Power beside busy cores, a point for each sample of every arm.", figure: e.cpuFigure(),
		},
	}
	if f, ok := e.differenceFigure(); ok {
		all = append(all, namedFigure{
			name:    "differences",
			caption: "Mean differences from " + e.Baseline + " within rounds, with intervals of 95 %.", figure: f,
		})
	}
	return all
}

func (e *Experiment) timeFigure() figure {
	panels := []struct {
		label string
		of    func(*ExperimentSample) float64
	}{
		{"All nodes' power\n(W)", func(s *ExperimentSample) float64 { return s.Watts }},
		{"Busy cores", func(s *ExperimentSample) float64 { return s.Cores }},
		{"Scheduler's CPU\n(cores)", func(s *ExperimentSample) float64 { return s.Scheduler }},
		{"Requests' p99\n(ms)", func(s *ExperimentSample) float64 { return s.P99 }},
	}
	f := figure{figureWidth, 9 * vg.Inch, [][]key{nil}, nil}
	for i, panel := range panels {
		time := ""
		if i == len(panels)-1 {
			time = "Time since the arm began (s)"
		}
		p := newPlot(time, panel.label, faint)
		for k, c := range e.contestants {
			line := addLine(p, strategyStyle(k, len(e.contestants)), e.meanLine(c, panel.of))
			if i == 0 {
				f.keys[0] = append(f.keys[0], key{c, line})
			}
		}
		f.plots = append(f.plots, []*plot.Plot{p})
	}
	return f
}

// meanLine is the mean of a contestant's arms, moment by moment.
func (e *Experiment) meanLine(contestant string, of func(*ExperimentSample) float64) (line plotter.XYs) {
	var counts []float64
	for i := range e.trials {
		if e.trials[i].Contestant != contestant {
			continue
		}
		for k := range e.trials[i].Samples {
			s := &e.trials[i].Samples[k]
			if k == len(line) {
				line, counts = append(line, plotter.XY{}), append(counts, 0)
			}
			counts[k]++
			line[k].X += (s.Seconds - line[k].X) / counts[k]
			line[k].Y += (of(s) - line[k].Y) / counts[k]
		}
	}
	return line
}

func (e *Experiment) cpuFigure() figure {
	p := newPlot("Busy cores", "All nodes' power\n(W)", faint)
	f := figure{figureWidth, 5 * vg.Inch, [][]key{nil}, [][]*plot.Plot{{p}}}
	for k, c := range e.contestants {
		points := &plotter.Scatter{GlyphStyle: e.glyph(k)}
		for i := range e.trials {
			for _, s := range e.trials[i].Samples {
				if e.trials[i].Contestant == c {
					points.XYs = append(points.XYs, plotter.XY{X: s.Cores, Y: s.Watts})
				}
			}
		}
		if len(points.XYs) > 0 {
			p.Add(points)
		}
		f.keys[0] = append(f.keys[0], key{c, points})
	}
	return f
}

func (e *Experiment) glyph(k int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: Palette[k%len(Palette)], Radius: 3, Shape: draw.CircleGlyph{}}
}

// differenceFigure draws each metric's differences beside each other; ok is false where there are none.
func (e *Experiment) differenceFigure() (f figure, ok bool) {
	var names []string
	places, keys := map[string]int{}, []key(nil)
	for i := range e.Rows {
		if r := &e.Rows[i]; r.Difference != nil {
			if _, known := places[r.Metric]; !known {
				places[r.Metric], names = len(names), append(names, r.Metric)
			}
		}
	}
	if len(names) == 0 {
		return f, false
	}
	f, slot := figureOfBars(1, names)
	p := newPlot("", "Difference from\n"+e.Baseline+" (%)", draw.LineStyle{})
	for k, c := range e.contestants {
		shift := 0.6 * ((float64(k)+0.5)/float64(len(e.contestants)) - 0.5)
		for i := range e.Rows {
			if r := &e.Rows[i]; r.Contestant == c && r.Difference != nil {
				addSaving(p, float64(places[r.Metric])+shift, r.Difference, e.glyph(k))
			}
		}
		if c != e.Baseline {
			keys = append(keys, key{c, &plotter.Scatter{GlyphStyle: e.glyph(k)}})
		}
	}
	nameBars(p, slot, names)
	p.Y.Min, p.Y.Max = math.Max(p.Y.Min, -200), math.Min(p.Y.Max, 200) // an interval of few rounds may be huge
	p.Add(&plotter.Line{
		XYs: plotter.XYs{{X: p.X.Min}, {X: p.X.Max}}, LineStyle: draw.LineStyle{Color: color.Black, Width: 0.8},
	})
	f.plots[0], f.keys = []*plot.Plot{p}, [][]key{keys}
	return f, true
}
