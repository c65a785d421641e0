package grid_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// hoursOf returns a file of hourly values between from and until, excluding the given hours. Each value is 100 plus
// its hour.
func hoursOf(from, until int, without ...int) string {
	var b strings.Builder
	b.WriteString("t,v\n")
	for h := from; h < until; h++ {
		missing := false
		for _, w := range without {
			missing = missing || w == h
		}
		if !missing {
			fmt.Fprintf(&b, "%s,%d\n", t0.Add(time.Duration(h)*time.Hour).Format(time.RFC3339), 100+h)
		}
	}
	return b.String()
}

func valuesOf(s *grid.Series) (values []float64) {
	for i := range s.Len() {
		values = append(values, s.Value(i))
	}
	return values
}

// Gaps up to the given length are filled by linear interpolation, marked as estimated and counted.
func TestFill(t *testing.T) {
	const two = 2 * time.Hour
	for name, c := range map[string]struct {
		text   string
		fill   time.Duration
		want   []float64
		filled int
		err    string
	}{
		"nothing is missing":  {hoursOf(0, 4), two, []float64{100, 101, 102, 103}, 0, ""},
		"one hour":            {hoursOf(0, 5, 3), two, []float64{100, 101, 102, 103, 104}, 1, ""},
		"two gaps":            {hoursOf(0, 8, 2, 5, 6), two, []float64{100, 101, 102, 103, 104, 105, 106, 107}, 3, ""},
		"a row without value": {strings.Replace(hoursOf(0, 4), ",102", ",", 1), two, []float64{100, 101, 102, 103}, 1, ""},
		"on the line": {
			"t,v\n2022-01-01T00:00Z,10\n2022-01-01T01:00Z,10\n2022-01-01T04:00Z,40\n", two,
			[]float64{10, 10, 20, 30, 40},
			2, "",
		},
		"too long":      {hoursOf(0, 8, 2, 3, 4), two, nil, 0, "a gap: 2022-03-27T05:00:00Z follows 2022-03-27T01:00:00Z"},
		"not asked for": {hoursOf(0, 5, 3), 0, nil, 0, "a gap"},
		"no multiple": {
			"t,v\n2022-01-01T00:00Z,1\n2022-01-01T01:00Z,1\n2022-01-01T02:30Z,1\n", two, nil, 0, "a gap",
		},
		"the second hour":       {hoursOf(0, 5, 1), two, []float64{100, 101, 102, 103, 104}, 1, ""},
		"the second and fourth": {hoursOf(0, 6, 1, 3), two, []float64{100, 101, 102, 103, 104, 105}, 2, ""},
		"the second half-hour": {
			"t,v\n2022-01-01T00:00Z,10\n2022-01-01T01:00Z,30\n2022-01-01T01:30Z,40\n", two, []float64{10, 20, 30, 40}, 1, "",
		},
		"every two hours": {hoursOf(0, 5, 1, 3), two, nil, 0, "2h0m0s after the previous row"},
	} {
		filled := 0
		s, _, err := grid.ParseCSV("grid.csv", []byte(c.text), grid.CSVOptions{Fill: c.fill, Filled: &filled})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, valuesOf(s.Series)); diff != "" || filled != c.filled ||
			(s.Quality == energy.Estimated) != (c.filled > 0) {
			t.Errorf("%s: %d values filled, quality %v, unexpected values (-want +got):\n%s", name, filled, s.Quality, diff)
		}
	}
}

