package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// bench returns a scenario with three kinds of machines at about half load.
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
		{Curve: []energy.Point{
			{Utilisation: 0, Power: 100},
			{Utilisation: 0.1, Power: 180},
			{Utilisation: 0.5, Power: 300},
			{Utilisation: 1, Power: 520},
		}, Sleep: 10},
	}
	for i := range nodes {
		s.Nodes = append(s.Nodes, node(fmt.Sprintf("n%05d", i), home, 32, profiles[i%len(profiles)]))
	}
	var at time.Duration
	for i := range jobs {
		at += time.Duration(rng.ExpFloat64() * float64(3*time.Hour) / float64(8*nodes))
		s.Jobs = append(s.Jobs, job(fmt.Sprint("j", i), at, time.Duration(1+rng.IntN(3*3600))*time.Second,
			1+rng.Int64N(4), 6*time.Hour))
	}
	return s
}

// fleet returns the scenario of bench with the given number of kinds of nodes, each with its own power profile.
func fleet(t testing.TB, nodes, kinds, jobs int) *sim.Scenario {
	t.Helper()
	s := bench(t, nodes, jobs)
	profiles := make([]*energy.Profile, kinds)
	for k := range profiles {
		p := *s.Nodes[k%3].Profile
		p.Idle += energy.Watts(k) / 100
		profiles[k] = &p
	}
	for i := range s.Nodes {
		s.Nodes[i].Profile = profiles[i%kinds]
	}
	return s
}

// BenchmarkRun reports jobs per second, including arrival, feasibility, decision, completion and accounting.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		name         string
		nodes, kinds int
	}{
		{"round-robin", 50, 12},
		{"round-robin", 1000, 12},
		{"energy", 50, 12},
		{"energy", 1000, 12},
		{"energy", 1000, 1000},
		{"carbon", 1000, 12},
		{"least-allocated", 1000, 12},
		{"carbon+window", 1000, 12},
		{"exec", 1000, 12},
	} {
		b.Run(fmt.Sprintf("%s/nodes=%d/kinds=%d", c.name, c.nodes, c.kinds), func(b *testing.B) {
			const jobs = 50_000
			s := fleet(b, c.nodes, c.kinds, jobs)
			strategy, err := strategy.New(c.name)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := sim.Run(context.Background(), s, c.name, strategy); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(jobs*b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
