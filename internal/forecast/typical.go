package forecast

import (
	"bytes"
	"embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// tables contains the typical days. The header of each table contains its source and its license.
//
//go:embed typical/*.csv
var tables embed.FS

// TypicalModel is the model name of forecasts from a typical day.
const TypicalModel = "typical-day"

// WorldMean is the mean carbon intensity of electricity worldwide in 2024, rounded.
const WorldMean grid.Intensity = 470

const (
	seasons = 4
	hours   = 24
)

// Curve is the carbon intensity of a typical day by season, used if no other source is available. It is always an
// estimate.
type Curve struct {
	Zone   grid.Zone // zone of the curve; empty for the world
	values [seasons][hours]float64
}

// seasonMiddles are the days of the year in the middle of the seasons of a Curve, starting with the northern
// winter.
var seasonMiddles = [seasons]float64{15, 105, 197, 288}

const daysPerYear = 365.2425

// TypicalDay returns the curve of a zone or, if there is none, of the zone that its name extends, for example CA
// for CA-XX. If there is neither, it returns the flat curve of the world and false.
func TypicalDay(zone grid.Zone) (Curve, bool) {
	t := loadTypical()
	name, mean := nearest(t.means, zone)
	if name == "" {
		return Curve{values: scaled(solar{}.shape(), float64(WorldMean))}, false
	}
	shape, ok := t.curves[name]
	if !ok {
		_, sun := nearest(t.solar, zone)
		shape = sun.shape()
	}
	return Curve{Zone: name, values: scaled(shape, mean)}, true
}

// nearest returns the entry of a zone, or of the zone that its name extends, and the name of that zone. The name is
// empty if there is neither.
func nearest[V any](known map[grid.Zone]V, zone grid.Zone) (name grid.Zone, of V) {
	for name = zone; name != ""; name = parent(name) {
		if of, ok := known[name]; ok {
			return name, of
		}
	}
	return "", of
}

// TypicalZones returns the sorted names of the zones that have a typical day.
func TypicalZones() (names []string) {
	for zone := range loadTypical().means {
		names = append(names, string(zone))
	}
	slices.Sort(names)
	return names
}

// scaled returns values of the same shape with the given mean.
func scaled(values [seasons][hours]float64, mean float64) [seasons][hours]float64 {
	factor := mean / float64(Curve{values: values}.Mean())
	for season := range values {
		for hour := range values[season] {
			values[season][hour] *= factor
		}
	}
	return values
}

// parent removes the last part of a zone's name.
func parent(zone grid.Zone) grid.Zone {
	return zone[:max(0, strings.LastIndexByte(string(zone), '-'))]
}

// At returns the intensity at the given time: the value of its hour, interpolated between the two nearest seasons.
func (c Curve) At(t time.Time) grid.Intensity {
	t = t.UTC()
	day := float64(t.YearDay())
	after := 0
	for after < seasons && seasonMiddles[after] <= day {
		after++
	}
	before := (after + seasons - 1) % seasons
	after %= seasons
	span := math.Mod(seasonMiddles[after]-seasonMiddles[before]+daysPerYear, daysPerYear)
	part := math.Mod(day-seasonMiddles[before]+daysPerYear, daysPerYear) / span
	return grid.Intensity((1-part)*c.values[before][t.Hour()] + part*c.values[after][t.Hour()])
}

// Mean returns the mean of the curve over a year.
func (c Curve) Mean() grid.Intensity {
	sum := 0.0
	for _, day := range c.values {
		for _, v := range day {
			sum += v
		}
	}
	return grid.Intensity(sum / (seasons * hours))
}

// halfLife is the time in which a deviation from the typical day is expected to decrease by half.
const halfLife = day

// maxOff is the logarithm of the maximum factor for scaling the curve. If the current value deviates more, it is
// exceptional, and the following hours deviate less.
var maxOff = math.Log(4)

// Typical returns an hourly forecast, starting with the hour of from. The curve is scaled to fit the current value,
// by a factor of at most four, and the scaling decays with time. A current value of 0 or less means unknown, and
// the curve is not scaled. The forecast has no percentiles, because the errors cannot be estimated without a
// history.
func Typical(c Curve, present float64, from time.Time, horizon time.Duration) (grid.Forecast, error) {
	if horizon <= 0 || horizon > MaxHorizon {
		return grid.Forecast{}, fmt.Errorf("horizon is %v: want a positive value of at most %v", horizon, MaxHorizon)
	}
	start := from.UTC().Truncate(time.Hour)
	off := 0.0
	if present > 0 {
		off = min(maxOff, max(-maxOff, math.Log(present/float64(c.At(start)))))
	}
	values := make([]float64, int((from.Add(horizon).Sub(start)+time.Hour-1)/time.Hour))
	for i := range values {
		ahead := time.Duration(i) * time.Hour
		values[i] = float64(c.At(start.Add(ahead))) * math.Exp(off*math.Exp2(-float64(ahead)/float64(halfLife)))
	}
	s, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		return grid.Forecast{}, fmt.Errorf("forecasting a typical day: %w", err)
	}
	return grid.Forecast{Series: s, IssuedAt: from, Model: TypicalModel}, nil
}

