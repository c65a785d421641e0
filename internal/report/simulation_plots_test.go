package report

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// plotScenario returns a synthetic cluster with ten nodes per site, and grids with the lowest intensity at noon.
func plotScenario(t testing.TB, jobs int, sites ...*sched.Site) *sim.Scenario {
	t.Helper()
	start := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	rng := rand.New(rand.NewPCG(1, 2))
	s := &sim.Scenario{Start: start, Sites: sites}
	for i, site := range sites {
		values := make([]float64, 24*14)
		for h := range values {
			values[h] = 300 + 120*math.Cos(2*math.Pi*float64(h+8+2*i)/24) + 30*rng.Float64()
		}
		series, err := grid.NewSeries(start.Add(-2*time.Hour), time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		site.Carbon.Series = series
		for n := range 10 {
			capacity := sched.Resources{MilliCPU: 16000, Memory: 64 << 30}
			s.Nodes = append(s.Nodes, sched.Node{
				Name: fmt.Sprintf("%s-%d", site.Name, n), Site: site, Capacity: capacity, Free: capacity,
				Profile: &energy.Profile{Idle: 80, Max: 300 - 15*energy.Watts(n), Sleep: 8, WakeUp: 9000},
			})
		}
	}
	for i := range jobs {
		s.Jobs = append(s.Jobs, sched.Job{
			ID: fmt.Sprint("j", i), Submitted: start.Add(time.Duration(rng.Float64() * float64(20*time.Hour))),
			Duration:     time.Duration(10+rng.IntN(110)) * time.Minute,
			AllowedDelay: time.Duration(rng.IntN(2)*(2+rng.IntN(5))) * time.Hour,
			Request:      sched.Resources{MilliCPU: 1000 * (1 + rng.Int64N(8)), Memory: 1 << 30},
		})
	}
	return s
}

func plotRuns(t testing.TB, s *sim.Scenario, names ...string) (results []*sim.Result) {
	t.Helper()
	for _, name := range names {
		strategy, err := strategy.New(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), s, name, strategy)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	if _, err := sim.Align(results...); err != nil {
		t.Fatal(err)
	}
	return results
}

// written is a text of an SVG with the start of its baseline.
type written struct {
	x, y   float64
	text   string
	turned bool
}

// texts returns the texts of an SVG.
func texts(t testing.TB, name string, svg []byte) (all []written) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	var at *written
	var groups []bool // whether each group is rotated
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s is invalid XML: %v", name, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "g" {
				groups = append(groups, slices.ContainsFunc(token.Attr, func(a xml.Attr) bool {
					return strings.Contains(a.Value, "rotate")
				}))
			}
			if token.Name.Local != "text" {
				continue
			}
			at = &written{turned: slices.Contains(groups, true)}
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "x":
					at.x, err = strconv.ParseFloat(a.Value, 64)
				case "y":
					at.y, err = strconv.ParseFloat(a.Value, 64)
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		case xml.CharData:
			if at != nil {
				at.text += string(token)
			}
		case xml.EndElement:
			if token.Name.Local == "g" {
				groups = groups[:len(groups)-1]
			}
			if at != nil {
				all, at = append(all, *at), nil
			}
		}
	}
}

// svgs draws the plots of results and returns the files by name.
func svgs(results []*sim.Result) map[string][]byte {
	files := map[string][]byte{}
	for _, f := range plots(results) {
		files[f.name+".svg"] = f.svg()
	}
	return files
}

