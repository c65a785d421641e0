package grid_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

const header = "datetime_utc,zone,ci_direct_g_per_kwh,ci_lifecycle_g_per_kwh,low_carbon_pct,renewable_pct,estimated\n"

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grid.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadCSV(t *testing.T) {
	text := header +
		"2022-01-01T00:00Z,DE,163.46,213.79,81.25,73.73,0\n" +
		"2022-01-01T00:00Z,FR,30,40,1,1,0\n" +
		"2022-01-01T01:00Z,DE,166.66,218.0,80.81,72.84,0\n" +
		"2022-01-01T01:00Z,FR,31,41,1,1,1\n"
	for name, c := range map[string]struct {
		text    string
		options grid.CSVOptions
		second  float64
		step    time.Duration
		quality energy.Quality
	}{
		"one of two zones":     {text, grid.CSVOptions{Zone: "DE"}, 218, time.Hour, energy.Derived},
		"the other, estimated": {text, grid.CSVOptions{Zone: "FR"}, 41, time.Hour, energy.Estimated},
		"another column": {
			text,
			grid.CSVOptions{Zone: "DE", Column: "ci_direct_g_per_kwh"},
			166.66, time.Hour,
			energy.Derived,
		},
		"gzip": {string(kit.Gzip([]byte(text))), grid.CSVOptions{Zone: "DE"}, 218, time.Hour, energy.Derived},
		"carriage returns": {
			strings.ReplaceAll(text, "\n", "\r\n"),
			grid.CSVOptions{Zone: "DE"},
			218, time.Hour,
			energy.Derived,
		},
		"byte order mark": {"\xef\xbb\xbf" + text, grid.CSVOptions{Zone: "DE"}, 218, time.Hour, energy.Derived},
		"two columns, finer": {
			"Time,Carbon Intensity\n2019-12-20 00:00:00,218.29\n2019-12-20 00:15:00,217.88\n",
			grid.CSVOptions{},
			217.88, 15 * time.Minute, energy.Derived,
		},
		"a column for a zone": {
			"datetime_utc,DE,FR\n2022-01-01T00:00Z,1,2\n2022-01-01T01:00Z,3,4\n",
			grid.CSVOptions{Zone: "FR"},
			4, time.Hour, energy.Derived,
		},
		"a zone named LB": {
			"datetime_utc,LB,FR\n2022-01-01T00:00Z,1,2\n2022-01-01T01:00Z,3,4\n",
			grid.CSVOptions{Zone: "LB"},
			3, time.Hour, energy.Derived,
		},
		"prices beside carbon": {
			"t," + grid.DefaultColumn +
				",price_per_kwh\n2022-01-01T00:00Z,400,0.1\n2022-01-01T01:00Z,400,0.2\n",
			grid.CSVOptions{Price: true, Column: "price_per_kwh"},
			0.2, time.Hour, energy.Derived,
		},
		"generation by source": {
			",UTC time,carbon_intensity,coal,wind\n0,2020-01-01 " +
				"00:00:00,354.59,45194,26849\n1,2020-01-01 01:00:00,350.5,45000,27000\n",
			grid.CSVOptions{Zone: "DE"},
			350.5, time.Hour, energy.Derived,
		},
		"with an offset": {
			",UTC time,carbon_intensity,coal\n0,2019-01-01 " +
				"00:00:00+00:00,229.21,9.0\n1,2019-01-01 01:00:00+00:00,230,9.0\n",
			grid.CSVOptions{},
			230, time.Hour,
			energy.Derived,
		},
		"price per MWh": {
			"t,price_usd_per_mwh\n2022-01-01T00:00Z,-5\n2022-01-01T01:00Z,75\n",
			grid.CSVOptions{Price: true},
			0.075, time.Hour, energy.Derived,
		},
	} {
		signal, _, err := grid.ReadCSV(write(t, c.text), c.options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := signal.Series.Value(1); got != c.second || signal.Series.Step() != c.step ||
			signal.Quality != c.quality {
			t.Errorf("%s: second value = %v, step %v, quality %v, want %v, %v, %v", name, got, signal.Series.Step(),
				signal.Quality, c.second, c.step, c.quality)
		}
	}
}

func TestReadCSVRefuses(t *testing.T) {
	row := func(at, value string) string { return "2022-01-01T" + at + "Z,DE,1," + value + ",1,1,0\n" }
	for name, c := range map[string]struct {
		text    string
		options grid.CSVOptions
		want    string
	}{
		"empty":       {"", grid.CSVOptions{}, "grid.csv: the file is empty"},
		"header only": {header, grid.CSVOptions{}, "grid.csv: the file has no values"},
		"truncated row": {
			header + row("00:00", "1") + "2022-01-01T01:00Z,DE,1",
			grid.CSVOptions{},
			"grid.csv:3: the row has fewer or more fields",
		},
		"NaN": {
			header + row("00:00", "NaN"),
			grid.CSVOptions{},
			"grid.csv:2: ci_lifecycle_g_per_kwh: \"NaN\" is not a finite number",
		},
		"infinite": {header + row("00:00", "+Inf"), grid.CSVOptions{}, "is not a finite number"},
		"negative": {
			header + row("00:00", "1") + row("01:00", "-0.5"),
			grid.CSVOptions{},
			"grid.csv:3: ci_lifecycle_g_per_kwh: \"-0.5\" is negative",
		},
		"another unit": {header + row("00:00", "213790"), grid.CSVOptions{}, "is the unit different"},
		"no number":    {header + row("00:00", "many"), grid.CSVOptions{}, "\"many\" is not a number"},
		"blank":        {header + row("00:00", ""), grid.CSVOptions{}, "\"\" is not a number"},
		"unknown zone": {header + row("00:00", "1"), grid.CSVOptions{Zone: "XX"}, `no zone "XX": the file has DE`},
		"unknown column": {
			header + row("00:00", "1"),
			grid.CSVOptions{Column: "co2"},
			`no column "co2": the file has ci_direct_g_per_kwh, ci_lifecycle_g_per_kwh`,
		},
		"which zone": {
			header + row("00:00", "1") + strings.Replace(row("00:00", "1"), "DE", "FR", 1),
			grid.CSVOptions{},
			"select one",
		},
		"gap": {
			header + row("00:00", "1") + row("01:00", "1") + row("03:00", "1"),
			grid.CSVOptions{},
			"grid.csv:4: time: a gap",
		},
		"twice": {
			header + row("00:00", "1") + row("01:00", "1") + row("01:00", "1"),
			grid.CSVOptions{},
			"grid.csv:4: time:",
		},
		"backwards": {header + row("01:00", "1") + row("00:00", "1"), grid.CSVOptions{}, "grid.csv:3: time:"},
		"coarse":    {header + row("00:00", "1") + row("06:00", "1"), grid.CSVOptions{}, "want an hour or less"},
		"no time": {
			header + "yesterday,DE,1,1,1,1,0\n",
			grid.CSVOptions{},
			`grid.csv:2: time: "yesterday" is not a time`,
		},
		"no header": {
			"2022-01-01T00:00Z,1\n2022-01-01T01:00Z,2\n",
			grid.CSVOptions{},
			"the first line is a row of values",
		},
		"percent": {"t,low_carbon_pct\n2022-01-01T00:00Z,1\n", grid.CSVOptions{}, "does not look like gCO2e"},
		"carbon as price": {
			"t," + grid.DefaultColumn + ",price\n2022-01-01T00:00Z,15,0.1\n",
			grid.CSVOptions{Price: true},
			"select a column",
		},
		"price of a MWh": {"t,per kWh\n2022-01-01T00:00Z,120\n", grid.CSVOptions{Price: true}, "is the unit different"},
		"price in euros": {
			"t,EUR/kWh\n2022-01-01T00:00Z,31\n",
			grid.CSVOptions{Price: true, Currency: "EUR"},
			"is above 20 per kWh",
		},
		"price in yen": {
			"t,JPY/kWh\n2022-01-01T00:00Z,2001\n",
			grid.CSVOptions{Price: true, Currency: "JPY"},
			"is above 2000 per kWh",
		},
		"all before": {
			"t,v\n2022-01-01T00:00Z,1\n",
			grid.CSVOptions{From: t0.AddDate(9, 0, 0)},
			"no values in the requested time range",
		},
		"all after": {
			"t,v\n2022-01-01T00:00Z,1\n",
			grid.CSVOptions{Until: t0.AddDate(-9, 0, 0)},
			"no values in the requested time range",
		},
		"gap before From": {
			"t,v\n2022-01-01T00:00Z,1\n2022-01-01T01:00Z,1\n2022-01-01T04:00Z,1\n",
			grid.CSVOptions{From: time.Date(2022, 1, 1, 4, 0, 0, 0, time.UTC)},
			"a gap",
		},
		"one column":       {"time\n", grid.CSVOptions{}, "one column"},
		"truncated gzip":   {"\x1f\x8b\x08\x00", grid.CSVOptions{}, "unpacking"},
		"two, none chosen": {"t,a,b\n2022-01-01T00:00Z,1,2\n", grid.CSVOptions{}, "select a column: the file has a, b"},
		"wide, not a zone": {
			"t,A,B\n2022-01-01T00:00Z,1,2\n",
			grid.CSVOptions{Zone: "C"},
			`no zone "C": the file has A, B`,
		},
		"wide, no zone": {"t,A,B\n2022-01-01T00:00Z,1,2\n", grid.CSVOptions{}, "select a zone: the file has A, B"},
		"columns are no zones": {
			"id,submit_time,duration,cpu\na,0,60,1\n",
			grid.CSVOptions{Zone: "DE"},
			`select a column: the file has neither a column "zone" nor a column DE, but submit_time, duration, cpu`,
		},
	} {
		signal, _, err := grid.ReadCSV(write(t, c.text), c.options)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.want)
		}
		if signal.Series != nil {
			t.Errorf("%s: ReadCSV() returned both a series and an error", name)
		}
	}
	if _, _, err := grid.ReadCSV(filepath.Join(t.TempDir(), "none.csv"), grid.CSVOptions{}); err == nil ||
		!strings.HasSuffix(err.Error(), "none.csv: no such file or directory") {
		t.Errorf("unexpected error for a missing file: %v", err)
	}
}