// Files are joined by time, regardless of their names. A gap between two files is treated like any other.
func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"z_1.csv": hoursOf(0, 3), "a_2.csv": hoursOf(3, 5), "m_3.csv": hoursOf(6, 8), "other.csv": hoursOf(4, 6),
		"g1.csv": hoursOf(0, 2), "g[1].csv": hoursOf(7, 9),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, c := range map[string]struct {
		names []string
		fill  time.Duration
		want  []float64
		err   string
	}{
		"one":        {[]string{file("z_1.csv")}, 0, []float64{100, 101, 102}, ""},
		"two":        {[]string{file("a_2.csv"), file("z_1.csv")}, 0, []float64{100, 101, 102, 103, 104}, ""},
		"a pattern":  {[]string{file("[az]_?.csv")}, 0, []float64{100, 101, 102, 103, 104}, ""},
		"with a gap": {[]string{file("?_?.csv")}, time.Hour, []float64{100, 101, 102, 103, 104, 105, 106, 107}, ""},
		"a gap": {
			[]string{file("?_?.csv")}, 0, nil, "m_3.csv: starting at 2022-03-27T06:00:00Z with step 1h0m0s, it does not follow",
		},
		"overlap":      {[]string{file("a_2.csv"), file("other.csv")}, time.Hour, nil, "does not follow"},
		"brackets":     {[]string{file("g[1].csv")}, 0, []float64{107, 108}, ""},
		"none matches": {[]string{file("none_*.csv")}, 0, nil, "none_*.csv: no such file"},
	} {
		s, _, err := grid.ReadFiles(grid.CSVOptions{Fill: c.fill}, c.names...)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(c.want, valuesOf(s.Series)); diff != "" ||
			(s.Quality == energy.Estimated) != (c.fill > 0) {
			t.Errorf("%s: %v\n%s", name, s.Quality, diff)
		}
	}
}

// An error refers to the option Fill if filling would fix it.
func TestFillIsNamed(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		files []string
		fill  time.Duration
		want  string
	}{
		"after the first row": {[]string{hoursOf(0, 5, 1)}, 0, grid.OptionFill},
		"after the first, half-hourly": {
			[]string{"t,v\n2022-01-01T00:00Z,1\n2022-01-01T01:00Z,1\n2022-01-01T01:30Z,1\n"}, 0, grid.OptionFill,
		},
		"between files":         {[]string{hoursOf(0, 2), hoursOf(3, 5)}, 0, grid.OptionFill},
		"overlap":               {[]string{hoursOf(0, 3), hoursOf(2, 5)}, 0, ""},
		"coarse in spite of it": {[]string{hoursOf(0, 5, 1, 3)}, time.Hour, ""},
	} {
		var paths []string
		for i, text := range c.files {
			path := filepath.Join(dir, strconv.Itoa(i))
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		_, _, err := grid.ReadFiles(grid.CSVOptions{Fill: c.fill}, paths...)
		row, _ := errors.AsType[*grid.RowError](err)
		if err == nil || row == nil && c.want != "" || row != nil && row.Option != c.want {
			t.Errorf("%s: error %v (%+v), want option %q", name, err, row, c.want)
		}
	}
}

// Downloads from Electricity Maps can be read without changes.
func TestReadElectricityMaps(t *testing.T) {
	const text = "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct)," +
		"Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage,Renewable Percentage,Data Source,Data Estimated," +
		"Data Estimation Method\n" +
		"2022-01-01 00:00:00,Germany,Germany,DE,163.46,213.79,81.25,73.73,entsoe.eu,false,\n" +
		"2022-01-01 01:00:00,Germany,Germany,DE,166.66,218.0,80.81,72.84,entsoe.eu,%s,\n"
	newer := strings.NewReplacer("Zone Id", "Zone id", "Carbon Intensity", "Carbon intensity", "(LCA)", "(Life cycle)",
		"Data Estimated", "Data estimated").Replace(text)
	for _, text := range []string{text, newer} {
		for estimated, quality := range map[string]energy.Quality{"false": energy.Derived, "true": energy.Estimated} {
			s, zone, err := grid.ParseCSV("x", fmt.Appendf(nil, text, estimated), grid.CSVOptions{})
			if err != nil || zone != "DE" || s.Series.Value(1) != 218 || s.Quality != quality {
				t.Errorf("unexpected result: zone %s, quality %v, error %v", zone, s.Quality, err)
			}
		}
	}
}
