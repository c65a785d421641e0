package grid

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Zone identifies an electricity grid area, e.g. "DE" or "US-CAL-CISO". It is not a topology zone.
type Zone string

// Intensity is the carbon intensity of electricity in gCO2e per kilowatt-hour.
type Intensity float64

// Of returns the emissions of e at intensity i.
func (i Intensity) Of(e energy.Joules) energy.Grams { return energy.Grams(float64(i) * e.KWh()) }

// Price is the price of electricity in units of one currency per kilowatt-hour. It may be negative.
type Price float64

// Money is an amount in the currency of the price that it was computed with.
type Money float64

// Of returns the cost of e at price p.
func (p Price) Of(e energy.Joules) Money { return Money(float64(p) * e.KWh()) }

// Signal is a time series of a zone as of a given time. The zero Signal is absent.
type Signal struct {
	Series  *Series
	AsOf    time.Time // time of issue; zero for a recorded series, which does not age
	Quality energy.Quality
	MaxAge  time.Duration // maximum age that takes precedence over policies; 0 if the policy decides
}

// clockSkew is the maximum difference between the clocks of a provider and this process. A signal issued further in
// the future is rejected.
const clockSkew = time.Minute

// Fresh reports whether the signal exists, covers now, and does not exceed its own maximum age, or maxAge if it has
// none. A maxAge of 0 means any age.
func (s Signal) Fresh(now time.Time, maxAge time.Duration) bool {
	if s.Series == nil || !s.Series.Covers(now, now) {
		return false
	}
	if s.MaxAge > 0 {
		maxAge = s.MaxAge
	}
	if s.AsOf.IsZero() || maxAge <= 0 {
		return true
	}
	age := now.Sub(s.AsOf)
	return age <= maxAge && age >= -clockSkew
}

// signalText is the JSON representation of a Signal.
type signalText struct {
	Start   time.Time      `json:"start"`
	Step    string         `json:"step"` // a Go duration
	Values  []float64      `json:"values"`
	AsOf    time.Time      `json:"asOf,omitzero"`
	Quality energy.Quality `json:"quality"`
}

// MarshalJSON encodes the signal with its whole series. An absent signal is null.
func (s Signal) MarshalJSON() ([]byte, error) {
	if s.Series == nil {
		return []byte("null"), nil
	}
	return json.Marshal(signalText{
		Start: s.Series.Start(), Step: s.Series.Step().String(), Values: s.Series.values, AsOf: s.AsOf,
		Quality: s.Quality,
	})
}

// UnmarshalJSON decodes the output of MarshalJSON and rejects unknown fields.
func (s *Signal) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*s = Signal{}
		return nil
	}
	var text signalText
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&text); err != nil {
		return fmt.Errorf("reading signal: %w", err)
	}
	step, err := time.ParseDuration(text.Step)
	if err != nil {
		return fmt.Errorf("reading signal: step: %w", err)
	}
	series, err := NewSeries(text.Start, step, text.Values)
	if err != nil {
		return err
	}
	*s = Signal{Series: series, AsOf: text.AsOf, Quality: text.Quality}
	return nil
}