func TestPlots(t *testing.T) {
	home := func() *sched.Site { return &sched.Site{Name: "home", Zone: "DE", PUE: 1.2} }
	priced := plotScenario(t, 300, home(), &sched.Site{Name: "lyon", Zone: "FR"})
	prices, err := grid.NewSeries(priced.Start, time.Hour, slices.Repeat([]float64{-0.4, -0.2, 0.1}, 40))
	if err != nil {
		t.Fatal(err)
	}
	priced.Sites[0].Price.Series, priced.CarbonPrice = prices, 80
	idle := plotScenario(t, 20, home())
	for i := range idle.Jobs {
		idle.Jobs[i].AllowedDelay = 0
	}
	full := plotScenario(t, 2, home())
	full.Jobs[1].Request.MilliCPU = 1e6
	unfit := plotScenario(t, 1, home())
	unfit.Jobs[0].Request.MilliCPU = 1e6
	short := plotScenario(t, 1, home())
	short.Jobs[0].Submitted, short.Jobs[0].Duration, short.Jobs[0].AllowedDelay = short.Start, 20*time.Second, 0
	dark := plotScenario(t, 10, &sched.Site{Name: "dark", Zone: "DE"})
	dark.Sites[0].Carbon.Series = nil
	many := []string{
		"least-allocated", "energy", "carbon", "round-robin", "least-allocated+window", "energy+window",
		"carbon+window", "round-robin+window",
	}
	for _, test := range []struct {
		name             string
		scenario         *sim.Scenario
		strategies, text []string
		absent           string
	}{
		{
			"comparison", plotScenario(t, 400, home()),
			[]string{"least-allocated", "energy", "carbon+window"},
			[]string{"grid of home (DE)", "06:00", "1 Jun 2026"},
			"Cost",
		},
		{
			"prices, some below zero", priced,
			[]string{"least-allocated", "carbon+window"},
			[]string{"Cost, estimated (in the prices' currency)", "(CO2e at 80 a tonne)", "grid of lyon (FR)"},
			"no job",
		},
		{"all strategies", plotScenario(t, 600, home()), many, nil, "no job"},
		{"no waits", idle, []string{"energy"}, []string{"100", "Running jobs"}, "no job"},
		{"one job of two fits", full, []string{"energy"}, []string{"100"}, "no job"},
		{"no job fits", unfit, []string{"energy", "carbon"}, []string{"no job started", "06:00:30"}, "Cost"},
		{"one sample", short, []string{"energy"}, []string{"06:00:30"}, "no job"},
		{"no signal", dark, []string{"energy"}, []string{"Energy, estimated (kWh)"}, "CO2e"},
	} {
		t.Run(test.name, func(t *testing.T) {
			results := plotRuns(t, test.scenario, test.strategies...)
			files := svgs(results)
			again := svgs(results)
			if diff := cmp.Diff(files, again); diff != "" {
				t.Errorf("figures differ when drawn twice: %s", diff)
			}
			var all []string
			checkApart(t, "holds.svg", files["holds.svg"])
			for name, labels := range map[string][]string{
				"timeline.svg": {"Facility power,", "estimated (kW)", "Running jobs", "Time (UTC)"},
				"bars.svg":     {"Energy, estimated (kWh)"},
				"nodes.svg":    {"Node", "Mean power of each node including PUE, estimated (W)"},
				"waits.svg":    {"Jobs started (% of all)", "Wait from submission to start (h)"},
			} {
				var content []string
				for _, w := range texts(t, name, files[name]) {
					content = append(content, w.text)
				}
				for _, want := range append(labels, test.strategies...) {
					if !slices.Contains(content, want) {
						t.Errorf("%s does not contain %q", name, want)
					}
				}
				checkApart(t, name, files[name])
				all = append(all, content...)
			}
			for _, want := range test.text {
				if !slices.Contains(all, want) {
					t.Errorf("no figure contains %q", want)
				}
			}
			if strings.Contains(strings.Join(all, "\n"), test.absent) {
				t.Errorf("a figure contains %q", test.absent)
			}
		})
	}
}

// checkApart fails if texts on one line overlap or leave the figure. It ignores rotated texts.
func checkApart(t *testing.T, name string, svg []byte) {
	t.Helper()
	var width float64
	_, box, _ := strings.Cut(string(svg), "viewBox=")
	if _, err := fmt.Sscanf(box, `"0 0 %f `, &width); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	all := texts(t, name, svg)
	for i, a := range all {
		if a.turned {
			continue
		}
		end := a.x + float64(lettering.Width(a.text))
		if a.x < 0 || end > width {
			t.Errorf("%s: %q exceeds the figure", name, a.text)
		}
		for _, b := range all[i+1:] {
			if !b.turned && a.y == b.y && a.x < b.x+float64(lettering.Width(b.text)) && b.x < end {
				t.Errorf("%s: %q and %q overlap", name, a.text, b.text)
			}
		}
	}
}

