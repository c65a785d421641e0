package grid

import (
	"bytes"
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

// maxIntensity is far above the intensity of any oil-fired grid. Higher values indicate another unit.
const maxIntensity = 10_000

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
	text, err := ReadFile(path)
	if err != nil {
		return Signal{}, "", err
	}
	return ParseCSV(path, text, o)
}

// ParseCSV is like [ReadCSV] for a text in memory. The given name is used in errors.
func ParseCSV(name string, text []byte, o CSVOptions) (Signal, Zone, error) {
	survey := newCSVReader(name, text, o)
	_, _, _ = survey.read(survey.survey) // the second pass returns the error again
	r := newCSVReader(name, text, o)
	r.evidence = survey
	return r.read(r.row)
}

func newCSVReader(name string, text []byte, o CSVOptions) *csvReader {
	r := &csvReader{file: name, options: o, csv: csv.NewReader(bytes.NewReader(text))}
	header, _, _ := bytes.Cut(text, []byte{'\n'})
	for _, separator := range []byte{'\t', ';'} {
		if bytes.IndexByte(header, separator) >= 0 {
			r.csv.Comma = rune(separator)
			break
		}
	}
	r.csv.ReuseRecord = true
	r.csv.TrimLeadingSpace = r.csv.Comma != '\t'
	return r
}

type csvReader struct {
	file     string
	options  CSVOptions
	csv      *csv.Reader
	evidence *csvReader // the reader of the first pass

	time                             int  // index of the column with times
	ends                             bool // the times are the ends of intervals
	value, zone, estimated, sequence int  // column indexes; -1 if absent
	name                             string
	scale                            float64
	clock                            clock
	decimals                         decimals
	zones                            []string
	rows                             []sample // of the zone
	step                             time.Duration
	start                            time.Time
	signal                           []float64
	quality                          energy.Quality
}

// sample is the value of a row.
type sample struct {
	time  time.Time
	value float64
	line  int
}

func (r *csvReader) fail(field, format string, args ...any) *RowError {
	line, _ := r.csv.FieldPos(0)
	return &RowError{File: r.file, Line: line, Field: field, Err: fmt.Errorf(format, args...)}
}

// failOption is like fail for errors that the caller can fix by setting an option.
func (r *csvReader) failOption(option, format string, args ...any) *RowError {
	err := r.fail("", format, args...)
	err.Option = option
	return err
}

func (r *csvReader) read(use func(row []string) error) (Signal, Zone, error) {
	header, err := r.csv.Read()
	if err == io.EOF {
		return Signal{}, "", &RowError{File: r.file, Err: errors.New("the file is empty")}
	}
	if err != nil {
		return Signal{}, "", r.broken(err)
	}
	if err := r.columns(slices.Clone(header)); err != nil {
		return Signal{}, "", err
	}
	if r.evidence != nil {
		r.clock.dates, r.decimals = r.evidence.clock.dates, r.evidence.decimals
	}
	if r.options.Decimal != "" {
		r.decimals = decimals{comma: r.options.Decimal == ",", point: r.options.Decimal == "."}
	}
	r.quality = energy.Derived
	noUnit := r.unit(r.name)
	for first := true; ; first = false {
		row, err := r.csv.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Signal{}, "", r.broken(err)
		}
		if first && row[r.time] == "" { // energy-charts.info has units in the second line
			noUnit = r.unit(r.name + " " + row[r.value])
			continue
		}
		if noUnit != nil {
			return Signal{}, "", noUnit
		}
		if err := use(row); err != nil {
			return Signal{}, "", err
		}
	}
	return r.finish()
}

// survey collects evidence for the format of dates and numbers.
func (r *csvReader) survey(row []string) error {
	r.clock.note(row[r.time])
	r.decimals.note(strings.TrimSpace(row[r.value]))
	return nil
}

// broken converts an error of encoding/csv to a RowError.
func (r *csvReader) broken(err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		cause := parse.Err
		if errors.Is(cause, csv.ErrFieldCount) {
			cause = errors.New("the row has fewer or more fields than the header: is it truncated?")
		}
		return &RowError{File: r.file, Line: parse.Line, Err: cause}
	}
	return &RowError{File: r.file, Err: err}
}

