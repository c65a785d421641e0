package signal

import (
	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// quantity is the quantity of a signal. It is a label value in metrics.
type quantity string

const (
	carbon quantity = "carbon" // in gCO2e/kWh
	price  quantity = "price"  // in a currency per kWh
)

// gramsPerKWhOfPoundsPerMWh converts lb/MWh to g/kWh, with 453.592 g per pound.
const gramsPerKWhOfPoundsPerMWh = 0.453592

// perKWh contains the conversion factors of all units.
var perKWh = map[quantity]map[v1alpha1.Unit]float64{
	carbon: {"": 1, "g/kWh": 1, "kg/MWh": 1, "lb/MWh": gramsPerKWhOfPoundsPerMWh, "kg/kWh": 1000},
	price:  {"": 1, "per-kWh": 1, "per-MWh": 1.0 / 1000, "cents/kWh": 1.0 / 100},
}

// factor returns the conversion factor of a unit. It returns an error if the unit does not belong to the quantity.
func factor(q quantity, unit v1alpha1.Unit) (float64, error) {
	f, ok := perKWh[q][unit]
	if !ok {
		return 0, dial.Refuse(dial.ReasonUnit, "%q is not a unit of %s", unit, q)
	}
	return f, nil
}
