package grid_test

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// The consumption is one kilowatt during the last half hour of a dirty hour and the first half of a clean one.
func ExampleSeries_Mean() {
	midnight := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	intensity, err := grid.NewSeries(midnight, time.Hour, []float64{400, 100})
	if err != nil {
		panic(err)
	}
	start := midnight.Add(30 * time.Minute)
	mean := grid.Intensity(intensity.Mean(start, start.Add(time.Hour)))
	fmt.Println(mean, "g/kWh,", mean.Of(energy.Joules(1*energy.JoulesPerKWh)))
	// Output: 250 g/kWh, 250 gCO2e
}
