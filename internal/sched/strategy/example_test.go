package strategy_test

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

func Example() {
	midnight := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	intensity, err := grid.NewSeries(midnight, time.Hour, []float64{400, 300, 100, 500})
	if err != nil {
		panic(err)
	}
	site := &sched.Site{Name: "home", PUE: 1.2, Carbon: grid.Signal{Series: intensity}}
	room := sched.Resources{MilliCPU: 8000, Memory: 32 << 30}
	node := &sched.Node{
		Name: "n1", Site: site, Capacity: room, Free: room, Profile: &energy.Profile{Idle: 60, Max: 160, Sleep: 60},
	}
	job := sched.Job{
		ID: "report", Submitted: midnight, Duration: time.Hour, AllowedDelay: 3 * time.Hour,
		Request: sched.Resources{MilliCPU: 2000, Memory: 4 << 30},
	}
	strategy, err := strategy.New("carbon+window")
	if err != nil {
		panic(err)
	}
	snapshot := &sched.Snapshot{
		Now: midnight, Queue: []sched.Job{job}, Nodes: []*sched.Node{node}, Sites: []*sched.Site{site},
	}
	fmt.Println(strategy.Plan(snapshot)[0].Reason)

	snapshot.Now = midnight.Add(2 * time.Hour) // the window starts
	snapshot.Queue[0].Released = true
	d := strategy.Plan(snapshot)[0]
	fmt.Printf("%s on %s: %v, %v\n", d.Job, d.Node, d.Cost.Energy, d.Cost.Carbon)
	// Output:
	// held until 2026-06-01T02:00:00Z: saves an estimated 75 % (2.88 gCO2e); starts by 2026-06-01T03:00:00Z at the latest
	// report on n1: 0.03 kWh, 3 gCO2e
}
