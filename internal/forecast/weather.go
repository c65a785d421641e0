package forecast

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// Weather is an hourly weather forecast for a zone, averaged over the zone and weighted by the locations of its
// power plants. It is immutable.
type Weather struct {
	start  int64 // in hours since the epoch
	values [variables][]float64
}

// Variables of a weather forecast, in the order of the columns in files.
const (
	wind          = iota // in m/s
	temperature          // in K
	dewPoint             // in K
	radiation            // downward short-wave radiation, in W/m²
	precipitation        // in kg/m²
	variables
)

// freezing is a temperature in kelvin below any temperature on Earth. Lower values are missing measurements.
const freezing = 100

// ReadWeather reads a CSV file of hourly weather, optionally compressed with gzip. After a header, the columns are
// time (UTC unless it has an offset), wind speed, temperature, dew point, downward short-wave radiation and
// precipitation. Hours must be consecutive. Rows of zeros mean missing weather and are replaced by the values of
// the previous day.
func ReadWeather(path string) (*Weather, error) {
	text, err := grid.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseWeather(path, text)
}

// ParseWeather is like [ReadWeather] for the contents of a file. The name is used in errors.
func ParseWeather(name string, text []byte) (*Weather, error) {
	rows := csv.NewReader(bytes.NewReader(text))
	rows.ReuseRecord, rows.FieldsPerRecord = true, 1+variables
	w := &Weather{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // contains the line
			return nil, &grid.RowError{File: name, Err: fmt.Errorf("want a time and %d values: %w", variables, err)}
		}
		line, _ := rows.FieldPos(0)
		if line == 1 {
			continue
		}
		if err := w.add(row); err != nil {
			return nil, &grid.RowError{File: name, Line: line, Err: err}
		}
	}
	if len(w.values[wind]) == 0 {
		return nil, &grid.RowError{File: name, Err: errors.New("no values")}
	}
	return w, nil
}

func (w *Weather) add(row []string) error {
	t, err := grid.ParseTime(row[0])
	if err != nil {
		return err
	}
	n := len(w.values[wind])
	hour := t.Unix() / 3600
	if n == 0 {
		w.start = hour
	}
	if want := w.start + int64(n); hour != want || t.Unix()%3600 != 0 {
		return fmt.Errorf("hour %s does not follow the previous row: want %s", row[0],
			time.Unix(want*3600, 0).UTC().Format(time.DateTime))
	}
	var values [variables]float64
	for v := range values {
		if values[v], err = strconv.ParseFloat(strings.TrimSpace(row[1+v]), 64); err != nil || math.IsNaN(values[v]) ||
			math.IsInf(values[v], 0) {
			return fmt.Errorf("invalid number %q", row[1+v])
		}
	}
	if values[temperature] < freezing {
		if n < 24 {
			return errors.New("missing weather without values of the previous day")
		}
		for v := range values {
			values[v] = w.values[v][n-24]
		}
	}
	for v := range values {
		w.values[v] = append(w.values[v], values[v])
	}
	return nil
}

// Start returns the first hour with a value.
func (w *Weather) Start() time.Time { return time.Unix(w.start*3600, 0).UTC() }

// End returns the first hour without a value.
func (w *Weather) End() time.Time {
	return time.Unix((w.start+int64(len(w.values[wind])))*3600, 0).UTC()
}

// covers returns an error unless the weather is known for the whole interval. Hours slightly beyond the interval
// are approximated by the nearest known hour.
func (w *Weather) covers(from, until time.Time) error {
	if from.Before(w.Start()) || until.After(w.End()) {
		return fmt.Errorf("weather is known from %s to %s and does not cover %s to %s, which includes the history "+
			"and the forecast hours",
			w.Start().Format(time.RFC3339), w.End().Format(time.RFC3339), from.UTC().Format(time.RFC3339),
			until.UTC().Format(time.RFC3339))
	}
	return nil
}

// at returns a variable at an hour since the epoch, or at the nearest known hour.
func (w *Weather) at(variable int, hour int64) float64 {
	values := w.values[variable]
	return values[min(max(hour-w.start, 0), int64(len(values)-1))]
}
