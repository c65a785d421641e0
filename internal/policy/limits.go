package policy

import (
	"fmt"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Limits of signals. The dirtiest grids have a marginal intensity of about 1,200 g/kWh, so ten times as much
// indicates a wrong unit.
const (
	maxIntensity = 10_000 // in gCO2e/kWh
	maxPUE       = 10
	maxPrice     = 1e6 // per kWh; high because some currencies have small units
)

// CheckSite returns an error if a site has invalid values.
func CheckSite(s *sched.Site) error {
	// 0 is equivalent to 1, because files may omit the PUE.
	if s.PUE != 0 && !(s.PUE >= 1 && s.PUE <= maxPUE) {
		return fmt.Errorf("pue is %v: want 1 to %d", s.PUE, maxPUE)
	}
	if err := checkSeries("carbon", s.Carbon.Series, 0, maxIntensity, "gCO2e/kWh"); err != nil {
		return err
	}
	return checkSeries("price", s.Price.Series, -maxPrice, maxPrice, "per kWh")
}

func checkSeries(what string, series *grid.Series, least, most float64, unit string) error {
	if series == nil {
		return nil
	}
	for i := range series.Len() {
		if value := series.Value(i); !(value >= least && value <= most) { // false for NaN
			return fmt.Errorf("%s value %d is %v %s: want %v to %v", what, i, value, unit, least, most)
		}
	}
	return nil
}
