package energy

import (
	"fmt"
	"time"
)

// Joules is an amount of energy.
type Joules float64

// Watts is power: joules per second.
type Watts float64

// Grams is a mass of emitted CO2 equivalents.
type Grams float64

// Celsius is a temperature in degrees.
type Celsius float64

// JoulesPerKWh is the number of joules in a kilowatt-hour.
const JoulesPerKWh = 3.6e6

// KWh returns j in kilowatt-hours.
func (j Joules) KWh() float64 { return float64(j) / JoulesPerKWh }

// String formats j in kilowatt-hours if its magnitude is at least one watt-hour, and in joules otherwise.
func (j Joules) String() string {
	if j >= JoulesPerKWh/1000 || j <= -JoulesPerKWh/1000 {
		return fmt.Sprintf("%.4g kWh", j.KWh())
	}
	return fmt.Sprintf("%.4g J", float64(j))
}

// For returns the energy of constant power w over d.
func (w Watts) For(d time.Duration) Joules { return Joules(float64(w) * d.Seconds()) }

// Kg returns g in kilograms.
func (g Grams) Kg() float64 { return float64(g) / 1000 }

// String formats g in kilograms if its magnitude is at least one kilogram, and in grams otherwise.
func (g Grams) String() string {
	if g >= 1000 || g <= -1000 {
		return fmt.Sprintf("%.4g kgCO2e", g.Kg())
	}
	return fmt.Sprintf("%.4g gCO2e", float64(g))
}

// Quality describes the source of a number. It accompanies the number into every table and plot.
type Quality uint8

// The values are ordered by increasing trust, so that the quality of a sum is the minimum of the qualities of its
// parts.
const (
	Estimated Quality = iota // from a model
	Derived                  // computed from measured numbers
	Measured                 // read from a meter
)

var qualityNames = []string{"estimated", "derived", "measured"}

// String returns the name used in tables, labels and JSON.
func (q Quality) String() string { return nameOf("quality", qualityNames, q) }

// MarshalText encodes q as its name in JSON and YAML.
func (q Quality) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText parses the name of a Quality.
func (q *Quality) UnmarshalText(text []byte) error { return named("quality", qualityNames, text, q) }
