package signal

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

var (
	average  = terms{zone: "DE", quantity: carbon, maxAge: 2 * time.Hour}
	moer     = terms{zone: "DE", quantity: carbon, marginal: true, maxAge: 2 * time.Hour}
	inEuros  = terms{zone: "DE", quantity: price, currency: "EUR", maxAge: 36 * time.Hour}
	inCrowns = terms{zone: "DE", quantity: price, currency: "CZK", maxAge: 36 * time.Hour}
)

// describe formats points, with ~ before estimated values and the hours from noon if they are not consecutive.
func describe(points []Point) string {
	var words []string
	for _, p := range points {
		mark := ""
		if p.Estimated {
			mark = "~"
		}
		words = append(words, fmt.Sprintf("%s%v", mark, p.Value))
	}
	return strings.Join(words, " ")
}

func TestOutliers(t *testing.T) {
	for name, c := range map[string]struct {
		terms terms
		ahead int // number of values after the current one
		in    []float64
		want  string
	}{
		"zero":                       {average, 3, []float64{212, 210, 0, 205, 214, 220}, "212 210 ~210 205 214 220"},
		"in another unit":            {average, 3, []float64{212, 210, 2050, 205, 214, 220}, "212 210 ~210 205 214 220"},
		"the current value":          {average, 2, []float64{212, 210, 0, 214, 220}, "212 210 ~210 214 220"},
		"in the forecast":            {average, 3, []float64{212, 210, 205, 5000, 214}, "212 210 205 ~205 214"},
		"twice":                      {average, 2, []float64{212, 0, 205, 9999, 214}, "212 ~212 205 ~205 214"},
		"two in succession":          {average, 2, []float64{212, 9999, 0, 205}, "212 ~212 ~212 205"},
		"the last value":             {average, 0, []float64{212, 210, 0}, "212 210 ~210"},
		"a lasting change":           {average, 1, []float64{100, 100, 900, 905, 910}, "100 100 900 905 910"},
		"a steep ramp":               {average, 1, []float64{20, 70, 300, 320}, "20 70 300 320"},
		"solar noon":                 {average, 2, []float64{400, 200, 90, 180, 390}, "400 200 90 180 390"},
		"a clean grid":               {average, 2, []float64{5, 4, 12, 3, 0}, "5 4 12 3 0"},
		"a single value":             {average, 0, []float64{0}, "0"},
		"marginal, curtailed":        {moer, 2, []float64{420, 417, 40, 425, 420}, "420 417 40 425 420"},
		"marginal, in another unit":  {moer, 2, []float64{420, 417, 9260, 425, 420}, "420 417 ~417 425 420"},
		"a price of five times":      {inEuros, 2, []float64{0.10, 0.12, 0.60, 0.15, 0.09}, "0.1 0.12 0.6 0.15 0.09"},
		"a negative price":           {inEuros, 2, []float64{0.10, 0.02, -0.13, 0.03, 0.09}, "0.1 0.02 -0.13 0.03 0.09"},
		"a price for a missing one":  {inEuros, 2, []float64{0.10, 0.08, -0.999, 0.08, 0.09}, "0.1 0.08 ~0.08 0.08 0.09"},
		"a price per MWh":            {inEuros, 2, []float64{0.010, 0.012, 12, 0.015, 0.012}, "0.01 0.012 ~0.012 0.015 0.012"},
		"a spike of two intervals":   {inEuros, 1, []float64{0.10, 0.12, 4, 3.5, 0.09}, "0.1 0.12 4 3.5 0.09"},
		"prices in another currency": {inCrowns, 2, []float64{0.1, 0.2, 2.2, 0.3, 0.2}, "0.1 0.2 2.2 0.3 0.2"},
	} {
		now := noon.Truncate(time.Hour)
		a := hourly(now, len(c.in)-1-c.ahead, c.in...)
		recent := c.terms.replaceOutliers(&a, nil, now)
		if got := describe(a.Points); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if last := recent[len(recent)-1]; last.Value != c.in[len(c.in)-1-c.ahead] || !last.Time.Equal(now) {
			t.Errorf("%s: the last value for the next call is %+v", name, last)
		}
	}
}

