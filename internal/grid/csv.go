package grid

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// CSVOptions specifies the values to read from a CSV file.
type CSVOptions struct {
	Column string // if empty, the lifecycle intensity, or the only column of values
	Zone   Zone   // if empty, the only zone of the file
	Price  bool   // read prices, which may be negative, instead of intensities

	Currency string // of prices, if known; it determines the maximum plausible price

	// From and Until, unless zero, limit the values to the range starting at or after From and before Until. Other
	// values are parsed and validated but not stored. If no value is in the range, the error is ErrOutside.
	From, Until time.Time

	// Fill is the maximum length of a gap to fill by linear interpolation. Filling marks the series as estimated. A
	// row without a value counts as missing. If Fill is zero, a gap is an error. If Filled is not nil, the number
	// of filled values is added to it.
	Fill   time.Duration
	Filled *int

	// Every, unless zero, is the step of the resulting series. It must be a multiple of the step of the file. Prices
	// are averaged. Of intensities, only the values that start at a multiple of Every are kept, and each covers a
	// whole step; the other rows must contain valid numbers, but may be missing. They are dropped rather than
	// averaged, because published results were computed in this way, e.g. by Let's Wait Awhile, which uses every
	// second quarter of an hour.
	Every time.Duration

	// The format of the file, as far as the file does not determine it.
	TimeZone *time.Location // of times without an offset
	Unit     string         // of the values, e.g. per-MWh or kg/MWh; takes precedence over the name of the column
	Decimal  string         // decimal separator: "." or ","
	Dates    string         // DayFirst or MonthFirst

	AssumedUTC *bool // if not nil, set to true if times had no zone and were read as UTC
	ZoneUnused *bool // if not nil, set to true if Zone selected neither rows nor a column
}

// ErrOutside is returned if a file has values, but none in the requested time range.
var ErrOutside = errors.New("the file has no values in the requested time range")

// DefaultColumn is the intensity column that is read by default.
const DefaultColumn = "ci_lifecycle_g_per_kwh"

// lifecycleColumns are the default names of the intensity column: in our files, in files with generation by source,
// and in older and newer downloads from Electricity Maps.
var lifecycleColumns = []string{
	DefaultColumn, "carbon_intensity", "Carbon Intensity gCO₂eq/kWh (LCA)", "Carbon intensity gCO₂eq/kWh (Life cycle)",
}

// MaxIntensity is far above the intensity of any oil-fired grid. Higher values indicate another unit.
const MaxIntensity = 10_000

// ReadCSV reads one column of hourly or finer values of one zone. The separator is a comma, a semicolon or a tab, and
// a decimal comma is recognized. The file must have a header. Its first column is the start of each interval, or its
// end if the name denotes that, as "Interval End" does; another column with a name such as "Interval Start" takes
// precedence. It may be preceded by an unnamed column, such as the row numbers written by pandas.
//
// Times have an offset, or are in the zone of the options or of the header. Otherwise they are in UTC if their layout
// is that of ISO 8601, unless the header or changes of clocks show that they are local, which is an error.
//
// A column "zone" or "Zone Id" distinguishes zones; in a file without such a column, each zone may have its own
// column. The name of the column of values contains their unit; intensities without one are in gCO2e/kWh. If the step
// changes, the resulting series has the smallest step. The quality of a series is derived, because it is computed from
// the reports of power plants. If a column "estimated" or "Data Estimated" has a value other than 0 and false, the
// provider filled in values and the quality is estimated. Gaps that are not filled, duplicates and invalid values are
// reported as errors with their line.
func ReadCSV(path string, o CSVOptions) (Signal, Zone, error) {
	return ReadFiles(o, path)
}

// ParseCSV is like [ReadCSV] for a text in memory. The given name is used in errors.
func ParseCSV(name string, text []byte, o CSVOptions) (Signal, Zone, error) {
	f, err := parseFile(name, text, &o)
	if err != nil {
		return Signal{}, "", err
	}
	return join(&o, []*csvFile{f})
}

