package report

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A published figure for a restart cost is compared with the row that has this restart cost.
func TestPublishedOfRestartCosts(t *testing.T) {
	var trials []Trial
	for _, trial := range someTrials() {
		if trial.Forecast == "naive" {
			continue
		}
		trials = append(trials, trial)
		if trial.Strategy == "wait" {
			costly := trial
			costly.RestartCost = 5 * time.Minute
			costly.Grams = (trial.Grams + trial.Optima[NonPreemptive]) / 2
			trials = append(trials, costly)
		}
	}
	published := []Published{
		{Strategy: "wait", Forecast: "perfect", Restart: "5m", Figure: "eta", Value: 0.7, Source: "there"},
		{Strategy: "wait", Forecast: "perfect", Restart: "10m", Figure: "eta", Value: 0.6, Source: "there"},
		{Strategy: "wait", Forecast: "perfect", Figure: "eta", Value: 0.5, Source: "there"},
	}
	s := sweep(t, trials, SweepOptions{Baseline: "now", Published: published})
	if len(s.Published) != 2 || !equal(s.Published[0].Measured, 0.6875) || !equal(s.Published[1].Measured, 0.375) {
		t.Fatalf("%+v", s.Published)
	}
	var b strings.Builder
	if err := Write(&b, s, "table", false); err != nil {
		t.Fatal(err)
	}
	if _, table, _ := strings.Cut(b.String(), "published figures"); !strings.Contains(table, "restart cost") ||
		!strings.Contains(table, "5m0s") {
		t.Errorf("the table does not show restart costs:\n%s", table)
	}
	published[0].Restart = "soon"
	if _, err := NewSweep(trials, SweepOptions{Baseline: "now", Published: published}); err == nil ||
		!strings.Contains(err.Error(), `"soon"`) {
		t.Errorf("NewSweep() with an invalid restart cost returned error %v", err)
	}
}

// A zone without possible savings has no η, neither of its own nor as part of a mean, despite rounding errors.
func TestSweepWhereNothingCanBeSaved(t *testing.T) {
	trials := someTrials()
	for i := range trials {
		if trial := &trials[i]; trial.Zone == "B" {
			trial.Grams = 2000 * (1 + 1e-14*float64(i%3))
			trial.Optima = map[string]float64{NonPreemptive: 2000 * (1 - 1e-14), Interruptible: 2000 * (1 - 2e-14)}
		}
	}
	s := sweep(t, trials, SweepOptions{Baseline: "now", Strategies: []string{"now", "wait"}})
	r := &s.Strategies[2]
	if r.ByZone[1].Eta != nil || r.ByZone[1].OptimumSaving != nil || r.WorstZone != "A" {
		t.Errorf("zone B is %+v, and the worst zone is %s", r.ByZone[1], r.WorstZone)
	}
	if r.EtaMean == nil || r.ByZone[0].Eta == nil || !equal(r.EtaMean.Value, r.ByZone[0].Eta.Value) ||
		!equal(*r.WorstEta, 0.5) {
		t.Errorf("unexpected mean over zones: %+v", r.EtaMean)
	}
	for i := range trials {
		trials[i].Grams, trials[i].Optima = 2000, map[string]float64{
			NonPreemptive: 2000 * (1 - 1e-14), Interruptible: 2000 * (1 - 1e-14),
		}
	}
	if r := sweep(t, trials, SweepOptions{Baseline: "now", Quote: QuoteEven}).Strategies[0]; r.Eta != nil ||
		r.EtaMean != nil || r.EtaOther != nil || r.WorstEta != nil {
		t.Errorf("row with savings by rounding errors: %+v", r)
	}
}

// A baseline that holds jobs is compared under the same forecast, regardless of the order of trials.
func TestBaselineThatHolds(t *testing.T) {
	begin := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	trial := func(strategy, forecast string, grams float64) Trial {
		return Trial{
			TrialName: TrialName{
				Variant: Variant{Strategy: strategy, Forecast: forecast}, Zone: "A", Start: begin, Family: NonPreemptive,
			},
			Counts: grammes(grams), Jobs: 1,
		}
	}
	trials := []Trial{
		trial("rolling", "perfect", 100), trial("rolling", "naive", 200), trial("residual", "perfect", 90),
		trial("residual", "naive", 190),
	}
	for range 2 {
		s := sweep(t, trials, SweepOptions{Baseline: "rolling"})
		for _, r := range s.Strategies {
			want := 0.0
			if r.Strategy == "residual" {
				want = map[string]float64{"perfect": 0.1, "naive": 0.05}[r.Forecast]
			}
			if !equal(r.Saving.Value, want) || !equal(r.ByZone[0].BaselineGrams,
				map[string]float64{"perfect": 100, "naive": 200}[r.Forecast]) {
				t.Errorf("%s with forecast %s saves %v of %v, want %v", r.Strategy, r.Forecast, r.Saving.Value,
					r.ByZone[0].BaselineGrams, want)
			}
		}
		slices.Reverse(trials)
	}
	if _, err := NewSweep(append(trials, trial("now", "", 300)), SweepOptions{Baseline: "rolling"}); err == nil ||
		!strings.Contains(err.Error(), "several forecasts") {
		t.Errorf("NewSweep() with an ambiguous baseline returned error %v", err)
	}
}

