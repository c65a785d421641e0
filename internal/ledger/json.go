package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Numbers are encoded as exact decimals in the units of their field names.
type (
	millionths int64 // e.g. microjoules, encoded in joules
	billionths int64 // e.g. nanoseconds, encoded in seconds
)

// MarshalJSON implements json.Marshaler and returns a decimal number.
func (n millionths) MarshalJSON() ([]byte, error) { return []byte(decimal(int64(n), microPlaces)), nil }

// MarshalJSON implements json.Marshaler and returns a decimal number.
func (n billionths) MarshalJSON() ([]byte, error) { return []byte(decimal(int64(n), nanoPlaces)), nil }

// UnmarshalJSON implements json.Unmarshaler and parses a decimal number.
func (n *millionths) UnmarshalJSON(text []byte) (err error) {
	*(*int64)(n), err = whole(string(text), microPlaces)
	return err
}

// UnmarshalJSON implements json.Unmarshaler and parses a decimal number.
func (n *billionths) UnmarshalJSON(text []byte) (err error) {
	*(*int64)(n), err = whole(string(text), nanoPlaces)
	return err
}

// MarshalJSON implements json.Marshaler and returns a decimal number of grams.
func (u Micrograms) MarshalJSON() ([]byte, error) { return millionths(u).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler and parses a decimal number of grams.
func (u *Micrograms) UnmarshalJSON(text []byte) error { return (*millionths)(u).UnmarshalJSON(text) }

// MarshalJSON implements json.Marshaler and returns a decimal number of whole currency units.
func (n Nanos) MarshalJSON() ([]byte, error) { return billionths(n).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler and parses a decimal number of whole currency units.
func (n *Nanos) UnmarshalJSON(text []byte) error { return (*billionths)(n).UnmarshalJSON(text) }

// answerJSON is the JSON representation of an answer. It points to the fields of the answer for both encoding and
// decoding.
type answerJSON struct {
	From       *time.Time   `json:"from"`
	To         *time.Time   `json:"to"`
	AsOf       *time.Time   `json:"asOf,omitzero"`
	Resolution *billionths  `json:"resolutionSeconds"`
	GroupBy    *[]Dimension `json:"groupBy"`
	Rows       *[]Row       `json:"rows"`
	Total      *Row         `json:"total"`
}

func (a *Answer) json() *answerJSON {
	return &answerJSON{&a.From, &a.To, &a.AsOf, (*billionths)(&a.Resolution), &a.GroupBy, &a.Rows, &a.Total}
}

// rowJSON is the JSON representation of a row. Fields that are not pointers are derived from others and only
// encoded.
type rowJSON struct {
	Key            *[]string              `json:"key"` // null for the total and for the sum of rows beyond the limit
	Energy         millionths             `json:"energyJoules"`
	EnergyKWh      json.Number            `json:"energyKWh"`
	Dynamic        *millionths            `json:"dynamicJoules"`
	Idle           *millionths            `json:"idleJoules"`
	GPU            *millionths            `json:"gpuJoules"`
	CPU            *billionths            `json:"cpuSeconds"`
	Facility       *millionths            `json:"facilityJoules"`
	FacilityKWh    json.Number            `json:"facilityKWh"`
	Emissions      *map[string]Micrograms `json:"emissionsGramsCO2e"`
	Costs          *map[string]Nanos      `json:"costs"`
	Estimated      *millionths            `json:"estimatedJoules"`
	EstimatedShare json.Number            `json:"estimatedShare"`
	Uncharted      *millionths            `json:"unchartedJoules"`
	Unpriced       *millionths            `json:"unpricedJoules"`
	Unmeasured     *billionths            `json:"unmeasuredSeconds"`
	Quality        energy.Quality         `json:"quality"`
	First          *time.Time             `json:"first,omitzero"`
	Last           *time.Time             `json:"last,omitzero"`
}

func (r *Row) json() *rowJSON {
	return &rowJSON{
		Key: &r.Key, Energy: millionths(r.Energy()), EnergyKWh: json.Number(kWh(r.Energy())),
		Dynamic: (*millionths)(&r.Dynamic), Idle: (*millionths)(&r.Idle), GPU: (*millionths)(&r.GPU),
		CPU:      (*billionths)(&r.CPU),
		Facility: (*millionths)(&r.Facility), FacilityKWh: json.Number(kWh(r.Facility)),
		Emissions: &r.Emissions, Costs: &r.Costs,
		Estimated: (*millionths)(&r.Estimated), EstimatedShare: json.Number(short(r.EstimatedShare())),
		Uncharted: (*millionths)(&r.Uncharted), Unpriced: (*millionths)(&r.Unpriced),
		Unmeasured: (*billionths)(&r.Unmeasured), Quality: r.Quality(), First: &r.First, Last: &r.Last,
	}
}

// MarshalJSON implements json.Marshaler. The field names contain the units.
func (a Answer) MarshalJSON() ([]byte, error) {
	a.GroupBy, a.Rows = append([]Dimension{}, a.GroupBy...), append([]Row{}, a.Rows...) // never null
	return json.Marshal(a.json())
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Answer) UnmarshalJSON(data []byte) error {
	*a = Answer{}
	if err := json.Unmarshal(data, a.json()); err != nil {
		return fmt.Errorf("decoding an answer: %w", err)
	}
	return nil
}

// EstimatedShare returns the fraction of the row's energy that was computed by a model, from 0 to 1.
func (r *Row) EstimatedShare() float64 {
	if r.Estimated == 0 || r.Energy() == 0 {
		return 0
	}
	return min(max(float64(r.Estimated)/float64(r.Energy()), 0), 1)
}

// Quality returns the quality of the row. The best quality is derived, because the usage of consumers is never
// measured directly.
func (r *Row) Quality() energy.Quality {
	if r.Estimated != 0 {
		return energy.Estimated
	}
	return energy.Derived
}

// MarshalJSON implements json.Marshaler. The field names contain the units.
func (r Row) MarshalJSON() ([]byte, error) {
	if r.Emissions == nil {
		r.Emissions = map[string]Micrograms{}
	}
	if r.Costs == nil {
		r.Costs = map[string]Nanos{}
	}
	return json.Marshal(r.json())
}

// UnmarshalJSON implements json.Unmarshaler. Derived fields are ignored.
func (r *Row) UnmarshalJSON(data []byte) error {
	*r = Row{}
	if err := json.Unmarshal(data, r.json()); err != nil {
		return fmt.Errorf("decoding a row: %w", err)
	}
	r.Carbon, r.Cost = only(r.Emissions), only(r.Costs)
	return nil
}
