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

// The tables of typical days. Each says in its header where it comes from and under which licence it is.
//
//go:embed typical/*.csv
var tables embed.FS

// TypicalModel names the forecast of a typical day.
const TypicalModel = "typical-day"

// WorldMean is the carbon intensity of the world's electricity in 2024, rounded.
const WorldMean grid.Intensity = 470

const (
	seasons = 4
	hours   = 24
)

// Curve is the carbon intensity of a typical day, by season: what to expect where no source says more. It is always an
// estimate.
type Curve struct {
	Zone   grid.Zone // whose curve it is; "" for the world
	values [seasons][hours]float64
}

// seasonMiddles are the days of the year that the seasons of a Curve are typical of, the northern winter first.
var seasonMiddles = [seasons]float64{15, 105, 197, 288}

const daysPerYear = 365.2425

// TypicalDay returns the curve of a zone, or, where there is none, of the zone that its name extends: of CA for
// CA-XX. Where there is neither it returns the world's, which is flat, and false.
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

// nearest returns what is known of a zone, or of the one that its name extends, and the name of that; "": of neither.
func nearest[V any](known map[grid.Zone]V, zone grid.Zone) (name grid.Zone, of V) {
	for name = zone; name != ""; name = parent(name) {
		if of, ok := known[name]; ok {
			return name, of
		}
	}
	return "", of
}

// TypicalZones returns the zones that have a typical day, in order.
func TypicalZones() (names []string) {
	for zone := range loadTypical().means {
		names = append(names, string(zone))
	}
	slices.Sort(names)
	return names
}

// scaled returns values of the same shape with this mean.
func scaled(values [seasons][hours]float64, mean float64) [seasons][hours]float64 {
	factor := mean / float64(Curve{values: values}.Mean())
	for season := range values {
		for hour := range values[season] {
			values[season][hour] *= factor
		}
	}
	return values
}

// parent cuts the last part off a zone's name.
func parent(zone grid.Zone) grid.Zone {
	return zone[:max(0, strings.LastIndexByte(string(zone), '-'))]
}

// At returns the intensity at an instant: that of its hour, between those of the two seasons that it lies between.
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

// Mean returns the curve's mean over a year.
func (c Curve) Mean() grid.Intensity {
	sum := 0.0
	for _, day := range c.values {
		for _, v := range day {
			sum += v
		}
	}
	return grid.Intensity(sum / (seasons * hours))
}

// halfLife is how long until half of a deviation from the typical day is expected to be gone.
const halfLife = day

// maxOff is the logarithm of what the curve is scaled by at most: a present value further off is of another day than
// any, and the hours around it are not as far off.
var maxOff = math.Log(4)

// Typical forecasts, hour by hour from that of from on, the curve scaled so that it fits the present value, by up to
// four times; further ahead it comes back to what is typical. A present value of 0 or less is not known, and the
// curve is left as it is. There are no percentiles: without a history nothing says how wrong it will be.
func Typical(c Curve, present float64, from time.Time, horizon time.Duration) (grid.Forecast, error) {
	if horizon <= 0 || horizon > MaxHorizon {
		return grid.Forecast{}, fmt.Errorf("horizon is %v: want more than 0 and at most %v", horizon, MaxHorizon)
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

// solar is how much of a zone's electricity the sun makes, and where.
type solar struct {
	share, latitude, longitude float64
}

const (
	// displaced is by how much the intensity falls for each part of the electricity that the sun makes. It is less
	// than 1 because neighbours and pumps take some of it, and because what makes the rest in the evening is dirtier.
	displaced = 0.6
	// maxSolar is the share of an hour's electricity beyond which panels are switched off or feed others.
	maxSolar = 0.75
)

// shape returns curves that are lower by day in proportion to the height of the sun. Those of a zone without solar
// power are flat: whether its intensity falls or rises at night depends on what is not known of it here.
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

// height is the mean sine of the sun's height over an hour UTC of a day of the year; 0 by night.
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

// typical is the embedded tables.
type typical struct {
	means  map[grid.Zone]float64
	curves map[grid.Zone][seasons][hours]float64
	solar  map[grid.Zone]solar
}

// loadTypical reads the embedded tables once. A test reads them too, so that they cannot be wrong in a release.
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

// eachRow calls use for every row of a table: a zone and numbers.
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
		return fmt.Errorf("%v: want one mean of more than 0", row)
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
