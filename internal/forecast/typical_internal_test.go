package forecast

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/test/kit"
)

var rewrite = flag.Bool("rewrite", false, "regenerate the tables of typical days from the shared data directory")

// shared decompresses a file in the shared data directory, or skips the test if it does not exist.
func shared(t testing.TB, name string) []byte {
	t.Helper()
	text, err := grid.ReadFile(filepath.Join(filepath.FromSlash("../../../shared/data"), filepath.FromSlash(name)))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("shared data directory is not available: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTypicalTables checks that the tables match their sources.
func TestTypicalTables(t *testing.T) {
	for name, want := range map[string][]byte{
		"means.csv": meansTable(t, shared(t, "carbon/em_yearly/yearly_2024.json.gz")),
		"curves.csv": curvesTable(t, map[string][]byte{
			"US-CAL-CISO": shared(t, "carbon/eia_2022/CISO_2022.csv.gz"),
			"US-NW-BPAT":  shared(t, "carbon/eia_2022/BPAT_2022.csv.gz"),
		}),
	} {
		kit.Golden(t, filepath.Join("typical", name), want, *rewrite)
	}
}

const meansHeader = `# Mean carbon intensity of 2024 in gCO2e/kWh, lifecycle, of consumption, rounded to two digits. Contains information from
# Electricity Maps (yearly data, by way of CO2.js), made available under the Open Database License (ODbL) 1.0, as is this
# file. Written by: go test ./internal/forecast -run TypicalTables -rewrite
zone,mean
`

func meansTable(t testing.TB, text []byte) []byte {
	t.Helper()
	var zones map[string]struct {
		CarbonIntensity struct {
			Value float64 `json:"value"`
			Unit  string  `json:"unit"`
		} `json:"carbonIntensity"`
	}
	if err := json.Unmarshal(text, &zones); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString(meansHeader)
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		mean := zones[zone].CarbonIntensity
		if mean.Unit != "gCO2eq/kWh" {
			t.Fatalf("unit of %s is %s", zone, mean.Unit)
		}
		fmt.Fprintf(&b, "%s,%.0f\n", zone, twoDigits(mean.Value))
	}
	return b.Bytes()
}

func twoDigits(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/unit) * unit
}

const curvesHeader = `# Mean carbon intensity in g/kWh by season (0: December to February) and hour UTC, 2022, of generation, rounded to whole
# grams. Only its shape is used: the level is that of means.csv. From the hourly generation by source that the U.S. Energy
# Information Administration publishes, which is in the public domain.
# Written by: go test ./internal/forecast -run TypicalTables -rewrite
`

func curvesTable(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(curvesHeader)
	b.WriteString("zone,season")
	for hour := range hours {
		fmt.Fprintf(&b, ",%02d", hour)
	}
	b.WriteString("\n")
	for _, zone := range slices.Sorted(maps.Keys(files)) {
		rows, err := csv.NewReader(bytes.NewReader(files[zone])).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		column := slices.Index(rows[0], "avg_CI")
		var sums [seasons][hours]mean
		for _, row := range rows[1:] {
			at, err := time.Parse("2006-01-02 15:04:05-07:00", row[0])
			if err != nil {
				t.Fatal(err)
			}
			if row[column] == "" {
				continue
			}
			v, err := strconv.ParseFloat(row[column], 64)
			if err != nil {
				t.Fatal(err)
			}
			sums[int(at.Month())%12/3][at.UTC().Hour()].add(v)
		}
		for season := range sums {
			fmt.Fprintf(&b, "%s,%d", zone, season)
			for hour := range sums[season] {
				fmt.Fprintf(&b, ",%.0f", sums[season][hour].value())
			}
			b.WriteString("\n")
		}
	}
	return b.Bytes()
}

func TestTypicalTablesAreWhole(t *testing.T) {
	tables, err := readTypical()
	if err != nil {
		t.Fatal(err)
	}
	if len(tables.means) < 300 || len(tables.curves) == 0 || len(tables.solar) == 0 {
		t.Errorf("got %d means, %d curves and %d solar fractions", len(tables.means), len(tables.curves),
			len(tables.solar))
	}
	for zone := range tables.curves {
		if _, ok := tables.means[zone]; !ok {
			t.Errorf("zone %s has a curve, but no mean", zone)
		}
	}
	for zone, s := range tables.solar {
		if s.share < 0 || s.share > 0.5 || math.Abs(s.latitude) > 70 || math.Abs(s.longitude) > 180 {
			t.Errorf("zone %s: invalid solar entry: %+v", zone, s)
		}
	}
	for zone, mean := range tables.means {
		c, ok := TypicalDay(zone)
		if !ok || c.Zone != zone || math.Abs(float64(c.Mean())-mean) > 1e-9*mean {
			t.Errorf("curve of %s is for %q and has a mean of %v, want %v", zone, c.Zone, c.Mean(), mean)
		}
		for _, day := range c.values {
			if least := slices.Min(day[:]); least < 0.2*mean {
				t.Errorf("minimum of %s = %v with a mean of %v", zone, least, mean)
			}
		}
	}
}

func TestEachRowRefuses(t *testing.T) {
	table := &typical{
		means: map[grid.Zone]float64{}, curves: map[grid.Zone][seasons][hours]float64{}, solar: map[grid.Zone]solar{},
	}
	for name, c := range map[string]struct {
		text string
		use  func(grid.Zone, []float64) error
	}{
		"no number":     {"zone,mean\nDE,much\n", table.addMean},
		"no mean":       {"zone,mean\nDE,0\n", table.addMean},
		"two means":     {"zone,mean,more\nDE,1,2\n", table.addMean},
		"ragged":        {"zone,mean\nDE,1,2\n", table.addMean},
		"a short curve": {"zone,season,00\nDE,0,1\n", table.addCurve},
		"no longitude":  {"zone,percent,latitude\nDE,1,2\n", table.addSolar},
	} {
		if err := eachRow([]byte(c.text), c.use); err == nil {
			t.Errorf("%s: expected an error", name)
		}
	}
}