// A long and busy trace with many strategies must not result in huge files.
func TestPlotsAreSmall(t *testing.T) {
	s := plotScenario(t, 5000, &sched.Site{Name: "home", Zone: "DE"}, &sched.Site{Name: "lyon", Zone: "FR"})
	series, err := grid.NewSeries(s.Start, 5*time.Minute, slices.Repeat([]float64{100, 300, 200}, 30_000))
	if err != nil {
		t.Fatal(err)
	}
	s.Sites[0].Carbon.Series = series
	rng := rand.New(rand.NewPCG(3, 4))
	var results []*sim.Result
	for i := range 20 {
		r := &sim.Result{
			Strategy: fmt.Sprint("strategy-", i), Scenario: s, Accounted: s.Start.Add(200 * 24 * time.Hour),
			Outcomes: make([]sim.Outcome, len(s.Jobs)),
		}
		for k := range 4800 {
			r.Timeline = append(r.Timeline, sim.Sample{
				Time: s.Start.Add(time.Duration(k) * time.Hour), Power: energy.Watts(1e4 * rng.Float64()),
				Running: rng.IntN(100),
			})
		}
		r.Cells, r.CellStep = make([][]sim.Cell, 4800), time.Hour
		for k := range r.Cells {
			r.Cells[k] = make([]sim.Cell, len(s.Nodes))
			for n := range r.Cells[k] {
				r.Cells[k][n].Energy = energy.Joules(1e6 * rng.Float64())
			}
		}
		for k := range r.Outcomes {
			r.Outcomes[k].Placed.Node = "n"
			r.Outcomes[k].Start = s.Jobs[k].Submitted.Add(time.Duration(rng.ExpFloat64() * float64(time.Hour)))
		}
		results = append(results, r)
	}
	files := svgs(results)
	for name, svg := range files {
		if len(svg) > 500_000 {
			t.Errorf("%s has %d bytes", name, len(svg))
		}
		checkApart(t, name, svg)
	}
}

func TestPlotsKeepLongNamesApart(t *testing.T) {
	s := plotScenario(t, 50, &sched.Site{Name: strings.Repeat("far away, ", 20), Zone: "<DE & FR>"})
	results := plotRuns(t, s, "energy", "carbon", "least-allocated")
	for i, r := range results {
		r.Strategy = fmt.Sprintf("%d: %s <&> as observed on a real control plane", i,
			strings.Repeat("a-very-long-name+", 8))
	}
	files := svgs(results)
	for name, svg := range files {
		checkApart(t, name, svg)
		var found int
		for _, w := range texts(t, name, svg) {
			if strings.Contains(w.text, ": a-very") && strings.Contains(w.text, "…") {
				found++
			}
		}
		if found < len(results) && name != "holds.svg" { // these strategies do not hold jobs
			t.Errorf("%s contains %d of %d names", name, found, len(results))
		}
	}
}

// What cannot be drawn is refused before anything is drawn.
func TestWriteDirRefuses(t *testing.T) {
	s := plotScenario(t, 5, &sched.Site{Name: "home", Zone: "DE"})
	for name, spoil := range map[string]func(*sim.Result){
		"energy":    func(r *sim.Result) { r.Energy = energy.Joules(math.Inf(1)) },
		"emissions": func(r *sim.Result) { r.Carbon = energy.Grams(math.NaN()) },
	} {
		results := plotRuns(t, s, "carbon", "energy")
		spoil(results[1])
		_, err := WriteDir(t.TempDir(), New(&sim.File{}, results), results)
		if err == nil || !strings.Contains(err.Error(), "writing summary.json: json: unsupported value") {
			t.Errorf("%s: WriteDir() returned error %v", name, err)
		}
	}
}