// csvFile contains the values of a file.
type csvFile struct {
	name    string
	options *CSVOptions
	line    int // of the current row

	column   columns
	scale    float64 // factor to convert values to gCO2e/kWh or to the price per kWh
	clock    clock
	decimals decimals

	zones   []string
	zone    Zone
	rows    []sample // of the zone
	step    time.Duration
	quality energy.Quality
}

// sample is the value of a row.
type sample struct {
	file  *csvFile
	line  int
	time  time.Time
	step  time.Duration // duration of the value
	value float64
}

// rowText contains the fields of a row that are parsed.
type rowText struct {
	line        int
	time, value string
}

// fail returns an error in the current row. The option, if not empty, is one that the caller can set to fix the error.
func (f *csvFile) fail(field, option, format string, args ...any) error {
	return &RowError{File: f.name, Line: f.line, Field: field, Option: option, Err: fmt.Errorf(format, args...)}
}

func parseFile(name string, text []byte, o *CSVOptions) (*csvFile, error) {
	f := &csvFile{name: name, options: o, zone: o.Zone, quality: energy.Derived}
	f.decimals = decimals{comma: o.Decimal == ",", point: o.Decimal == "."}
	// Dates and numbers are parsed after reading all rows, because a single row may leave their format open.
	texts, invalid := f.read(text)
	for _, row := range texts {
		if err := f.parse(row); err != nil {
			return nil, err
		}
	}
	if invalid != nil {
		return nil, invalid
	}
	f.line = 0
	switch {
	case len(f.rows) == 0 && len(f.zones) > 0 && !slices.Contains(f.zones, string(f.zone)):
		return nil, f.fail("", OptionZone, "no zone %q: the file has %s", f.zone, strings.Join(f.zones, ", "))
	case len(f.rows) == 0:
		return nil, f.fail("", "", "the file has no values")
	}
	if o.AssumedUTC != nil && f.clock.floating {
		*o.AssumedUTC = true
	}
	if o.ZoneUnused != nil && o.Zone != "" && f.column.zone < 0 && f.column.name != string(o.Zone) {
		*o.ZoneUnused = true
	}
	return f, f.measure()
}

// read returns the rows of the zone up to the first malformed one, and its error. It collects evidence for the formats
// of dates and numbers.
func (f *csvFile) read(text []byte) (rows []rowText, err error) {
	table := csv.NewReader(bytes.NewReader(text))
	firstLine, _, _ := bytes.Cut(text, []byte{'\n'})
	if i := bytes.IndexAny(firstLine, "\t;"); i >= 0 {
		table.Comma = rune(firstLine[i])
	}
	table.ReuseRecord = true
	table.TrimLeadingSpace = table.Comma != '\t'
	header, err := f.next(table)
	if err == io.EOF {
		return nil, f.fail("", "", "the file is empty")
	}
	if err == nil {
		err = f.setColumns(slices.Clone(header))
	}
	if err != nil {
		return nil, err
	}
	noUnit := f.setUnit(f.column.name)
	for first := true; ; first = false {
		row, err := f.next(table)
		switch {
		case err == io.EOF:
			return rows, nil
		case err != nil:
			return rows, err
		case first && row[f.column.time] == "": // energy-charts.info has units in the second line
			noUnit = f.setUnit(f.column.name + " " + row[f.column.value])
			continue
		case noUnit != nil:
			return nil, noUnit
		}
		at, value := row[f.column.time], row[f.column.value]
		if f.column.time > 0 && timeOfDay.MatchString(at) {
			at = row[f.column.time-1] + " " + at // the date is in a column of its own
		}
		f.clock.note(at)
		if f.options.Decimal == "" {
			f.decimals.note(strings.TrimSpace(value))
		}
		wanted, err := f.selects(row)
		if err != nil {
			return rows, err
		}
		if wanted {
			rows = append(rows, rowText{f.line, strings.Clone(at), strings.Clone(value)})
		}
	}
}

// next reads a row. It returns [io.EOF] after the last one.
func (f *csvFile) next(table *csv.Reader) ([]string, error) {
	row, err := table.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		f.line = wrong.Line
		if errors.Is(err, csv.ErrFieldCount) {
			return nil, f.fail("", "", "the row has fewer or more fields than the header: is it truncated?")
		}
		return nil, f.fail("", "", "%w", wrong.Err)
	}
	if err == nil {
		f.line, _ = table.FieldPos(0)
	}
	return row, err
}

