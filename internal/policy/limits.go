package policy

import (
	"fmt"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// The dirtiest grids emit about 1,200 g/kWh at the margin; what is ten times worse was written in another unit.
const (
	maxIntensity = 10_000 // gCO2e per kWh
	maxPUE       = 10
	maxPrice     = 1e6 // per kWh: there are currencies of small units
)

// CheckSite reports what makes a site unusable.
func CheckSite(s *sched.Site) error {
	// 0 reads as 1: a file need not say it.
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
		if value := series.Value(i); !(value >= least && value <= most) { // NaN is neither
			return fmt.Errorf("%s value %d is %v %s: want %v to %v", what, i, value, unit, least, most)
		}
	}
	return nil
}