func (r *csvReader) row(row []string) error {
	if r.zone >= 0 {
		zone := row[r.zone]
		if !slices.Contains(r.zones, zone) {
			r.zones = append(r.zones, strings.Clone(zone))
		}
		if r.options.Zone != "" && zone != string(r.options.Zone) {
			return nil
		}
		if r.options.Zone == "" && len(r.zones) > 1 {
			return r.failOption(OptionZone, "the file has several zones, including %s: select one",
				strings.Join(r.zones, ", "))
		}
	}
	if r.sequence >= 0 && laterSequence.MatchString(row[r.sequence]) {
		return nil
	}
	at, last, missing := row[r.time], time.Time{}, blank(row[r.value])
	if r.time > 0 && timeOfDay.MatchString(at) {
		at = row[r.time-1] + " " + at // the date is in a column of its own
	}
	if n := len(r.rows); n > 0 {
		last = r.rows[n-1].time
	}
	if missing && r.options.Fill > 0 {
		return nil
	}
	t, err := r.clock.parse(at, last)
	if err != nil {
		return r.fail("time", "%w", err)
	}
	v, invalid := r.number(row[r.value])
	if invalid != nil {
		if missing {
			invalid.Option = OptionFill
		}
		return invalid
	}
	r.markEstimated(row)
	if every := r.options.Every; every > 0 && !r.options.Price && !t.Truncate(every).Equal(t) {
		return nil
	}
	if !t.After(last) {
		if r.clock.floating && changedIn(t) != "" {
			return r.fail("time", "%s is duplicate, and clocks are put back at this time in %s: %s", at, changedIn(t),
				timeZoneHint)
		}
		return r.fail("time", "%s is out of order or duplicate: want a time after %s", t.Format(time.RFC3339),
			last.Format(time.RFC3339))
	}
	line, _ := r.csv.FieldPos(0)
	r.rows = append(r.rows, sample{t, v * r.scale, line})
	return nil
}

// laterSequence matches the later auctions of a day in downloads from ENTSO-E.
var laterSequence = regexp.MustCompile(`(?i)^sequence.* [2-9]$`)

// blank reports whether a field has no value.
func blank(text string) bool {
	return slices.Contains([]string{"", "-", "–", "n/e", "n/a", "na", "null"}, strings.ToLower(strings.TrimSpace(text)))
}

// markEstimated lowers the quality if the row is marked as estimated.
func (r *csvReader) markEstimated(row []string) {
	if r.estimated >= 0 && !slices.Contains([]string{"", "0", "false"}, row[r.estimated]) {
		r.quality = energy.Estimated
	}
}

// keep appends a value to the series if it is in the requested time range.
func (r *csvReader) keep(t time.Time, value float64) {
	if t.Before(r.options.From) || !r.options.Until.IsZero() && !t.Before(r.options.Until) {
		return
	}
	if len(r.signal) == 0 {
		r.start = t
	}
	r.signal = append(r.signal, value)
}

// number parses the value of a row.
func (r *csvReader) number(text string) (float64, *RowError) {
	text = strings.Trim(text, " \u00a0")
	if text != "" && r.decimals.open == text && !r.decimals.comma && !r.decimals.point {
		return 0, r.fail(r.name, "the comma in %q may separate decimals or thousands: %s", text,
			hint("decimal", `","`, "decimal"))
	}
	v, err := r.decimals.parse(text)
	scaled := v * r.scale
	switch {
	case err != nil:
		return 0, r.fail(r.name, "%q is not a number", text)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, r.fail(r.name, "%q is not a finite number", text)
	case !r.options.Price && v < 0:
		return 0, r.fail(r.name, "%q is negative", text)
	case !r.options.Price && scaled > maxIntensity:
		return 0, r.fail(r.name, "%q is above %d gCO2e per kWh: is the unit different?", text, maxIntensity)
	case r.options.Price && math.Abs(scaled) > float64(MaxPriceOf(r.options.Currency)):
		return 0, r.fail(r.name, "%q is above %v per kWh: is the unit different?", text, MaxPriceOf(r.options.Currency))
	}
	return v, nil
}

func (r *csvReader) finish() (Signal, Zone, error) {
	zone := r.options.Zone
	if r.zone >= 0 && zone == "" && len(r.zones) == 1 {
		zone = Zone(r.zones[0])
	}
	if r.options.AssumedUTC != nil && r.clock.floating {
		*r.options.AssumedUTC = true
	}
	switch {
	case len(r.rows) == 0 && r.zone >= 0 && len(r.zones) > 0:
		return Signal{}, "", &RowError{
			File: r.file, Option: OptionZone, Err: fmt.Errorf("no zone %q: the file has %s", zone,
				strings.Join(r.zones, ", ")),
		}
	case len(r.rows) == 0:
		return Signal{}, "", &RowError{File: r.file, Err: errors.New("the file has no values")}
	}
	if r.ends {
		r.toStarts()
	}
	if err := r.join(); err != nil {
		return Signal{}, "", err
	}
	if len(r.signal) == 0 {
		return Signal{}, "", &RowError{File: r.file, Err: ErrOutside}
	}
	series, err := NewSeries(r.start, r.step, r.signal)
	if err == nil && r.options.Price && r.options.Every > r.step {
		series, err = series.average(r.options.Every)
	}
	if err != nil {
		return Signal{}, "", &RowError{File: r.file, Err: err}
	}
	return Signal{Series: series, Quality: r.quality}, zone, nil
}
