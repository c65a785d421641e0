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

// CSVOptions say what to read from a file of values over time.
type CSVOptions struct {
	Column string // "": the lifecycle intensity, or the only column of values
	Zone   Zone   // "": the only zone of the file
	Price  bool   // money, which may be negative, instead of an intensity

	Currency string // of prices, if it is known: what is too much for a price depends on it

	// From and Until, unless zero, are which values to keep: those that begin from the first on and before the
	// second. Those outside are read and checked, but take no memory. Where all are outside the error is ErrOutside.
	From, Until time.Time

	// Fill is up to how long a gap between two values is filled: with values on the line from the one to the other,
	// which make the series an estimated one. A row without a value counts as missing. Zero: a gap is an error. Filled,
	// unless nil, counts the values.
	Fill   time.Duration
	Filled *int

	// Every, unless zero, is the step to read the file in, where its own is a fraction of it: of the values, only
	// those are kept that begin at a multiple of it. The others are checked as numbers, and may be absent. A value then
	// stands for the whole of its new step: what lay between is left out, not averaged, since published figures were
	// computed that way, as those of Let's Wait Awhile, which takes every second quarter of an hour.
	Every time.Duration
}

// ErrOutside is what is wrong with a file that has values, but none of the time that was asked for.
var ErrOutside = errors.New("the file has no values of that time")

// DefaultColumn is the intensity that is read where the caller names none.
const DefaultColumn = "ci_lifecycle_g_per_kwh"

// lifecycleColumns are what the intensity is called where the caller names no column: here, in files that give the
// generation by source beside it, and in older and newer downloads from Electricity Maps.
var lifecycleColumns = []string{
	DefaultColumn, "carbon_intensity", "Carbon Intensity gCO₂eq/kWh (LCA)", "Carbon intensity gCO₂eq/kWh (Life cycle)",
}

// maxIntensity is above the dirtiest oil-fired grid by far; beyond it a file has another unit than it seems.
const maxIntensity = 10_000

// ReadCSV reads one column of hourly or finer values of one zone. The file has a header; its first column is the
// start of each interval, RFC 3339 or close to it, in UTC where it has no offset; a column without a name may stand
// before it, as pandas writes one that counts the rows. A column "zone" or "Zone Id" tells zones apart; in a file
// without, zones may be columns instead. A series is derived from what power plants reported; a column "estimated" or
// "Data Estimated" other than 0 and false says that its provider filled some of it in, and marks it as estimated. Gaps
// that are not to be filled, duplicates and values that cannot be are errors that name their line.
func ReadCSV(path string, o CSVOptions) (Signal, Zone, error) {
	text, err := ReadFile(path)
	if err != nil {
		return Signal{}, "", err
	}
	return ParseCSV(path, text, o)
}

// ParseCSV is [ReadCSV] for a text that was read before; errors call it by the name given.
func ParseCSV(name string, text []byte, o CSVOptions) (Signal, Zone, error) {
	r := newCSVReader(name, text, o)
	if o.Fill > 0 { // the first two rows may have a gap between them
		first := newCSVReader(name, text, o)
		first.measuring = true
		_, _, _ = first.read() // reading on tells what is wrong
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

	time                   int // column: the first, or the second after one that only counts the rows
	value, zone, estimated int // columns; -1: none
	name                   string
	scale                  float64
	zones                  []string
	signal                 []float64
	rows                   int // of the zone
	start, last            time.Time
	previous               float64 // the value at last
	step                   time.Duration
	measuring              bool // only the step is wanted: see measure
	quality                energy.Quality
}

func (r *csvReader) fail(field, format string, args ...any) *RowError {
	line, _ := r.csv.FieldPos(0)
	return &RowError{File: r.file, Line: line, Field: field, Err: fmt.Errorf(format, args...)}
}

// failOption is fail for what the caller can mend by one of the options.
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

// broken turns an error of encoding/csv into ours.
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
			return r.failOption(OptionZone, "the file has several zones, %s among them: name one",
				strings.Join(r.zones, ", "))
		}
	}
	t, err := ParseTime(row[r.time])
	if err != nil {
		return r.fail("time", "%w", err)
	}
	if r.options.Fill > 0 && row[r.value] == "" {
		return nil // as if the row was not there
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

// markEstimated notes what a row says of its own quality.
func (r *csvReader) markEstimated(row []string) {
	if r.estimated >= 0 && !slices.Contains([]string{"", "0", "false"}, row[r.estimated]) {
		r.quality = energy.Estimated
	}
}

// keep adds a value to the series if it is of the time that was asked for.
func (r *csvReader) keep(t time.Time, value float64) {
	if t.Before(r.options.From) || !r.options.Until.IsZero() && !t.Before(r.options.Until) {
		return
	}
	if len(r.signal) == 0 {
		r.start = t
	}
	r.signal = append(r.signal, value)
}

// number parses a value as it stands in the file.
func (r *csvReader) number(text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	switch {
	case err != nil:
		return 0, r.fail(r.name, "%q is no number", text)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, r.fail(r.name, "%q is no finite number", text)
	case !r.options.Price && v < 0:
		return 0, r.fail(r.name, "%q is negative", text)
	case !r.options.Price && v > maxIntensity:
		return 0, r.fail(r.name, "%q is beyond %d gCO2e per kWh: is the unit another one?", text, maxIntensity)
	case r.options.Price && math.Abs(v*r.scale) > float64(MaxPriceOf(r.options.Currency)):
		return 0, r.fail(r.name, "%q is beyond %v per kWh: is it per MWh, and the column's name does not say so?", text,
			MaxPriceOf(r.options.Currency))
	}
	return v, nil
}

// begin takes the step from the first two rows.
func (r *csvReader) begin(t time.Time) error {
	r.step = t.Sub(r.last)
	if r.step <= 0 {
		return r.fail("time", "%s does not come after %s", t.Format(time.RFC3339), r.last.Format(time.RFC3339))
	}
	if r.step > time.Hour {
		err := r.fail("time", "%s comes %v after the row before: want an hour or less", t.Format(time.RFC3339), r.step)
		if r.options.Fill == 0 {
			err.Option = OptionFill
		}
		return err
	}
	return nil
}

// measure makes the step the smallest between the first rows; an error ends it.
func (r *csvReader) measure(t time.Time) error {
	const most = 24 // rows: an irregular one far down is an error, and no step
	if step := t.Sub(r.last); step > 0 && step <= time.Hour && (r.step == 0 || step < r.step) {
		r.step = step
	}
	if r.rows >= most {
		return errors.New("it is measured")
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

// ParseTime reads the forms in which public data give the start of an interval, in UTC where there is no offset.
func ParseTime(text string) (time.Time, error) {
	for _, layout := range []string{
		"2006-1-2T15:04Z07:00", time.RFC3339, "2006-1-2 15:04:05", "2006-1-2 15:04:05-07:00", "2006-1-2 15:04",
		"2006-1-2T15:04",
	} {
		if t, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: want 2022-06-01T13:00Z", text)
}
