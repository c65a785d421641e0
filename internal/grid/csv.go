package grid

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
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

	// Every, unless zero, is the step of the resulting series. It must be a multiple of the step of the file. Only
	// the values that start at a multiple of Every are kept, and each covers a whole step; the other rows must
	// contain valid numbers, but may be missing. Values in between are dropped rather than averaged, because
	// published results were computed in this way, e.g. by Let's Wait Awhile, which uses every second quarter
	// of an hour.
	Every time.Duration
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

// ReadCSV reads one column of hourly or finer values of one zone. The file must have a header. Its first column is
// the start of each interval in RFC 3339 or a similar format, in UTC if it has no offset. It may be preceded by an
// unnamed column, such as the row numbers written by pandas. A column "zone" or "Zone Id" distinguishes zones; in a
// file without such a column, each zone may have its own column. The quality of a series is derived, because it is
// computed from the reports of power plants. If a column "estimated" or "Data Estimated" has a value other than 0
// and false, the provider filled in values and the quality is estimated. Gaps that are not filled, duplicates and
// invalid values are reported as errors with their line.
func ReadCSV(path string, o CSVOptions) (Signal, Zone, error) {
	text, err := ReadFile(path)
	if err != nil {
		return Signal{}, "", err
	}
	return ParseCSV(path, text, o)
}

// ParseCSV is like [ReadCSV] for a text in memory. The given name is used in errors.
func ParseCSV(name string, text []byte, o CSVOptions) (Signal, Zone, error) {
	r := newCSVReader(name, text, o)
	if o.Fill > 0 { // the first two rows may be separated by a gap
		first := newCSVReader(name, text, o)
		first.measuring = true
		_, _, _ = first.read() // read returns the error again
		r.step = first.step
	}
	return r.read()
}

func newCSVReader(name string, text []byte, o CSVOptions) *csvReader {
	r := &csvReader{file: name, options: o, csv: csv.NewReader(bytes.NewReader(text))}
	r.csv.ReuseRecord = true
	r.csv.TrimLeadingSpace = true
	return r
}

type csvReader struct {
	file    string
	options CSVOptions
	csv     *csv.Reader

	time                   int // index of the first column, or of the second if the first contains row numbers
	value, zone, estimated int // column indexes; -1 if absent
	name                   string
	scale                  float64
	zones                  []string
	signal                 []float64
	rows                   int // number of rows of the zone
	start, last            time.Time
	previous               float64 // value at last
	step                   time.Duration
	measuring              bool // only determine the step; see measure
	quality                energy.Quality
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

func (r *csvReader) read() (Signal, Zone, error) {
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
	r.quality = energy.Derived
	for {
		row, err := r.csv.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Signal{}, "", r.broken(err)
		}
		if err := r.row(row); err != nil {
			return Signal{}, "", err
		}
	}
	return r.finish()
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
	t, err := ParseTime(row[r.time])
	if err != nil {
		return r.fail("time", "%w", err)
	}
	if r.options.Fill > 0 && row[r.value] == "" {
		return nil // treat the row as missing
	}
	v, err := r.number(row[r.value])
	if err != nil {
		return err
	}
	r.markEstimated(row)
	if every := r.options.Every; every > 0 && !t.Truncate(every).Equal(t) {
		return nil
	}
	v *= r.scale
	if err := r.follow(t, v); err != nil {
		return err
	}
	r.rows++
	r.previous = v
	r.keep(t, v)
	return nil
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
func (r *csvReader) number(text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	switch {
	case err != nil:
		return 0, r.fail(r.name, "%q is not a number", text)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, r.fail(r.name, "%q is not a finite number", text)
	case !r.options.Price && v < 0:
		return 0, r.fail(r.name, "%q is negative", text)
	case !r.options.Price && v > maxIntensity:
		return 0, r.fail(r.name, "%q is above %d gCO2e per kWh: is the unit different?", text, maxIntensity)
	case r.options.Price && math.Abs(v*r.scale) > float64(MaxPriceOf(r.options.Currency)):
		return 0, r.fail(r.name, "%q is above %v per kWh: is it per MWh, without the unit in the column name?", text,
			MaxPriceOf(r.options.Currency))
	}
	return v, nil
}

// begin sets the step to the difference of the first two rows.
func (r *csvReader) begin(t time.Time) error {
	r.step = t.Sub(r.last)
	if r.step <= 0 {
		return r.fail("time", "%s is not after %s", t.Format(time.RFC3339), r.last.Format(time.RFC3339))
	}
	if r.step > time.Hour {
		err := r.fail("time", "%s is %v after the previous row: want an hour or less", t.Format(time.RFC3339), r.step)
		if r.options.Fill == 0 {
			err.Option = OptionFill
		}
		return err
	}
	return nil
}

// measure sets the step to the smallest difference between the first rows. It returns an error to stop reading.
func (r *csvReader) measure(t time.Time) error {
	const most = 24 // an irregular step further down is an error and does not determine the step
	if step := t.Sub(r.last); step > 0 && step <= time.Hour && (r.step == 0 || step < r.step) {
		r.step = step
	}
	if r.rows >= most {
		return errors.New("step is known")
	}
	return nil
}

func (r *csvReader) finish() (Signal, Zone, error) {
	zone := r.options.Zone
	if r.zone >= 0 && zone == "" && len(r.zones) == 1 {
		zone = Zone(r.zones[0])
	}
	switch {
	case r.rows == 0 && r.zone >= 0 && len(r.zones) > 0:
		return Signal{}, "", &RowError{
			File: r.file, Option: OptionZone, Err: fmt.Errorf("no zone %q: the file has %s", zone,
				strings.Join(r.zones, ", ")),
		}
	case r.rows == 0:
		return Signal{}, "", &RowError{File: r.file, Err: errors.New("the file has no values")}
	case len(r.signal) == 0:
		return Signal{}, "", &RowError{File: r.file, Err: ErrOutside}
	case r.rows == 1:
		r.step = time.Hour
	}
	series, err := NewSeries(r.start, r.step, r.signal)
	if err != nil {
		return Signal{}, "", &RowError{File: r.file, Err: err}
	}
	return Signal{Series: series, Quality: r.quality}, zone, nil
}

// ParseTime parses the start of an interval in the formats common in public data, in UTC if there is no offset.
func ParseTime(text string) (time.Time, error) {
	for _, layout := range []string{
		"2006-1-2T15:04Z07:00", time.RFC3339, "2006-1-2 15:04:05", "2006-1-2 15:04:05-07:00", "2006-1-2 15:04",
		"2006-1-2T15:04",
	} {
		if t, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time: want e.g. 2022-06-01T13:00Z", text)
}