// selects reports whether a row is read. It lowers the quality if the row is marked as estimated.
func (f *csvFile) selects(row []string) (bool, error) {
	if f.column.zone >= 0 {
		zone := row[f.column.zone]
		if !slices.Contains(f.zones, zone) {
			f.zones = append(f.zones, strings.Clone(zone))
		}
		if f.options.Zone == "" && len(f.zones) > 1 {
			return false, f.fail("", OptionZone, "the file has several zones, including %s: select one",
				strings.Join(f.zones, ", "))
		}
		if f.zone = cmp.Or(f.options.Zone, Zone(f.zones[0])); zone != string(f.zone) {
			return false, nil
		}
	}
	if f.column.sequence >= 0 && laterSequence.MatchString(row[f.column.sequence]) ||
		f.options.Fill > 0 && blank(row[f.column.value]) {
		return false, nil
	}
	if f.column.estimated >= 0 && !slices.Contains([]string{"", "0", "false"}, row[f.column.estimated]) {
		f.quality = energy.Estimated
	}
	return true, nil
}

// parse adds the value of a row.
func (f *csvFile) parse(row rowText) error {
	f.line = row.line
	var last time.Time
	if n := len(f.rows); n > 0 {
		last = f.rows[n-1].time
	}
	t, err := f.clock.parse(row.time, last)
	if err != nil {
		return f.fail("time", "", "%w", err)
	}
	value, err := f.number(row.value)
	if err != nil {
		return err
	}
	if every := f.options.Every; every > 0 && !f.options.Price && !t.Truncate(every).Equal(t) {
		return nil
	}
	if !t.After(last) {
		if f.clock.floating && changedIn(t) != "" {
			return f.fail("time", "", "%s is duplicate, and clocks are put back at this time in %s: %s", row.time,
				changedIn(t), timeZoneHint)
		}
		wrong := ""
		if f.options.TimeZone != nil {
			wrong = ", or another time zone if clocks are put back at this time"
		}
		return f.fail("time", "", "%s is out of order or duplicate: want a time after %s%s", t.Format(time.RFC3339),
			last.Format(time.RFC3339), wrong)
	}
	f.rows = append(f.rows, sample{file: f, line: f.line, time: t, value: value})
	return nil
}

// laterSequence matches the later auctions of a day in downloads from ENTSO-E.
var laterSequence = regexp.MustCompile(`(?i)^sequence.* [2-9]$`)

// blank reports whether a field has no value.
func blank(text string) bool {
	return slices.Contains([]string{"", "-", "–", "n/e", "n/a", "na", "null"}, strings.ToLower(strings.TrimSpace(text)))
}

// number parses and converts the value of a row.
func (f *csvFile) number(text string) (float64, error) {
	option := ""
	if blank(text) {
		option = OptionFill
	}
	text = strings.Trim(text, " \u00a0")
	if f.decimals.open(text) {
		return 0, f.fail(f.column.name, "", "the comma in %q may separate decimals or thousands: %s", text,
			hint("decimal", `","`, "decimal", convert))
	}
	v, err := f.decimals.parse(text)
	scaled, limit := v*f.scale, float64(MaxPriceOf(f.options.Currency))
	switch {
	case err != nil:
		err = f.fail(f.column.name, option, "%q is not a number", text)
	case math.IsNaN(v) || math.IsInf(v, 0):
		err = f.fail(f.column.name, "", "%q is not a finite number", text)
	case !f.options.Price && v < 0:
		err = f.fail(f.column.name, "", "%q is negative", text)
	case !f.options.Price && scaled > MaxIntensity:
		err = f.fail(f.column.name, "", "%q is above %d gCO2e per kWh: is the unit different?", text, MaxIntensity)
	case f.options.Price && math.Abs(scaled) > limit:
		err = f.fail(f.column.name, "", "%q is above %v per kWh: is the unit different?", text, limit)
	}
	return scaled, err
}