// Only the values in the time range are kept, with the step of the whole file.
func TestReadCSVOfATime(t *testing.T) {
	start := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	var text strings.Builder
	text.WriteString("t,v\n")
	for i := range 12 {
		fmt.Fprintf(&text, "%s,%d\n", start.Add(time.Duration(i)*30*time.Minute).Format(time.RFC3339), i)
	}
	for _, c := range []struct {
		from, until time.Time
		first, last float64
	}{
		{time.Time{}, time.Time{}, 0, 11},
		{start.Add(time.Hour), time.Time{}, 2, 11},
		{time.Time{}, start.Add(time.Hour), 0, 1},
		{start.Add(5 * time.Minute), start.Add(time.Hour + time.Minute), 1, 2},
		{start.Add(time.Hour), start.Add(time.Hour + time.Minute), 2, 2},
	} {
		signal, _, err := grid.ParseCSV("x", []byte(text.String()), grid.CSVOptions{From: c.from, Until: c.until})
		if err != nil {
			t.Fatal(err)
		}
		s := signal.Series
		if s.Value(0) != c.first || s.Value(s.Len()-1) != c.last || s.Step() != 30*time.Minute ||
			s.Start() != start.Add(time.Duration(c.first)*s.Step()) {
			t.Errorf("from %v until %v: got values %v to %v, step %v, start %v", c.from, c.until, s.Value(0), s.Value(s.Len()-1),
				s.Step(), s.Start())
		}
	}
}

