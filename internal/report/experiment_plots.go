package report

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// figures draws the arms over time, CPU versus power, and the differences from the baseline.
func (e *Experiment) figures() []namedFigure {
	return []namedFigure{
		{"over-time", "The arms over time, with one line per arm.", e.timeFigure()},
		{"cpu-energy", "Power versus busy cores, with one point per sample of each arm.", e.cpuFigure()},
		{
			"differences", "Mean differences from " + e.Baseline + " within rounds, with 95 % intervals.",
			e.differenceFigure(),
		},
	}
}

func (e *Experiment) timeFigure() figure {
	f := figure{figureWidth, 9 * vg.Inch, [][]key{make([]key, len(e.contestants))}, nil}
	for _, panel := range []struct {
		time, label string
		of          func(*ExperimentSample) float64
	}{
		{"", "All nodes' power\n(W)", func(s *ExperimentSample) float64 { return s.Watts }},
		{"", "Busy cores", func(s *ExperimentSample) float64 { return s.Cores }},
		{"", "Scheduler's CPU\n(cores)", func(s *ExperimentSample) float64 { return s.Scheduler }},
		{"Time since arm start (s)", "Requests' p99\n(ms)", func(s *ExperimentSample) float64 { return s.P99 }},
	} {
		p := newPlot(panel.time, panel.label, faint)
		for i := range e.trials {
			k := slices.Index(e.contestants, e.trials[i].Contestant)
			line := addLine(p, strategyStyle(k, len(e.contestants)), sliceutil.Map(e.trials[i].Samples,
				func(s ExperimentSample) plotter.XY { return plotter.XY{X: s.Seconds, Y: panel.of(&s)} }))
			f.keys[0][k] = key{e.contestants[k], line}
		}
		f.plots = append(f.plots, []*plot.Plot{p})
	}
	return f
}

func (e *Experiment) cpuFigure() figure {
	p, keys := newPlot("Busy cores", "All nodes' power\n(W)", faint), e.keys()
	for i := range e.trials {
		k := slices.Index(e.contestants, e.trials[i].Contestant)
		p.Add(&plotter.Scatter{GlyphStyle: glyph(k), XYs: sliceutil.Map(e.trials[i].Samples,
			func(s ExperimentSample) plotter.XY { return plotter.XY{X: s.Cores, Y: s.Watts} })})
	}
	return figure{figureWidth, 5 * vg.Inch, [][]key{keys}, [][]*plot.Plot{{p}}}
}

func (e *Experiment) keys() (keys []key) {
	for k, c := range e.contestants {
		keys = append(keys, key{c, &plotter.Scatter{GlyphStyle: glyph(k)}})
	}
	return keys
}

func glyph(k int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: Palette[k%len(Palette)], Radius: 3, Shape: draw.CircleGlyph{}}
}

// differenceFigure draws the differences of each metric next to each other.
func (e *Experiment) differenceFigure() figure {
	f, slot := figureOfBars(1, ExperimentMetrics)
	p := newPlot("", "Difference from\n"+e.Baseline+" (%)", draw.LineStyle{})
	for i := range e.Rows {
		if r := &e.Rows[i]; r.Difference != nil {
			k := slices.Index(e.contestants, r.Contestant)
			shift := 0.6 * ((float64(k)+0.5)/float64(len(e.contestants)) - 0.5)
			addSaving(p, float64(slices.Index(ExperimentMetrics, r.Metric))+shift, r.Difference, glyph(k))
		}
	}
	nameBars(p, slot, ExperimentMetrics)
	p.Y.Min, p.Y.Max = max(p.Y.Min, -200), min(p.Y.Max, 200) // an interval over few rounds may be huge
	addLine(p, strong, plotter.XYs{{X: p.X.Min}, {X: p.X.Max}})
	f.plots[0], f.keys = []*plot.Plot{p}, [][]key{e.keys()[1:]}
	return f
}
