package ledger

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// answerJSON is an answer as it travels. Numbers are exact decimals in the units that their names say.
type answerJSON struct {
	From       time.Time   `json:"from"`
	To         time.Time   `json:"to"`
	AsOf       time.Time   `json:"asOf,omitzero"`
	Resolution json.Number `json:"resolutionSeconds"`
	GroupBy    []Dimension `json:"groupBy"`
	Rows       []Row       `json:"rows"`
	Total      Row         `json:"total"`
}

type rowJSON struct {
	Key            []string               `json:"key"` // null: of the rows that a limit left out, and of the total
	Energy         json.Number            `json:"energyJoules"`
	EnergyKWh      json.Number            `json:"energyKWh"`
	Dynamic        json.Number            `json:"dynamicJoules"`
	Idle           json.Number            `json:"idleJoules"`
	CPU            json.Number            `json:"cpuSeconds"`
	Facility       json.Number            `json:"facilityJoules"`
	FacilityKWh    json.Number            `json:"facilityKWh"`
	Emissions      map[string]json.Number `json:"emissionsGramsCO2e"`
	Costs          map[string]json.Number `json:"costs"`
	Estimated      json.Number            `json:"estimatedJoules"`
	EstimatedShare json.Number            `json:"estimatedShare"`
	Uncharted      json.Number            `json:"unchartedJoules"`
	Unpriced       json.Number            `json:"unpricedJoules"`
	Unmeasured     json.Number            `json:"unmeasuredSeconds"`
	Quality        energy.Quality         `json:"quality"`
	First          time.Time              `json:"first,omitzero"`
	Last           time.Time              `json:"last,omitzero"`
}

// MarshalJSON writes an answer with units in its names.
func (a Answer) MarshalJSON() ([]byte, error) {
	v := answerJSON{
		From: a.From, To: a.To, AsOf: a.AsOf, Resolution: json.Number(decimal(int64(a.Resolution), nanoPlaces)),
		GroupBy: a.GroupBy, Rows: a.Rows, Total: a.Total,
	}
	if v.GroupBy == nil {
		v.GroupBy = []Dimension{}
	}
	if v.Rows == nil {
		v.Rows = []Row{}
	}
	return json.Marshal(&v)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Answer) UnmarshalJSON(data []byte) error {
	var v answerJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	resolution, err := whole(v.Resolution.String(), nanoPlaces)
	if err != nil {
		return fmt.Errorf("reading the resolution of an answer: %w", err)
	}
	*a = Answer{
		From: v.From, To: v.To, AsOf: v.AsOf, Resolution: time.Duration(resolution), GroupBy: v.GroupBy, Rows: v.Rows,
		Total: v.Total,
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
	micro := func(v energy.Microjoules) json.Number { return json.Number(decimal(int64(v), microPlaces)) }
	kWh := func(v energy.Microjoules) json.Number { return json.Number(short(float64(v) / microjoulesPerKWh)) }
	seconds := func(d time.Duration) json.Number { return json.Number(decimal(int64(d), nanoPlaces)) }
	v := rowJSON{
		Key: r.Key, Energy: micro(r.Energy()), EnergyKWh: kWh(r.Energy()), Dynamic: micro(r.Dynamic),
		Idle: micro(r.Idle),
		CPU:  seconds(r.CPU), Facility: micro(r.Facility), FacilityKWh: kWh(r.Facility),
		Emissions: map[string]json.Number{}, Costs: map[string]json.Number{},
		Estimated: micro(r.Estimated), EstimatedShare: json.Number(short(r.EstimatedShare())),
		Uncharted: micro(r.Uncharted), Unpriced: micro(r.Unpriced), Unmeasured: seconds(r.Unmeasured),
		Quality: r.Quality(), First: r.First, Last: r.Last,
	}
	for signal, carbon := range r.Emissions {
		v.Emissions[signal] = json.Number(decimal(int64(carbon), microPlaces))
	}
	for currency, cost := range r.Costs {
		v.Costs[currency] = json.Number(decimal(int64(cost), nanoPlaces))
	}
	return json.Marshal(&v)
}

// UnmarshalJSON reads what MarshalJSON writes; what follows from the rest is not read.
func (r *Row) UnmarshalJSON(data []byte) error {
	var v rowJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("reading a row: %w", err)
	}
	out := Row{Key: v.Key, First: v.First, Last: v.Last}
	for _, field := range []struct {
		to     *int64
		text   json.Number
		places int
	}{
		{(*int64)(&out.Dynamic), v.Dynamic, microPlaces},
		{(*int64)(&out.Idle), v.Idle, microPlaces},
		{(*int64)(&out.CPU), v.CPU, nanoPlaces},
		{(*int64)(&out.Facility), v.Facility, microPlaces},
		{(*int64)(&out.Estimated), v.Estimated, microPlaces},
		{(*int64)(&out.Uncharted), v.Uncharted, microPlaces},
		{(*int64)(&out.Unpriced), v.Unpriced, microPlaces},
		{(*int64)(&out.Unmeasured), v.Unmeasured, nanoPlaces},
	} {
		n, err := whole(field.text.String(), field.places)
		if err != nil {
			return fmt.Errorf("reading a row: %w", err)
		}
		*field.to = n
	}
	for _, signal := range slices.Sorted(maps.Keys(v.Emissions)) {
		n, err := whole(v.Emissions[signal].String(), microPlaces)
		if err != nil {
			return fmt.Errorf("reading the emissions of a row: %w", err)
		}
		out.Emit(signal, Micrograms(n))
	}
	for _, currency := range slices.Sorted(maps.Keys(v.Costs)) {
		n, err := whole(v.Costs[currency].String(), nanoPlaces)
		if err != nil {
			return fmt.Errorf("reading the costs of a row: %w", err)
		}
		out.Charge(currency, Nanos(n))
	}
	*r = out
	return nil
}