// solar is the fraction of solar power in a zone's electricity, and the location of the zone.
type solar struct {
	share, latitude, longitude float64
}

const (
	// displaced is the decrease in intensity relative to the fraction of solar power. It is less than 1 because
	// neighboring zones and pumped storage use a part of it, and because the remaining generation in the evening
	// has a higher intensity.
	displaced = 0.6
	// maxSolar is the fraction of an hour's electricity above which solar power is curtailed or exported.
	maxSolar = 0.75
)

// shape returns curves that are lower by day in proportion to the height of the sun. Without solar power they are
// flat, because it is not known whether the intensity of the zone rises or falls at night.
func (s solar) shape() (values [seasons][hours]float64) {
	var height [seasons][hours]float64
	for season := range seasons {
		for hour := range hours {
			height[season][hour] = s.height(seasonMiddles[season], hour)
		}
	}
	height = scaled(height, s.share)
	for season := range seasons {
		for hour := range hours {
			values[season][hour] = 1 - displaced*min(maxSolar, height[season][hour])
		}
	}
	return values
}

// height returns the mean sine of the sun's elevation during an hour in UTC on a day of the year. It is 0 at night.
func (s solar) height(dayOfYear float64, hour int) float64 {
	const parts = 4
	declination := radians(-23.44 * math.Cos(2*math.Pi*(dayOfYear+10)/daysPerYear))
	latitude := radians(s.latitude)
	sum := 0.0
	for i := range parts {
		local := float64(hour) + (float64(i)+0.5)/parts + s.longitude/15
		angle := radians(15 * (local - 12))
		sum += max(0, math.Sin(latitude)*math.Sin(declination)+math.Cos(latitude)*math.Cos(declination)*math.Cos(angle))
	}
	return sum / parts
}

func radians(degrees float64) float64 { return degrees * math.Pi / 180 }

// typical contains the embedded tables.
type typical struct {
	means  map[grid.Zone]float64
	curves map[grid.Zone][seasons][hours]float64
	solar  map[grid.Zone]solar
}

// loadTypical reads the embedded tables once. They are also checked by a test, so that reading them cannot fail in
// a release.
var loadTypical = sync.OnceValue(func() *typical {
	t, err := readTypical()
	if err != nil {
		panic(err)
	}
	return t
})

func readTypical() (*typical, error) {
	t := &typical{
		means: map[grid.Zone]float64{}, curves: map[grid.Zone][seasons][hours]float64{}, solar: map[grid.Zone]solar{},
	}
	for name, use := range map[string]func(zone grid.Zone, row []float64) error{
		"typical/means.csv":  t.addMean,
		"typical/curves.csv": t.addCurve,
		"typical/solar.csv":  t.addSolar,
	} {
		text, err := tables.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := eachRow(text, use); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return t, nil
}

// eachRow calls use for every row of a table, which contains a zone and numbers.
func eachRow(text []byte, use func(zone grid.Zone, row []float64) error) error {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		return err
	}
	for _, row := range rows[1:] {
		numbers := make([]float64, len(row)-1)
		for i, cell := range row[1:] {
			if numbers[i], err = strconv.ParseFloat(cell, 64); err != nil {
				return fmt.Errorf("zone %s: %w", row[0], err)
			}
		}
		if err := use(grid.Zone(row[0]), numbers); err != nil {
			return fmt.Errorf("zone %s: %w", row[0], err)
		}
	}
	return nil
}

func (t *typical) addMean(zone grid.Zone, row []float64) error {
	if len(row) != 1 || row[0] <= 0 {
		return fmt.Errorf("%v: want one mean above 0", row)
	}
	t.means[zone] = row[0]
	return nil
}

func (t *typical) addCurve(zone grid.Zone, row []float64) error {
	if len(row) != 1+hours || row[0] < 0 || row[0] >= seasons {
		return fmt.Errorf("%v: want a season from 0 to 3 and %d values", row, hours)
	}
	values := t.curves[zone]
	copy(values[int(row[0])][:], row[1:])
	t.curves[zone] = values
	return nil
}

func (t *typical) addSolar(zone grid.Zone, row []float64) error {
	if len(row) != 3 {
		return fmt.Errorf("%v: want a share, a latitude and a longitude", row)
	}
	t.solar[zone] = solar{share: row[0] / 100, latitude: row[1], longitude: row[2]}
	return nil
}
