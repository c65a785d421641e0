package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// someTrials returns trials of two zones and five starts. The policy achieves half of the possible saving in the
// first zone, and a quarter in the second.
func someTrials() []Trial {
	begin := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []Trial
	for z, zone := range []string{"A", "B"} {
		for i := range 5 {
			base := 1000 * float64(1+z) // zone B has twice the emissions
			most := 0.1 * float64(1+i)  // fraction that can be saved
			name := func(strategy, forecast string, saved float64) Trial {
				return Trial{
					TrialName: TrialName{
						Variant: Variant{Strategy: strategy, Forecast: forecast}, Zone: zone,
						Start: begin.AddDate(0, 0, i), StartIndex: i, Family: NonPreemptive,
					},
					Jobs: 10, Optima: map[string]float64{
						NonPreemptive: base * (1 - most), Interruptible: base * (1 - 2*most),
					},
					Counts: Counts{Consumption: Consumption{
						Sums: Sums{EnergyKWh: 2, Grams: base * (1 - saved)}, NodeEnergy: map[string]float64{"old": 1, "new": 1},
					}},
					MeanWait: 3600 * saved,
				}
			}
			all = append(all, name("now", "", 0), name("wait", "perfect", most/math.Pow(2, float64(1+z))),
				name("wait", "naive", most/8))
		}
	}
	return all
}

func grammes(grams float64) Counts { return Counts{Consumption: Consumption{Sums: Sums{Grams: grams}}} }

