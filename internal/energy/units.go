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

// JoulesPerKWh is how many make the unit that electricity is billed in.
const JoulesPerKWh = 3.6e6

// KWh reports j in kilowatt-hours.
func (j Joules) KWh() float64 { return float64(j) / JoulesPerKWh }

// String renders j in kilowatt-hours above a watt-hour and in joules below.
func (j Joules) String() string {
	if j >= JoulesPerKWh/1000 || j <= -JoulesPerKWh/1000 {
		return fmt.Sprintf("%.4g kWh", j.KWh())
	}
	return fmt.Sprintf("%.4g J", float64(j))
}

// For returns the energy of constant power w over d.
func (w Watts) For(d time.Duration) Joules { return Joules(float64(w) * d.Seconds()) }

// Kg reports g in kilograms.
func (g Grams) Kg() float64 { return float64(g) / 1000 }

// String renders g in kilograms above one kilogram and in grams below.
func (g Grams) String() string {
	if g >= 1000 || g <= -1000 {
		return fmt.Sprintf("%.4g kgCO2e", g.Kg())
	}
	return fmt.Sprintf("%.4g gCO2e", float64(g))
}

// Quality says where a number comes from. It travels with the number up to the last table and plot.
type Quality uint8

// The order is that of growing trust, so that the quality of a sum is the minimum of its parts.
const (
	Estimated Quality = iota // from a model
	Derived                  // computed from measured numbers
	Measured                 // read from a meter
)

var qualityNames = []string{"estimated", "derived", "measured"}

// String returns the name used in tables, labels and JSON.
func (q Quality) String() string { return nameOf("quality", qualityNames, q) }

// MarshalText lets a Quality appear by name in JSON and YAML.
func (q Quality) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText reads the name of a Quality.
func (q *Quality) UnmarshalText(text []byte) error { return named("quality", qualityNames, text, q) }
