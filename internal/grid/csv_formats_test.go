package grid_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// The texts are constructed after the layouts of the providers.
func TestFormats(t *testing.T) {
	const gridstatus = "Time,Interval Start,Interval End,Market,LMP\n" +
		"2025-03-09 01:00:00-08:00,2025-03-09 01:00:00-08:00,2025-03-09 03:00:00-07:00,DAM,12\n" +
		"2025-03-09 03:00:00-07:00,2025-03-09 03:00:00-07:00,2025-03-09 04:00:00-07:00,DAM,13\n"
	smard := func(rows ...string) string {
		return "Datum von;Datum bis;Deutschland/Luxemburg [€/MWh] Berechnete Auflösungen\n" + strings.Join(rows, "\n") + "\n"
	}
	for name, c := range map[string]struct {
		text   string
		zone   string
		o      grid.CSVOptions
		start  string
		step   time.Duration
		values []float64
	}{
		"SMARD in summer": {
			smard("01.07.2024 00:00;01.07.2024 00:15;1.080,50", "01.07.2024 00:15;01.07.2024 00:30;-31,25"), "Europe/Berlin",
			grid.CSVOptions{Price: true}, "2024-06-30T22:00:00Z", 15 * time.Minute, []float64{1.0805, -0.03125},
		},
		"SMARD in English": {
			"Start date;End date;Germany/Luxembourg [€/MWh] Original resolutions\n" +
				"Oct 1, 2024 12:00 AM;Oct 1, 2024 1:00 AM;1,081.5\nOct 1, 2024 1:00 AM;Oct 1, 2024 2:00 AM;-\n" +
				"Oct 1, 2024 2:00 AM;Oct 1, 2024 3:00 AM;1083.5\nOct 1, 2024 3:00 AM;Oct 1, 2024 4:00 AM;1084.5\n", "Europe/Berlin",
			grid.CSVOptions{Price: true, Fill: time.Hour}, "2024-09-30T22:00:00Z", time.Hour, []float64{1.0815, 1.0825, 1.0835, 1.0845},
		},
		"date and time in two columns": {
			"Datum;Anfang;Ende;CO2 [g/kWh]\n01.10.2024;00:00;00:15;380,57\n01.10.2024;00:15;00:30;381\n", "Europe/Berlin",
			grid.CSVOptions{}, "2024-09-30T22:00:00Z", 15 * time.Minute, []float64{380.57, 381},
		},
		"the repeated hour": {
			"t\tCO2 g/kWh\n2024-10-27 01:00\t1\n2024-10-27 02:00\t2\n2024-10-27 02:00\t3\n2024-10-27 03:00\t4\n",
			"Europe/Berlin", grid.CSVOptions{}, "2024-10-26T23:00:00Z", time.Hour, []float64{1, 2, 3, 4},
		},
		"the repeated hour in halves": {
			"t,v\n2024-11-03 01:00,1\n2024-11-03 01:30,2\n2024-11-03 01:00,3\n2024-11-03 01:30,4\n2024-11-03 02:00,5\n",
			"America/New_York", grid.CSVOptions{}, "2024-11-03T05:00:00Z", 30 * time.Minute, []float64{1, 2, 3, 4, 5},
		},
		"the missing hour": {
			"t,v\n2024-03-31 01:00,1\n2024-03-31 02:00,\n2024-03-31 03:00,2\n", "Europe/Berlin",
			grid.CSVOptions{Fill: time.Hour}, "2024-03-31T00:00:00Z", time.Hour, []float64{1, 2},
		},
		"ENTSO-E": {
			"\"MTU (CET/CEST)\",\"Area\",\"Sequence\",\"Day-ahead Price (EUR/MWh)\"\n" +
				"\"27/10/2024 02:00:00 (CEST) - 27/10/2024 02:00:00 (CET)\",\"BZN|AT\",\"Sequence Sequence 1\",\"70\"\n" +
				"\"27/10/2024 02:00:00 (CEST) - 27/10/2024 02:00:00 (CET)\",\"BZN|AT\",\"Sequence Sequence 2\",\"99\"\n" +
				"\"27/10/2024 02:00:00 (CET) - 27/10/2024 03:00:00 (CET)\",\"BZN|AT\",\"Sequence Sequence 1\",\"80\"\n", "",
			grid.CSVOptions{Price: true, Column: "Day-ahead Price (EUR/MWh)"}, "2024-10-27T00:00:00Z", time.Hour,
			[]float64{0.07, 0.08},
		},
		"ENTSO-E of old": {
			"MTU (CET/CEST),Day-ahead Price [EUR/MWh],Currency,BZN|DE-LU\n01.01.2023 00:00 - 01.01.2023 01:00,-5.5,EUR,\n" +
				"01.01.2023 01:00 - 01.01.2023 02:00,2,EUR,\n", "",
			grid.CSVOptions{Price: true}, "2022-12-31T23:00:00Z", time.Hour, []float64{-0.0055, 0.002},
		},
		"energy-charts": {
			"Date (GMT+2),Price\n,EUR/MWh\n2024-07-01T00:00+02:00,70\n2024-07-01T01:00+02:00,80\n", "",
			grid.CSVOptions{Price: true}, "2024-06-30T22:00:00Z", time.Hour, []float64{0.07, 0.08},
		},
		"offset in the header": {
			"Date (GMT+2),CO2\n2024-07-01 00:00,70\n2024-07-01 01:00,80\n", "",
			grid.CSVOptions{}, "2024-06-30T22:00:00Z", time.Hour, []float64{70, 80},
		},
		"Unix seconds": {
			"unix_seconds,kgCO2eq/MWh\n1704067200,70\n1704068100,80\n", "", grid.CSVOptions{}, "2024-01-01T00:00:00Z",
			15 * time.Minute, []float64{70, 80},
		},
		"gridstatus": {
			gridstatus, "", grid.CSVOptions{Price: true, Column: "LMP", Unit: "per-MWh"}, "2025-03-09T09:00:00Z", time.Hour,
			[]float64{0.012, 0.013},
		},
		"month first": {
			"Date,lbs CO2/MWh\n01/12/2024 23:00,1000\n01/13/2024 00:00,2000\n", "America/New_York", grid.CSVOptions{},
			"2024-01-13T04:00:00Z", time.Hour, []float64{453.59237, 907.18474},
		},
		"months first, as specified": {
			"Date,v\n10/01/2024 1:00 PM,1\n10/01/2024 2:00 PM,2\n", "UTC", grid.CSVOptions{Dates: grid.MonthFirst},
			"2024-10-01T13:00:00Z", time.Hour, []float64{1, 2},
		},
		"ends of intervals": {
			"Interval End,v\n2026-03-28T23:00:00+00:00,300\n2026-03-29T00:00:00+00:00,301\n", "", grid.CSVOptions{},
			"2026-03-28T22:00:00Z", time.Hour, []float64{300, 301},
		},
		"hour ending, then quarters": {
			"Hour Ending (UTC),v\n2026-03-28 22:00,0\n2026-03-28 23:00,1\n2026-03-29 00:00,2\n2026-03-29 00:15,3\n2026-03-29 00:30,4\n", "",
			grid.CSVOptions{}, "2026-03-28T21:00:00Z", 15 * time.Minute, []float64{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4},
		},
		"hour ending, then a quarter": {
			"Hour Ending (UTC),v\n2026-03-28 22:00,0\n2026-03-28 23:00,1\n2026-03-29 00:00,2\n2026-03-29 00:15,3\n", "",
			grid.CSVOptions{}, "2026-03-28T21:00:00Z", 15 * time.Minute, []float64{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3},
		},
		"start beside end": {
			"interval_end_utc,interval_start_utc,v\n2026-03-28T23:00Z,2026-03-28T22:00Z,1\n", "", grid.CSVOptions{},
			"2026-03-28T22:00:00Z", time.Hour, []float64{1},
		},
		"pence": {
			"valid_from,valid_to,price (p/kWh)\n2024-01-01T00:00Z,2024-01-01T00:30Z,20\n2024-01-01T00:30Z,2024-01-01T01:00Z,25\n",
			"", grid.CSVOptions{Price: true}, "2024-01-01T00:00:00Z", 30 * time.Minute, []float64{0.2, 0.25},
		},
		"hours, then quarters, then hours": {
			"t,v\n2025-09-30T20:00Z,1\n2025-09-30T21:00Z,2\n2025-09-30T22:00Z,3\n2025-09-30T22:15Z,4\n2025-09-30T22:30Z,5\n" +
				"2025-09-30T22:45Z,6\n2025-09-30T23:00Z,7\n2025-10-01T00:00Z,8\n2025-10-01T01:00Z,9\n", "", grid.CSVOptions{},
			"2025-09-30T20:00:00Z", 15 * time.Minute,
			[]float64{1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5, 6, 7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9},
		},
		"prices are averaged": {
			"t,EUR/kWh\n2025-09-30T20:00Z,1\n2025-09-30T21:00Z,2\n2025-09-30T22:00Z,3\n2025-09-30T22:15Z,4\n" +
				"2025-09-30T22:30Z,5\n2025-09-30T22:45Z,6\n2025-09-30T23:00Z,7\n", "",
			grid.CSVOptions{Price: true, Every: time.Hour}, "2025-09-30T20:00:00Z", time.Hour, []float64{1, 2, 4.5},
		},
	} {
		if c.zone != "" {
			if err := c.o.SetFormat(c.zone, c.o.Unit, c.o.Decimal, c.o.Dates); err != nil {
				t.Fatal(err)
			}
		}
		assumed := false
		c.o.AssumedUTC = &assumed
		signal, _, err := grid.ParseCSV("grid.csv", []byte(c.text), c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s := signal.Series
		if diff := cmp.Diff(c.values, valuesOf(s), cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" ||
			s.Start().Format(time.RFC3339) != c.start || s.Step() != c.step || assumed {
			t.Errorf("%s: start %v, step %v, assumed UTC %t (-want +got):\n%s", name, s.Start(), s.Step(), assumed, diff)
		}
	}
}

// A file that leaves its meaning open is refused with its line and the setting or word to add.
func TestAmbiguousFormats(t *testing.T) {
	const zone = "set timeZone, e.g. Europe/Berlin or UTC"
	hours := func(header, layout, day string, hours ...int) string {
		text := header + ",v\n"
		for i, h := range hours {
			date, _ := time.Parse(time.DateOnly, day)
			text += fmt.Sprintf("%s,%d\n", date.Add(time.Duration(h)*time.Hour).Format(layout), i)
		}
		return text
	}
	const iso, us = "2006-01-02 15:04:05", "01/02/2006 15:04"
	for name, c := range map[string]struct {
		text  string
		o     grid.CSVOptions
		line  int
		wants []string
	}{
		"spring, Germany": {
			hours("datetime", iso, "2026-03-29", 0, 1, 3, 4), grid.CSVOptions{Fill: 3 * time.Hour}, 4,
			[]string{"put forward", zone},
		},
		"spring, Britain":   {hours("t", iso, "2025-03-30", 0, 2, 3), grid.CSVOptions{}, 3, []string{"Europe/London", zone}},
		"spring, America":   {hours("t", iso, "2025-03-09", 0, 1, 3, 4), grid.CSVOptions{}, 4, []string{"America/New_York", zone}},
		"autumn, Germany":   {hours("t", iso, "2024-10-27", 0, 1, 2, 2, 3), grid.CSVOptions{}, 5, []string{"put back", zone}},
		"autumn, America":   {hours("t", iso, "2024-11-03", 0, 1, 1, 2), grid.CSVOptions{}, 4, []string{"put back", zone}},
		"header in German":  {hours("Datum von", iso, "2024-07-01", 0, 1), grid.CSVOptions{}, 2, []string{`"Datum von"`, zone}},
		"header local":      {hours("datetime_local", iso, "2024-07-01", 0, 1), grid.CSVOptions{}, 2, []string{zone}},
		"header EPT":        {hours("datetime_beginning_ept", iso, "2024-07-01", 0), grid.CSVOptions{}, 2, []string{zone}},
		"layout in German":  {hours("t", "02.01.2006 15:04", "2024-07-01", 0, 1), grid.CSVOptions{}, 2, []string{"layout", zone}},
		"day or month":      {hours("t", us, "2024-01-02", 0, 1), grid.CSVOptions{TimeZone: time.UTC}, 2, []string{"set dates, e.g. day-first"}},
		"unknown zone name": {"t,v\n2024-01-01 00:00 CST,1\n", grid.CSVOptions{}, 2, []string{`"CST"`, zone}},
		"only a date":       {"DeliveryDate,HourEnding,v\n2024-01-02,1,5\n", grid.CSVOptions{}, 2, []string{"a date without a time"}},
		"no such hour": {
			hours("t", iso, "2026-03-29", 0, 1, 2), grid.CSVOptions{TimeZone: berlin(t)}, 4, []string{"does not exist in Europe/Berlin"},
		},
		"local times read as UTC in autumn": {
			hours("t", iso, "2024-10-27", 0, 1, 2, 2, 3), grid.CSVOptions{TimeZone: time.UTC}, 5,
			[]string{"is out of order or duplicate", "or another time zone if clocks are put back at this time"},
		},
		"local times read as UTC": {
			hours("t", iso, "2026-03-29", 0, 1, 3, 4), grid.CSVOptions{TimeZone: time.UTC}, 4,
			[]string{"clocks are put forward at this time in Europe/Berlin: is the time zone of the file UTC?"},
		},
		"LMP": {
			"Interval Start,LMP\n2026-03-28T23:00:00+00:00,12\n", grid.CSVOptions{Price: true}, 1,
			[]string{`column "LMP" names no unit`, "per-MWh", "--unit"},
		},
		"two units":       {"t,MWh or kWh\n2026-03-28T23:00Z,12\n", grid.CSVOptions{Price: true}, 1, []string{"names no unit"}},
		"EUR/MW":          {"t,Price_EUR/MW\n2026-03-28T23:00Z,12\n", grid.CSVOptions{Price: true}, 1, []string{"names no unit"}},
		"percent":         {"t,Renewable %\n2026-03-28T23:00Z,12\n", grid.CSVOptions{}, 1, []string{"want g/kWh"}},
		"price":           {"t,price\n2026-03-28T23:00Z,12\n", grid.CSVOptions{}, 1, []string{"contains prices", "--price"}},
		"EUR/kWh":         {"t,EUR/kWh\n2026-03-28T23:00Z,12\n", grid.CSVOptions{}, 1, []string{"contains prices", "--price"}},
		"EUR/MWh":         {"t,[€/MWh]\n2026-03-28T23:00Z,12\n", grid.CSVOptions{}, 1, []string{"contains prices", "--price"}},
		"ct/kWh":          {"t,ct/kWh\n2026-03-28T23:00Z,12\n", grid.CSVOptions{}, 1, []string{"contains prices", "--price"}},
		"decimal comma?":  {"t;v\n2026-03-28T23:00Z;1,234\n", grid.CSVOptions{}, 2, []string{`"1,234"`, "set decimal"}},
		"mixed decimals":  {"t;v\n2026-03-28T23:00Z;1,2\n2026-03-29T00:00Z;12.5\n", grid.CSVOptions{}, 3, []string{"is not a number"}},
		"separated by |":  {"t|v\n2026-03-28T23:00Z|1\n", grid.CSVOptions{}, 1, []string{"a semicolon or a tab"}},
		"irregular steps": {hoursOf(0, 3) + "2022-03-27T02:20:00Z,1\n2022-03-27T03:00:00Z,1\n", grid.CSVOptions{}, 5, []string{"time"}},
	} {
		_, _, err := grid.ParseCSV("grid.csv", []byte(c.text), c.o)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range append(c.wants, fmt.Sprintf("grid.csv:%d: ", c.line)) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not contain %q: %v", name, want, err)
			}
		}
		if strings.Contains(err.Error(), zone) && strings.Contains(err.Error(), "fill") {
			t.Errorf("%s: the error suggests to fill a change of clocks: %v", name, err)
		}
	}
}

func berlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// Common spellings of units. The factor is relative to the currency per kWh or to gCO2e/kWh.
func TestUnits(t *testing.T) {
	for name, want := range map[string]float64{
		"Price (EUR/MWh)": 0.001, "Price (EUR/MWhe)": 0.001, "[EUR/MWh]": 0.001, "LBMP ($/MWHr)": 0.001, "$/MW-hr": 0.001,
		"price_usd_per_mwh": 0.001, "EUR per megawatt hour": 0.001, "€/MW·h": 0.001, "SEK_per_kWh": 1, "per-kWh": 1,
		"USD per kilowatt-hour": 1, "ct/kWh": 0.01, "Preis in Cent/kWh": 0.01, "pence/kWh": 0.01, "p/kWh": 0.01, "¢/kWh": 0.01,
		"c/kWh": 0.01, "cents_per_kwh": 0.01, "øre/kWh": 0.01, "mills/kWh": 0.001,
	} {
		text := "t," + name + "\n2024-01-01T00:00Z,2\n"
		s, _, err := grid.ParseCSV("x", []byte(text), grid.CSVOptions{Price: true})
		if err != nil || s.Series.Value(0)/2 < want*0.999 || s.Series.Value(0)/2 > want*1.001 {
			t.Errorf("price in %s: got %v, %v, want a factor of %v", name, s.Series, err, want)
		}
	}
	for name, want := range map[string]float64{
		"CO2": 1, "gCO₂eq/kWh": 1, "CO2-Intensität [g/kWh]": 1, "kgCO2eq/kWh": 1000, "kg/MWh": 1, "tCO2/MWh": 1000,
		"g CO2 per MWh": 0.001, "lbs_co2_per_mwh": 0.45359237, "MOER (lb/MWh)": 0.45359237,
	} {
		s, _, err := grid.ParseCSV("x", []byte("t,"+name+"\n2024-01-01T00:00Z,2\n"), grid.CSVOptions{})
		if err != nil || s.Series.Value(0)/2 < want*0.999 || s.Series.Value(0)/2 > want*1.001 {
			t.Errorf("intensity in %s: got %v, %v, want a factor of %v", name, s.Series, err, want)
		}
	}
	if err := (&grid.CSVOptions{}).SetFormat("", "ct/kWh", "", ""); err == nil || !strings.Contains(err.Error(), "--price") {
		t.Errorf("SetFormat() of a price without Price: %v, want an error with the flag --price", err)
	}
	// Names of zones that contain parts of currencies.
	if _, _, err := grid.ParseCSV("x", []byte("t,CL-SEN\n2024-01-01T00:00Z,2\n"), grid.CSVOptions{}); err != nil {
		t.Errorf("intensity of the zone CL-SEN: %v", err)
	}
	for _, c := range [][4]string{{"Local"}, {"Mars"}, {"", "per-day"}, {"", "", ";"}, {"", "", "", "iso"}} {
		if err := (&grid.CSVOptions{Price: true}).SetFormat(c[0], c[1], c[2], c[3]); err == nil {
			t.Errorf("SetFormat(%q): no error", c)
		}
	}
}

// Files with different steps are joined, and times without a zone are noted.
func TestReadFilesWithAChangeOfStep(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.csv": "t,v\n2025-09-30 20:00,1\n2025-09-30 21:00,2\n", "b.csv": "t,v\n2025-09-30 22:00,3\n2025-09-30 22:15,4\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := grid.CSVOptions{AssumedUTC: new(bool), Filled: new(int)}
	s, _, err := grid.ReadFiles(o, filepath.Join(dir, "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{1, 1, 1, 1, 2, 2, 2, 2, 3, 4}, valuesOf(s.Series)); diff != "" {
		t.Error(diff)
	}
	if notes := o.Notes("x"); len(notes) != 1 || !strings.Contains(notes[0], "read as UTC") {
		t.Errorf("notes: %q", notes)
	}
}