// TestOutliersOfSingleValues verifies that the values of sources without a history are compared with earlier ones.
func TestOutliersOfSingleValues(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		in    []float64
		want  string
	}{
		"an outlier":             {5 * time.Minute, []float64{300, 302, 0, 303, 301}, "300 302 ~302 303 301"},
		"every other value":      {5 * time.Minute, []float64{300, 0, 302, 0, 303, 0}, "300 ~300 302 ~302 303 ~303"},
		"a lasting change":       {5 * time.Minute, []float64{300, 302, 20, 21, 22}, "300 302 ~302 21 22"},
		"a repeated reading":     {20 * time.Minute, []float64{300, 20, 20, 20, 300, 301}, "300 ~300 ~300 ~300 300 301"},
		"a change to a constant": {20 * time.Minute, []float64{300, 20, 20, 20, 20, 20}, "300 ~300 ~300 ~300 20 20"},
		"after a gap":            {3 * time.Hour, []float64{300, 20, 300}, "300 20 300"},
		"the first value":        {5 * time.Minute, []float64{0, 300, 301, 302}, "0 ~0 301 302"},
	} {
		var recent, got []Point
		for i, v := range c.in {
			now := noon.Add(time.Duration(i) * c.every)
			a := Answer{Points: []Point{{Time: now, Value: v}}}
			recent = average.replaceOutliers(&a, recent, now)
			got = append(got, a.Points...)
		}
		if text := describe(got); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// TestOutlierDoesNotDecide verifies that a keeper does not use an implausible current value, reports it, also after
// a restart, and uses it once the next value confirms it. Values of files are used as they are.
func TestOutlierDoesNotDecide(t *testing.T) {
	now, value, ageless := noon, 300.0, false
	source := &scripted{name: "static", fetch: func(now time.Time) (Answer, error) {
		return Answer{Points: []Point{{Time: now, Value: value}}, IssuedAt: now, Ageless: ageless}, nil
	}}
	k := chain(t, &now, source)
	k.poll(t.Context())
	before, err := k.Look(now)
	if err != nil || before.Now != 300 || before.Quality == "estimated" {
		t.Fatalf("%+v, %v", before, err)
	}
	k = chain(t, &now, source)
	k.Seed(before)
	poll := func(v, want float64, implausible bool) {
		t.Helper()
		now, value = now.Add(20*time.Minute), v
		k.poll(t.Context())
		s, err := k.Look(now)
		if s.Now != want || (s.Quality == "estimated") != implausible || (err != nil) != implausible ||
			err != nil && dial.ReasonOf(err) != dial.ReasonRange {
			t.Errorf("after %v: %v %s, %v; want %v, implausible %t", v, s.Now, s.Quality, err, want, implausible)
		}
	}
	poll(3, 300, true)
	poll(310, 310, false)
	poll(2, 310, true)
	poll(2.5, 2.5, false)
	ageless = true
	poll(500, 500, false)
}

// TestSandboxIsLeft verifies that the next source is used if the key of the first one is for the sandbox.
func TestSandboxIsLeft(t *testing.T) {
	now := noon
	p := newProvider(t, description("%s", strings.Replace(latest("DE", noon.Truncate(time.Hour), "302"), `"zone"`,
		`"estimationMethod":"SANDBOX_MODE_DATA","zone"`, 1)))
	k := carbonKeeper(t, testDeps(&now), electricityMapsAt(p.URL), staticSource(400))
	k.poll(t.Context())
	if s, err := k.Look(now); s == nil || s.Source != "static" || s.Now != 400 || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestOutliersInRealSeries measures how many values of real series are replaced. The limits are documented at the
// thresholds.
func TestOutliersInRealSeries(t *testing.T) {
	data := filepath.Join("..", "..", "..", "..", "shared", "data")
	for _, c := range []struct {
		name              string
		terms             terms
		files             string // pattern
		columns           []string
		minimum, replaced int
	}{
		{"Electricity Maps, by year", average, "carbon/em_hourly/*.csv.gz",
			[]string{"ci_direct_g_per_kwh", "ci_lifecycle_g_per_kwh"}, 590_000, 10},
		{"Electricity Maps, 79 zones", average, "carbon/em_2022_wide_79zones.csv.gz", nil, 690_000, 2},
		{"ENTSO-E", average, "carbon/opendc/*.csv.gz", []string{"ci_g_per_kwh"}, 100_000, 0},
		{"ENTSO-E, 2020", average, "carbon/lets_wait_awhile/*.csv.gz", []string{"Carbon Intensity"}, 50_000, 0},
		{"EIA", average, "carbon/eia_2022/*.csv.gz", []string{"avg_CI"}, 17_000, 0},
		{"mixes", average, "carbon/mix_weather/*_emissions.csv.gz", []string{"carbon_intensity"}, 190_000, 0},
		{"WattTime", moer, "carbon/watttime_*.csv.gz", []string{"Caiso_North"}, 8_900, 0},
		{"prices", inEuros, "price/day_ahead_or_spot/*.csv.gz", []string{"price_usd_per_mwh", "Price (EUR/MWh)"},
			330_000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			paths, err := filepath.Glob(filepath.Join(data, c.files))
			if err != nil || len(paths) == 0 {
				t.Skip("missing public data")
			}
			values, replaced := 0, 0
			for _, path := range paths {
				for _, series := range readColumns(t, path, c.columns) {
					if c.terms.quantity == price {
						for i := range series {
							series[i].Value /= 1000
						}
					}
					a := Answer{Points: series}
					c.terms.replaceOutliers(&a, nil, series[len(series)-1].Time)
					values += len(series)
					for i, p := range a.Points {
						if p.Estimated {
							replaced++
							t.Logf("%s: %s", filepath.Base(path), describe(series[max(0, i-1):min(len(series), i+2)]))
						}
					}
				}
			}
			if values < c.minimum || replaced > c.replaced {
				t.Errorf("%d of %d values replaced, want at most %d of at least %d", replaced, values, c.replaced, c.minimum)
			}
		})
	}
}

// readColumns returns the named columns of a file, or all columns but the first, as hourly points without gaps.
func readColumns(t *testing.T, path string, names []string) [][]Point {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows := csv.NewReader(text)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err != nil {
		t.Fatal(err)
	}
	var columns []int
	for i, name := range header {
		if names == nil && i > 0 || slices.Contains(names, name) {
			columns = append(columns, i)
		}
	}
	series := make([][]Point, len(columns))
	for at := noon; ; at = at.Add(time.Hour) {
		row, err := rows.Read()
		if err == io.EOF {
			return series
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, column := range columns {
			if v, err := strconv.ParseFloat(row[column], 64); err == nil {
				series[i] = append(series[i], Point{Time: at, Value: v})
			}
		}
	}
}