func TestStaircase(t *testing.T) {
	levels := []level{{0, 1}, {10, 1}, {20, 4}, {40, 2}}
	for _, test := range []struct {
		most int
		want plotter.XYs
	}{
		{4, plotter.XYs{{X: 0, Y: 1}, {X: 20, Y: 1}, {X: 20, Y: 4}, {X: 40, Y: 4}, {X: 40, Y: 2}, {X: 50, Y: 2}}},
		{2, plotter.XYs{{X: 0, Y: 1}, {X: 20, Y: 1}, {X: 20, Y: 10.0 / 3}, {X: 50, Y: 10.0 / 3}}}, // 20 s of 4 and 10 s of 2
		{1, plotter.XYs{{X: 0, Y: 2.4}, {X: 50, Y: 2.4}}},
	} {
		if diff := cmp.Diff(test.want, staircase(levels, 50, test.most)); diff != "" {
			t.Errorf("at most %d levels (-want +got):\n%s", test.most, diff)
		}
	}
	if got := staircase(nil, 50, 2); got != nil {
		t.Errorf("staircase() of no levels = %v", got)
	}
}

func TestDistribution(t *testing.T) {
	got := distribution([]float64{0, 0, 1}, 4, 0, 2, 100) // one of four jobs never started
	want := plotter.XYs{{X: 0, Y: 0}, {X: 0, Y: 50}, {X: 1, Y: 50}, {X: 1, Y: 75}, {X: 2, Y: 75}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	dense := make([]float64, 100_000)
	for i := range dense {
		dense[i] = float64(i) / 1e5
	}
	if n := len(distribution(dense, len(dense), 0, 1, 100)); n > 500 {
		t.Errorf("got %d points for 100,000 values", n)
	}
}

func TestNumberTicks(t *testing.T) {
	for _, test := range []struct {
		lo, hi float64
		want   string
	}{
		{0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{0, 100, "0 20 40 60 80 100"},
		{0, 1234, "0 500 1000 1500"},
		{-1.5, 4, "-2 0 2 4"},
		{-3, 0, "-3 -2 -1 0"},
	} {
		var got []string
		for _, tick := range NumberTicks(test.lo, test.hi) {
			got = append(got, tick.Label)
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("NumberTicks(%v, %v) = %s, want %s", test.lo, test.hi, s, test.want)
		}
	}
	if ticks := wholeTicks(0, 1); ticks[1].Label != "1" {
		t.Errorf("wholeTicks(0, 1) = %v", ticks)
	}
}

func TestTimeTicks(t *testing.T) {
	start := time.Date(2025, 12, 30, 21, 10, 0, 0, time.UTC)
	for _, test := range []struct {
		span time.Duration
		want string
	}{
		{time.Minute, "21:10:00/30 Dec 2025 21:10:10 21:10:20 21:10:30 21:10:40 21:10:50 21:11:00"},
		{5 * time.Hour, "22:00/30 Dec 2025 23:00 00:00/31 Dec 2025 01:00 02:00"},
		{36 * time.Hour, "00:00/31 Dec 2025 06:00 12:00 18:00 00:00/1 Jan 2026 06:00"},
		{
			96 * time.Hour,
			"00:00/31 Dec 2025 12:00 00:00/1 Jan 2026 12:00 00:00/2 Jan 2026 12:00 00:00/3 Jan 2026 12:00",
		},
		{100 * time.Hour, "31 Dec/2025 1 Jan/2026 2 Jan 3 Jan 4 Jan"},
		{365 * 24 * time.Hour, "Jan/2026 Mar May Jul Sep Nov"},
		{20 * 365 * 24 * time.Hour, "Jan/2030 Jan/2035 Jan/2040 Jan/2045"},
	} {
		var got []string
		for _, tick := range TimeTicks(start, test.span.Seconds()) {
			got = append(got, strings.ReplaceAll(tick.Label, "\n", "/"))
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("TimeTicks(%v) = %s, want %s", test.span, s, test.want)
		}
	}
}

func TestFitted(t *testing.T) {
	for _, width := range []vg.Length{20, 50, 100} {
		if got := fitted("least-allocated+window", width); lettering.Width(got) > width || !strings.Contains(got, "…") {
			t.Errorf("%q does not fit in %v", got, width)
		}
	}
	if got := fitted("energy", 100); got != "energy" {
		t.Errorf("fitted() shortened a text that fits to %q", got)
	}
}