func sweep(t testing.TB, trials []Trial, o SweepOptions) *Sweep {
	t.Helper()
	s, err := NewSweep(trials, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func equal(a, b float64) bool { return math.Abs(a-b) < 1e-12 }

func TestSweepByHand(t *testing.T) {
	s := sweep(t, someTrials(), SweepOptions{
		Baseline: "now", Quote: QuoteEven, Seed: 1, Strategies: []string{"now", "wait"}, CarbonPrice: 100,
	})
	if len(s.Strategies) != 3 || s.Strategies[0].Strategy != "now" || s.Strategies[1].Forecast != "naive" {
		t.Fatalf("unexpected rows: %+v", s.Strategies)
	}
	r := &s.Strategies[2]
	// At even starts, fractions of 0.1, 0.3 and 0.5 can be saved. Of the 0.9 in each zone, 0.45 and 0.225 are
	// saved.
	for name, got := range map[string][2]float64{
		"eta":         {r.Eta.Value, 0.675 / 1.8},
		"etaGrams":    {r.EtaGrams.Value, (450 + 450) / (900.0 + 1800)},
		"etaMean":     {r.EtaMean.Value, (0.5 + 0.25) / 2},
		"etaOther":    {*r.EtaOther, 0.375},
		"suspending":  {r.EtaInterruptible.Value, 0.675 / 3.6},
		"saving":      {r.Saving.Value, 0.675 / 6},
		"worst":       {*r.WorstEta, 0.25},
		"zone A":      {r.ByZone[0].Eta.Value, 0.5},
		"optimum":     {*r.ByZone[1].OptimumSaving, 0.3},
		"wait":        {r.MeanWaitHours, 0.675 / 6},
		"with carbon": {*r.AdjustedCost, 100 * r.Grams / 1e6},
		"grams":       {r.BaselineGrams - r.Grams, 450 + 450},
		"nodes":       {r.NodeEnergy["old"], 6},
	} {
		if !equal(got[0], got[1]) {
			t.Errorf("%s is %v, want %v", name, got[0], got[1])
		}
	}
	if r.WorstZone != "B" || r.Trials != 6 || s.Trials != 30 || s.Resamples != maxResamples {
		t.Errorf("got worst zone %s, %d of %d trials, %d resamples", r.WorstZone, r.Trials, s.Trials, s.Resamples)
	}
	// Tables show the emissions of one trial: the mean of 6 trials of 1 and 2 kg, minus the saved 0.9 kg.
	if text := s.Text(false, false); !strings.Contains(text, "│ wait     │ perfect  │     1.350 │") ||
		!strings.Contains(text, "│     0.135 │") || !strings.Contains(text, "are means over the trials") {
		t.Error(text)
	}
	// The saved fraction is the same at every start, so it does not depend on the resample.
	if !equal(*r.Eta.Low, *r.Eta.High) || !(*r.Saving.Low < r.Saving.Value && r.Saving.Value < *r.Saving.High) {
		t.Errorf("got η from %v to %v, saving from %v to %v", *r.Eta.Low, *r.Eta.High, *r.Saving.Low, *r.Saving.High)
	}
}

// The result does not depend on the order of trials, for example from several workers or directories.
func TestSweepIsTheSameInAnyOrder(t *testing.T) {
	text := func(trials []Trial) string {
		var b bytes.Buffer
		if err := Write(&b, sweep(t, trials, SweepOptions{Baseline: "now", Seed: 7}), "json", false); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	want := text(someTrials())
	rapid.Check(t, func(r *rapid.T) {
		if got := text(rapid.Permutation(someTrials()).Draw(r, "trials")); got != want {
			r.Fatal("another order gives another report")
		}
	})
}

func TestSweepWithoutOptimum(t *testing.T) {
	trials := someTrials()
	for i := range trials {
		trials[i].Optima = nil
	}
	s := sweep(t, trials, SweepOptions{Baseline: "now"})
	if r := s.Strategies[len(s.Strategies)-1]; r.Eta != nil || r.ByZone[0].Eta != nil || r.Saving.Value == 0 {
		t.Errorf("%+v", r)
	}
	if notes := strings.Join(s.Notes, " "); !strings.Contains(notes, "no η") || strings.Contains(notes, "η is") {
		t.Error("the report does not explain the missing η")
	}
	// If no saving is possible, η is not defined.
	for i := range trials {
		trials[i].Grams, trials[i].Optima = 100, map[string]float64{NonPreemptive: 100, Interruptible: 100}
	}
	if r := sweep(t, trials, SweepOptions{Baseline: "now"}).Strategies[0]; r.Eta != nil || r.Saving.Value != 0 {
		t.Errorf("%+v", r)
	}
}

func TestSweepRefuses(t *testing.T) {
	if _, err := NewSweep(nil, SweepOptions{}); err == nil {
		t.Error("NewSweep() without trials returned no error")
	}
	trials := slices.DeleteFunc(someTrials(), func(t Trial) bool {
		return t.Strategy == "now" && t.Zone == "B" &&
			t.StartIndex == 3
	})
	if _, err := NewSweep(trials, SweepOptions{Baseline: "now"}); err == nil ||
		!strings.Contains(err.Error(), "no trial of the baseline now for wait in B") {
		t.Errorf("NewSweep() without a baseline returned error %v", err)
	}
	_, err := NewSweep(someTrials(), SweepOptions{
		Baseline: "now", Published: []Published{{Strategy: "wait", Forecast: "naive", Figure: "watts"}},
	})
	if err == nil || !strings.Contains(err.Error(), `"watts"`) {
		t.Errorf("NewSweep() with an unknown figure returned error %v", err)
	}
}

func TestWriteSweepDir(t *testing.T) {
	trials := someTrials()
	trials[1].Day = &Day{
		Start: trials[1].Start, Step: time.Hour, Intensity: []float64{200, 300}, Cores: []float64{4, 0},
	}
	published := []Published{{Strategy: "wait", Forecast: "naive", Figure: "eta", Value: 0.13, Source: "<a paper>"}}
	s := sweep(t, trials, SweepOptions{Name: "test & try", Baseline: "now", CarbonPrice: 80, Published: published})
	m := &Manifest{CommandLine: []string{"kubenergy", "compare"}}
	dirs := [2]string{t.TempDir(), t.TempDir()}
	var all [2][]string
	for i, dir := range dirs {
		var err error
		if all[i], err = WriteSweepDir(dir, s, m); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range all[0] {
		one, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		two, err := os.ReadFile(all[1][i])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Errorf("%s changed when it was written again", filepath.Base(path))
		}
		if filepath.Ext(path) == ".png" {
			if picture, err := png.Decode(bytes.NewReader(one)); err != nil || picture.Bounds().Dx() < 1500 {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(dirs[0], "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"test &amp; try: 30 trials in 2 zones, 5 starts", "&lt;a paper&gt;", "η by zone", "default-src 'none'",
		">turnaround</th>", "<li>Of suspending: ", "<li>η is the",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := bytes.Count(page, []byte("<svg")); n != 5 || bytes.Contains(page, []byte("<script")) ||
		bytes.Contains(page, []byte("<?xml")) {
		t.Errorf("the page has %d figures, or forbidden content", n)
	}
	var again Sweep
	text, err := os.ReadFile(filepath.Join(dirs[0], "comparison.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &again); err != nil || again.Kind != "ComparisonReport" ||
		len(again.Published) != 1 ||
		again.Published[0].Measured != 0.125 {
		t.Errorf("%v: %+v", err, again.Published)
	}
}

func TestSweepCSVIsATable(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, sweep(t, someTrials(), SweepOptions{Baseline: "now"}), "csv", false); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	waits, baseline := slices.Index(rows[0], "meanWaitHours"), slices.Index(rows[0], "baseline")
	if len(rows) != 1+3*3 || rows[3][4] != "B" || rows[2][waits] == "" || rows[2][baseline] != "now" {
		t.Errorf("unexpected rows: %q", rows)
	}
}

// Machines that stay on are compared with the baseline on machines that stay on. If there is only one start,
// intervals are computed over seeds.
func TestSweepOfMachinesThatSleep(t *testing.T) {
	var trials []Trial
	for seed := range uint64(4) {
		for _, stayOn := range []bool{true, false} {
			for strategy, grams := range map[string]float64{"now": 1000, "energy": 900 - 10*float64(seed)} {
				if !stayOn {
					grams /= 2
				}
				trial := Trial{
					TrialName: TrialName{
						Variant: Variant{Strategy: strategy, StayOn: stayOn}, Zone: "A", Seed: seed, Family: NonPreemptive,
					},
					Counts: grammes(grams), Jobs: 1,
				}
				if !stayOn {
					trial.Boots, trial.FailedBoots = 3, 1
				}
				trials = append(trials, trial)
			}
		}
	}
	s := sweep(t, trials, SweepOptions{Baseline: "now", Strategies: []string{"now", "energy"}})
	if s.Varied != "seeds" || len(s.Strategies) != 4 {
		t.Fatalf("got %d rows, varied by %s", len(s.Strategies), s.Varied)
	}
	for i, want := range []struct {
		label string
		boots int
		saved float64
	}{{"now, stay on", 0, 0}, {"energy, stay on", 0, 0.115}, {"now", 12, 0}, {"energy", 12, 0.115}} {
		r := &s.Strategies[i]
		if s.label(*r) != want.label || r.Boots != want.boots || !equal(r.Saving.Value, want.saved) ||
			want.saved > 0 && (*r.Saving.Low >= 0.115 || *r.Saving.High <= 0.115 || *r.Saving.Low < 0.1) {
			t.Errorf("%s: %+v", s.label(*r), r)
		}
	}
	text := s.Text(true, false)
	for _, want := range []string{"stay on", "over seeds", "│   3.0 │    1.0 │"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %[2]q in:\n%[1]s", text, want)
		}
	}
}
