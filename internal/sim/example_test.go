package sim_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

func Example() {
	start := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	intensity, err := grid.NewSeries(start, time.Hour, []float64{400, 100, 400, 400})
	if err != nil {
		panic(err)
	}
	site := &sched.Site{Name: "home", Carbon: grid.Signal{Series: intensity}}
	room := sched.Resources{MilliCPU: 8000}
	scenario := &sim.Scenario{
		Start: start, Sites: []*sched.Site{site},
		Nodes: []sched.Node{{
			Name: "n1", Site: site, Capacity: room, Free: room, Profile: &energy.Profile{Idle: 60, Max: 160},
		}},
		Jobs: []sched.Job{{
			ID: "report", Submitted: start, Duration: time.Hour, AllowedDelay: 3 * time.Hour,
			Request: sched.Resources{MilliCPU: 8000},
		}},
	}
	for _, name := range []string{"energy", "energy+window"} {
		strategy, err := strategy.New(name)
		if err != nil {
			panic(err)
		}
		r, err := sim.Run(context.Background(), scenario, name, strategy)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %v, %v, started after %v\n", name, r.Energy, r.Carbon, r.Outcomes[0].Start.Sub(start))
	}
	// Output:
	// energy: 0.16 kWh, 64 gCO2e, started after 0s
	// energy+window: 0.16 kWh, 16 gCO2e, started after 1h0m0s
}
