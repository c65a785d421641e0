package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/energy"
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

type answerJSON struct {
	From       time.Time   `json:"from"`
	To         time.Time   `json:"to"`
	AsOf       time.Time   `json:"asOf,omitzero"`
	Resolution billionths  `json:"resolutionSeconds"`
	GroupBy    []Dimension `json:"groupBy"`
	Rows       []Row       `json:"rows"`
	Total      Row         `json:"total"`
}

type rowJSON struct {
	Key            []string              `json:"key"` // null: of the rows that a limit left out, and of the total
	Energy         millionths            `json:"energyJoules"`
	EnergyKWh      json.Number           `json:"energyKWh"`
	Dynamic        millionths            `json:"dynamicJoules"`
	Idle           millionths            `json:"idleJoules"`
	CPU            billionths            `json:"cpuSeconds"`
	Facility       millionths            `json:"facilityJoules"`
	FacilityKWh    json.Number           `json:"facilityKWh"`
	Emissions      map[string]millionths `json:"emissionsGramsCO2e"`
	Costs          map[string]billionths `json:"costs"`
	Estimated      millionths            `json:"estimatedJoules"`
	EstimatedShare json.Number           `json:"estimatedShare"`
	Uncharted      millionths            `json:"unchartedJoules"`
	Unpriced       millionths            `json:"unpricedJoules"`
	Unmeasured     billionths            `json:"unmeasuredSeconds"`
	Quality        energy.Quality        `json:"quality"`
	First          time.Time             `json:"first,omitzero"`
	Last           time.Time             `json:"last,omitzero"`
}

// MarshalJSON writes an answer with units in its names.
func (a Answer) MarshalJSON() ([]byte, error) {
	return json.Marshal(&answerJSON{
		From: a.From, To: a.To, AsOf: a.AsOf, Resolution: billionths(a.Resolution),
		GroupBy: append([]Dimension{}, a.GroupBy...), Rows: append([]Row{}, a.Rows...), Total: a.Total,
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Answer) UnmarshalJSON(data []byte) error {
	var v answerJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	*a = Answer{
		From: v.From, To: v.To, AsOf: v.AsOf, Resolution: time.Duration(v.Resolution), GroupBy: v.GroupBy, Rows: v.Rows,
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
	v := rowJSON{
		Key: r.Key, Energy: millionths(r.Energy()), EnergyKWh: json.Number(kWh(r.Energy())),
		Dynamic: millionths(r.Dynamic), Idle: millionths(r.Idle), CPU: billionths(r.CPU),
		Facility: millionths(r.Facility), FacilityKWh: json.Number(kWh(r.Facility)),
		Emissions: map[string]millionths{}, Costs: map[string]billionths{},
		Estimated: millionths(r.Estimated), EstimatedShare: json.Number(short(r.EstimatedShare())),
		Uncharted: millionths(r.Uncharted), Unpriced: millionths(r.Unpriced), Unmeasured: billionths(r.Unmeasured),
		Quality: r.Quality(), First: r.First, Last: r.Last,
	}
	for signal, carbon := range r.Emissions {
		v.Emissions[signal] = millionths(carbon)
	}
	for currency, cost := range r.Costs {
		v.Costs[currency] = billionths(cost)
	}
	return json.Marshal(&v)
}

// UnmarshalJSON reads what MarshalJSON writes; what follows from the rest is not read.
func (r *Row) UnmarshalJSON(data []byte) error {
	var v rowJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("reading a row: %w", err)
	}
	*r = Row{Key: v.Key, First: v.First, Last: v.Last, Amount: Amount{
		Dynamic: energy.Microjoules(v.Dynamic), Idle: energy.Microjoules(v.Idle), CPU: time.Duration(v.CPU),
		Facility: energy.Microjoules(v.Facility), Estimated: energy.Microjoules(v.Estimated),
		Uncharted: energy.Microjoules(v.Uncharted), Unpriced: energy.Microjoules(v.Unpriced),
		Unmeasured: time.Duration(v.Unmeasured),
	}}
	for signal, carbon := range v.Emissions {
		r.Emit(signal, Micrograms(carbon))
	}
	for currency, cost := range v.Costs {
		r.Charge(currency, Nanos(cost))
	}
	return nil
}
