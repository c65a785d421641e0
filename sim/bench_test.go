package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
)

// bench returns a scenario of three kinds of machines at about half load.
func bench(t testing.TB, nodes, jobs int) *sim.Scenario {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 24*60)
	for i := range values {
		values[i] = 300 + 100*rng.Float64()
	}
	series, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	home := &sched.Site{Name: "home", PUE: 1.2, Carbon: grid.Signal{Series: series}}
	s := &sim.Scenario{Start: start, Sites: []*sched.Site{home}}
	profiles := []*energy.Profile{
		{Idle: 90, Max: 250, Sleep: 10},
		{Idle: 60, Max: 350, Sleep: 10},
		{Curve: []energy.Point{{Utilisation: 0, Power: 100}, {Utilisation: 0.1, Power: 180}, {Utilisation: 0.5, Power: 300}, {Utilisation: 1, Power: 520}}, Sleep: 10},
	}
	for i := range nodes {
		s.Nodes = append(s.Nodes, node(fmt.Sprintf("n%05d", i), home, 32, profiles[i%len(profiles)]))
	}
	var at time.Duration
	for i := range jobs {
		at += time.Duration(rng.ExpFloat64() * float64(3*time.Hour) / float64(8*nodes))
		s.Jobs = append(s.Jobs, job(fmt.Sprint("j", i), at, time.Duration(1+rng.IntN(3*3600))*time.Second, 1+rng.Int64N(4), 6*time.Hour))
	}
	return s
}

// BenchmarkRun reports jobs per second on 1,000 nodes: arrival, feasibility, decision, completion and accounting.
func BenchmarkRun(b *testing.B) {
	for _, name := range []string{"least-allocated", "energy", "carbon", "carbon+window", "exec"} {
		b.Run(name, func(b *testing.B) {
			const jobs = 20_000
			s := bench(b, 1000, jobs)
			strategy, err := sched.New(name)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := sim.Run(context.Background(), s, name, strategy); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(jobs*b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
