package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Numbers travel as exact decimals in the units that their names say.
type (
	millionths int64 // such as microjoules, in joules
	billionths int64 // such as nanoseconds, in seconds
)

// MarshalJSON writes a decimal number.
func (n millionths) MarshalJSON() ([]byte, error) { return []byte(decimal(int64(n), microPlaces)), nil }

// MarshalJSON writes a decimal number.
func (n billionths) MarshalJSON() ([]byte, error) { return []byte(decimal(int64(n), nanoPlaces)), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (n *millionths) UnmarshalJSON(text []byte) (err error) {
	*(*int64)(n), err = whole(string(text), microPlaces)
	return err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *billionths) UnmarshalJSON(text []byte) (err error) {
	*(*int64)(n), err = whole(string(text), nanoPlaces)
	return err
}

// MarshalJSON writes a decimal number of grams.
func (u Micrograms) MarshalJSON() ([]byte, error) { return millionths(u).MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON writes.
func (u *Micrograms) UnmarshalJSON(text []byte) error { return (*millionths)(u).UnmarshalJSON(text) }

// MarshalJSON writes a decimal number of a currency's units.
func (n Nanos) MarshalJSON() ([]byte, error) { return billionths(n).MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Nanos) UnmarshalJSON(text []byte) error { return (*billionths)(n).UnmarshalJSON(text) }

// answerJSON points to what of an answer is written, and read into the same places.
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

// rowJSON is to a row what answerJSON is to an answer. What is no pointer follows from the rest.
type rowJSON struct {
	Key            *[]string              `json:"key"` // null: of the rows that a limit left out, and of the total
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

// MarshalJSON writes an answer with units in its names.
func (a Answer) MarshalJSON() ([]byte, error) {
	a.GroupBy, a.Rows = append([]Dimension{}, a.GroupBy...), append([]Row{}, a.Rows...) // never null
	return json.Marshal(a.json())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Answer) UnmarshalJSON(data []byte) error {
	*a = Answer{}
	if err := json.Unmarshal(data, a.json()); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	return nil
}

// EstimatedShare is how much of a row's energy comes from a model: 0 to 1.
func (r *Row) EstimatedShare() float64 {
	if r.Estimated == 0 || r.Energy() == 0 {
		return 0
	}
	return min(max(float64(r.Estimated)/float64(r.Energy()), 0), 1)
}

// Quality is that of a row: derived at best, as what consumers used is never measured by itself.
func (r *Row) Quality() energy.Quality {
	if r.Estimated != 0 {
		return energy.Estimated
	}
	return energy.Derived
}

// MarshalJSON writes a row with units in its names.
func (r Row) MarshalJSON() ([]byte, error) {
	if r.Emissions == nil {
		r.Emissions = map[string]Micrograms{}
	}
	if r.Costs == nil {
		r.Costs = map[string]Nanos{}
	}
	return json.Marshal(r.json())
}

// UnmarshalJSON reads what MarshalJSON writes; what follows from the rest is not read.
func (r *Row) UnmarshalJSON(data []byte) error {
	*r = Row{}
	if err := json.Unmarshal(data, r.json()); err != nil {
		return fmt.Errorf("reading a row: %w", err)
	}
	r.Carbon, r.Cost = only(r.Emissions), only(r.Costs)
	return nil
}