// A text is limited to the given number of bytes, compressed or not.
func TestReadText(t *testing.T) {
	for _, text := range []string{"12345", string(kit.Gzip([]byte("12345")))} {
		for limit, want := range map[int64]bool{4: false, 5: true, 6: true, math.MaxInt64: true} {
			got, err := grid.ReadText(strings.NewReader(text), limit)
			if (err == nil) != want || want && string(got) != "12345" {
				t.Errorf("ReadText() of five bytes with a limit of %d = %q, %v", limit, got, err)
			}
		}
	}
}

// All values of the real year are read.
func TestReadCSVRealYear(t *testing.T) {
	path := filepath.FromSlash("../../../shared/data/carbon/em_hourly/DE_2022.csv.gz")
	if _, err := os.Stat(path); err != nil {
		t.Skip("skipping because the shared data directory is missing: ", err)
	}
	signal, zone, err := grid.ReadCSV(path, grid.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := signal.Series
	if zone != "DE" || s.Len() != 8760 || s.Step() != time.Hour || s.Value(0) != 213.79 {
		t.Errorf("unexpected result: zone %s, %d values with step %v, first value %v", zone, s.Len(), s.Step(), s.Value(0))
	}
}

func FuzzReadCSV(f *testing.F) {
	f.Add([]byte(header + "2022-01-01T00:00Z,DE,1,2,3,4,0\n2022-01-01T01:00Z,DE,1,2,3,4,0\n"))
	f.Add([]byte("t,v\n2022-01-01 00:00:00,1\n"))
	f.Add([]byte("Interval End;g/kWh\n01/10/2024 00:00 (CET) - x;1,5\n01/10/2024 00:15;2\n01/10/2024 00:05;3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		signal, _, err := grid.ReadCSV(write(t, string(text)), grid.CSVOptions{})
		if (err == nil) != (signal.Series != nil) {
			t.Errorf("ReadCSV() returned error %v and series %v", err, signal.Series)
		}
		filled := 0
		with, _, failed := grid.ParseCSV("x", text, grid.CSVOptions{Fill: 24 * time.Hour, Filled: &filled})
		if (failed == nil) != (with.Series != nil) || err == nil && (failed != nil || filled != 0) {
			t.Errorf("ParseCSV() filled %d values and returned error %v and series %v", filled, failed, with.Series)
		}
	})
}
