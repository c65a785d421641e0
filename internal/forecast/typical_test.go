package forecast_test

import (
	"math"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

func hourly(t testing.TB, zone string, year string) *grid.Series {
	t.Helper()
	s, _, err := grid.ReadCSV(data(t, "carbon/em_hourly/"+zone+"_"+year+".csv.gz"), grid.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Series
}

// TestTypicalDayBeatsAFlatMean compares the curves with a year that was not used for the tables. In sunny zones,
// and on average over all zones with data, a curve must be closer to the actual intensity than its mean.
func TestTypicalDayBeatsAFlatMean(t *testing.T) {
	sunny := map[string]bool{"US-CAL-CISO": true, "AU-NSW": true, "DE": true, "ZA": true}
	var gain float64
	zones := []string{"AU-NSW", "BR-CS", "CA-ON", "DE", "GB", "US-CAL-CISO", "US-MIDA-PJM", "US-TEX-ERCO", "ZA"}
	for _, zone := range zones {
		actual := hourly(t, zone, "2023")
		c, ok := forecast.TypicalDay(grid.Zone(zone))
		if !ok || string(c.Zone) != zone {
			t.Errorf("curve of %s is for %q", zone, c.Zone)
			continue
		}
		// Only the shape is compared, because the level changes from year to year.
		level := actual.Mean(actual.Start(), actual.End()) / float64(c.Mean())
		var off, flat float64
		for i := range actual.Len() {
			at := actual.Start().Add(time.Duration(i) * time.Hour)
			off += math.Abs(actual.Value(i) - level*float64(c.At(at)))
			flat += math.Abs(actual.Value(i) - level*float64(c.Mean()))
		}
		t.Logf("%s: mean error = %.1f %% of the error of a flat mean", zone, 100*off/flat)
		gain += 1 - off/flat
		if sunny[zone] && off >= flat {
			t.Errorf("%s: error of a flat mean = %.1f g, below that of the curve = %.1f g",
				zone, flat/float64(actual.Len()), off/float64(actual.Len()))
		}
	}
	if gain/float64(len(zones)) < 0.1 {
		t.Errorf("curves reduce the mean error by only %.1f %%", 100*gain/float64(len(zones)))
	}
}

// TestTypicalScaledToThePresent checks that scaling a curve to the current value reduces the error over the next
// two days.
func TestTypicalScaledToThePresent(t *testing.T) {
	for _, zone := range []string{"AU-NSW", "DE", "GB", "US-CAL-CISO"} {
		actual := hourly(t, zone, "2023")
		c, _ := forecast.TypicalDay(grid.Zone(zone))
		var scaled, plain float64
		for i := 0; i+48 < actual.Len(); i += 7 {
			at := actual.Start().Add(time.Duration(i) * time.Hour)
			for _, try := range []struct {
				present float64
				off     *float64
			}{{actual.Value(i), &scaled}, {0, &plain}} {
				f, err := forecast.Typical(c, try.present, at, 48*time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				for h := range 48 {
					*try.off += math.Abs(f.Series.Value(h)-actual.Value(i+h)) / actual.Value(i+h)
				}
			}
		}
		if scaled > plain {
			t.Errorf("%s: error scaled to the current value = %.2f of the error without scaling", zone, scaled/plain)
		}
	}
}

func TestTypical(t *testing.T) {
	c, ok := forecast.TypicalDay("DE")
	if !ok {
		t.Fatal("DE has no curve")
	}
	from := time.Date(2026, 6, 1, 10, 20, 0, 0, time.UTC)
	f, err := forecast.Typical(c, 600, from, 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	valid(t, f)
	if !f.Series.Covers(from, from.Add(48*time.Hour)) || f.Series.Start() != from.Truncate(time.Hour) ||
		f.Model != forecast.TypicalModel || f.Low != nil {
		t.Errorf("forecast is from %v to %v by model %q", f.Series.Start(), f.Series.End(), f.Model)
	}
	if got := f.Series.Value(0); math.Abs(got-600) > 1e-9 {
		t.Errorf("first value = %v, want the current value", got)
	}
	tomorrow := float64(c.At(from)) * math.Sqrt(600/float64(c.At(from)))
	if got := f.Series.Value(24); math.Abs(got/tomorrow-1) > 0.01 {
		t.Errorf("value after one day = %v, want half of the deviation, %v", got, tomorrow)
	}
	plain, err := forecast.Typical(c, 0, from, time.Hour)
	if err != nil || plain.Series.Value(0) != float64(c.At(from)) {
		t.Errorf("without a current value: got %v, error = %v, want %v", plain.Series, err, c.At(from))
	}
	for _, horizon := range []time.Duration{0, -time.Hour, forecast.MaxHorizon + 1} {
		if _, err := forecast.Typical(c, 0, from, horizon); err == nil {
			t.Errorf("horizon of %v was accepted", horizon)
		}
	}
}

func TestTypicalDayOfZonesWithoutACurve(t *testing.T) {
	for zone, want := range map[grid.Zone]grid.Zone{
		"DE-XX": "DE", "CA-NL-LB": "CA-NL", "US-HI-OA": "US-HI", "XX": "", "": "", "-": "",
	} {
		c, ok := forecast.TypicalDay(zone)
		if c.Zone != want || ok != (want != "") {
			t.Errorf("curve of %q is for %q, ok = %v, want %q", zone, c.Zone, ok, want)
		}
		if c.At(t0) <= 0 || c.Mean() <= 0 {
			t.Errorf("curve of %q has a value of %v and a mean of %v", zone, c.At(t0), c.Mean())
		}
	}
	world, _ := forecast.TypicalDay("XX")
	if world.At(t0) != world.At(t0.Add(12*time.Hour)) || math.Abs(float64(world.Mean()-forecast.WorldMean)) > 1e-6 {
		t.Errorf("world curve = %v with a mean of %v, want constant %v", world.At(t0), world.Mean(), forecast.WorldMean)
	}
}

// TestCurveOverTheYear checks that there is no step between seasons, and that the intensity is lowest in the summer
// of the hemisphere.
func TestCurveOverTheYear(t *testing.T) {
	for zone, summer := range map[grid.Zone]time.Month{"ES": time.June, "AU-NSW": time.December} {
		c, _ := forecast.TypicalDay(zone)
		noon := map[grid.Zone]int{"ES": 12, "AU-NSW": 2}[zone]
		last := c.At(time.Date(2026, 12, 31, noon, 0, 0, 0, time.UTC))
		least, when := last, time.Time{}
		for d := range 365 {
			at := time.Date(2026, 1, 1+d, noon, 0, 0, 0, time.UTC)
			now := c.At(at)
			if math.Abs(float64(now-last)) > 0.01*float64(c.Mean()) {
				t.Errorf("%s: %v after %v on %s", zone, now, last, at.Format(time.DateOnly))
			}
			if last = now; now < least {
				least, when = now, at
			}
		}
		if off := (int(when.Month()) - int(summer) + 12) % 12; off > 1 {
			t.Errorf("%s: minimum is on %s, want about %v", zone, when.Format(time.DateOnly), summer)
		}
	}
}

func BenchmarkTypicalDay(b *testing.B) {
	for b.Loop() {
		c, _ := forecast.TypicalDay("US-TEX-ERCO")
		if c.Mean() <= 0 {
			b.Fatal("no mean")
		}
	}
}