// CheckSweep reports errors based only on the names of trials.
func TestCheckSweep(t *testing.T) {
	var names []Trial
	for _, trial := range someTrials() {
		names = append(names, trial.Name())
	}
	if err := CheckSweep(names, SweepOptions{Baseline: "now"}); err != nil {
		t.Error(err)
	}
	odd := slices.DeleteFunc(slices.Clone(names), func(t Trial) bool { return t.StartIndex%2 == 0 })
	for want, err := range map[string]error{
		"has a quoted start": CheckSweep(odd, SweepOptions{Baseline: "now", Quote: QuoteEven}),
		`"watts"`: CheckSweep(names,
			SweepOptions{Baseline: "now", Published: []Published{{Strategy: "none", Figure: "watts"}}}),
		"of the baseline stock": CheckSweep(names, SweepOptions{Baseline: "stock"}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckSweep() returned error %v, want %q", err, want)
		}
	}
}

// Figures of a run are copied to a trial with another name.
func TestTakeFigures(t *testing.T) {
	name := Trial{TrialName: TrialName{Variant: Variant{Strategy: "rolling"}, Zone: "A", StartIndex: 3}}
	name.TakeFigures(&Trial{
		TrialName: TrialName{Variant: Variant{Strategy: "carbon+rolling"}, Zone: "A"}, Counts: grammes(7), Jobs: 2,
	})
	if name.StartIndex != 3 || name.Strategy != "rolling" || name.Grams != 7 || name.Jobs != 2 {
		t.Errorf("%+v", name)
	}
}

// A strategy, including the baseline, has one color in all figures. Its other forecasts have paler colors.
func TestColoursOfStrategies(t *testing.T) {
	trials := someTrials()
	for _, trial := range someTrials() {
		if trial.Strategy == "wait" && trial.Forecast == "perfect" {
			trial.Strategy = "late"
			trials = append(trials, trial)
		}
	}
	for i := range trials {
		if trials[i].Zone == "A" && trials[i].StartIndex == 0 && trials[i].Forecast != "naive" {
			trials[i].Day = &Day{
				Start: trials[i].Start, Step: time.Hour, Intensity: []float64{200, 300}, Cores: []float64{4, 0},
			}
		}
	}
	s := sweep(t, trials, SweepOptions{Baseline: "now", Strategies: []string{"now", "wait", "late"}})
	const now, naive, perfect, late = "#0072B2", "#E69F00", "#EEBE53", "#009E73"
	for name, want := range map[string]struct {
		figure
		colours []string
	}{
		"strategies": {s.barsFigure(), []string{now, naive, perfect, late}},
		"pareto":     {s.paretoFigure(), []string{naive, perfect, late}},
		"zones":      {s.zonesFigure(), []string{naive, perfect, late}},
		"day":        {s.dayFigure(), []string{now, perfect, late}},
	} {
		svg := want.svg()
		for _, colour := range []string{now, naive, perfect, late} {
			if drawn := strings.Contains(string(svg), colour); drawn != slices.Contains(want.colours, colour) {
				t.Errorf("%s.svg contains color %s: %v", name, colour, drawn)
			}
		}
	}
	s.Strategies = nil
	for i := range 3 * len(Palette) {
		s.Strategies = append(s.Strategies, SweepRow{Variant: Variant{Strategy: strings.Repeat("x", 1+i)}})
	}
	if c := s.colours(); c[0] == c[len(Palette)] || c[len(Palette)] == c[2*len(Palette)] {
		t.Errorf("colors repeat if there are more strategies than colors: %v", c)
	}
}

// The headline uses the singular for counts of one.
func TestHeadlineOfOne(t *testing.T) {
	s := sweep(t, someTrials()[:1], SweepOptions{Baseline: "now"})
	if got := s.headline(); got != "comparison: 1 trial in 1 zone, 1 start" {
		t.Errorf("unexpected headline %q", got)
	}
}

// Wide tables explain columns that need an explanation, if they have these columns.
func TestNotesOnColumns(t *testing.T) {
	for _, c := range []struct {
		quote string
		wide  bool
		want  map[string]bool
	}{
		{QuoteEven, true, map[string]bool{"\nOf suspending: ": true, "\nη other starts: ": true}},
		{QuoteAll, true, map[string]bool{"\nOf suspending: ": true, "\nη other starts: ": false}},
		{QuoteEven, false, map[string]bool{"\nOf suspending: ": false, "\nη other starts: ": false}},
	} {
		text := sweep(t, someTrials(), SweepOptions{Baseline: "now", Quote: c.quote}).Text(c.wide, false)
		for note, want := range c.want {
			if strings.Contains(text, note) != want {
				t.Errorf("%s starts, wide %v: for note %q, want %v in:\n%s", c.quote, c.wide, note, want, text)
			}
		}
	}
}

// The figure shows only trials of one day in one zone.
func TestDayFigureIsOfOneDay(t *testing.T) {
	trials := someTrials()
	for i, start := range map[int]time.Time{
		0: trials[0].Start, 1: trials[0].Start, 2: trials[0].Start.AddDate(0, 0, 1),
	} {
		trials[i].Day = &Day{Start: start, Step: time.Hour, Intensity: []float64{200, 300}, Cores: []float64{4, 0}}
	}
	s := sweep(t, trials, SweepOptions{Baseline: "now", Strategies: []string{"now", "wait"}})
	f := s.dayFigure()
	svg := f.svg()
	if text := string(svg); !strings.Contains(text, "wait perfect") || strings.Contains(text, "wait naive") {
		t.Error("the figure contains trials of another day")
	}
}
