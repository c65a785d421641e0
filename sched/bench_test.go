package sched_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// twoDays returns 48 hours in steps of five minutes, with a valley whose time and depth depend on the zone.
func twoDays(b *testing.B, zone int) *grid.Series {
	b.Helper()
	values := make([]float64, 576)
	for i := range values {
		values[i] = 300 + float64(zone%7)*10 + 100*math.Sin(2*math.Pi*float64(i+zone)/288) + float64((i*7919+zone)%13)
	}
	s, err := grid.NewSeries(day.Add(time.Duration(zone)*time.Second), 5*time.Minute, values)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func zones(b *testing.B, n int) *sched.Snapshot {
	b.Helper()
	s := &sched.Snapshot{
		Now: day.Add(10 * time.Minute), Policy: sched.Policy{Weights: sched.Weights{Carbon: 1, Price: 1}},
	}
	for i := range n {
		series := twoDays(b, i)
		s.Sites = append(s.Sites, &sched.Site{
			Name: fmt.Sprint("site", i), Carbon: grid.Signal{Series: series}, Price: grid.Signal{Series: series},
		})
	}
	s.Queue = []sched.Job{{
		ID: "j", Submitted: s.Now, Duration: 3 * time.Hour, AllowedDelay: 40 * time.Hour,
		Request: sched.Resources{MilliCPU: 4000},
		// never kept: the whole forecast is searched
		Limits: sched.Limits{Carbon: 10, Percentile: 0.2, Price: 10, HasPrice: true},
	}}
	return s
}

func benchmarkPlan(b *testing.B, n int) {
	for _, name := range []string{"energy+window", "energy+threshold"} {
		b.Run(name, func(b *testing.B) {
			strategy, err := sched.New(name)
			if err != nil {
				b.Fatal(err)
			}
			s := zones(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if d := strategy.Plan(s)[0]; !d.Held(s.Now) {
					b.Fatal(d.Reason)
				}
			}
		})
	}
}

func BenchmarkPlan1Zone(b *testing.B) { benchmarkPlan(b, 1) }

// BenchmarkPlan100Zones is held to 100 ms.
func BenchmarkPlan100Zones(b *testing.B) { benchmarkPlan(b, 100) }

// BenchmarkCosts prices one job on 1,000 nodes of 3 sites.
func BenchmarkCosts(b *testing.B) {
	s := zones(b, 3)
	s.Queue[0].Class = "training"
	for i := range 1000 {
		capacity := sched.Resources{MilliCPU: 32000, Memory: 64 << 30}
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: fmt.Sprintf("n%04d", i), Site: s.Sites[i%3], Capacity: capacity, Free: capacity, Jobs: i % 2,
			Profile:    &energy.Profile{Idle: 60, Max: 300, Sleep: 10},
			Benchmarks: map[string]energy.Benchmark{"training": {Rate: float64(1 + i%17), Power: 250, Idle: 60}},
			Live:       energy.Watts(50 + i%90), HasLive: true,
		})
	}
	for _, name := range []string{"carbon", "energy", "exec", "hybrid", "hybrid-idle", "least-allocated"} {
		b.Run(name, func(b *testing.B) {
			strategy, err := sched.New(name)
			if err != nil {
				b.Fatal(err)
			}
			costs := make([]float64, 0, len(s.Nodes))
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := strategy.Costs(s, &s.Queue[0], costs); !ok {
					b.Fatal("no opinion")
				}
			}
		})
	}
}

// BenchmarkBatch plans a queue of jobs of 24 shapes on nodes that all differ in what they have left.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []struct{ jobs, nodes int }{{5000, 1000}, {5000, 5000}} {
		s := zones(b, 3)
		s.Queue = nil
		for i := range size.jobs {
			s.Queue = append(s.Queue, sched.Job{
				ID: fmt.Sprintf("j%05d", i), Submitted: s.Now, Duration: time.Hour,
				Request: sched.Resources{MilliCPU: int64(250 * (1 + i%8)), Memory: int64(1+i%3) << 29},
			})
		}
		for i := range size.nodes {
			capacity := sched.Resources{MilliCPU: 32000, Memory: 64 << 30}
			used := sched.Resources{MilliCPU: int64(i * 7919 % 28000), Memory: int64(i*104729%40000) << 20}
			s.Nodes = append(s.Nodes, &sched.Node{
				Name: fmt.Sprintf("n%04d", i), Site: s.Sites[i%3], Capacity: capacity, Free: capacity.Sub(used),
				Jobs:    i % 3,
				Profile: &energy.Profile{Idle: energy.Watts(60 + i%5), Max: energy.Watts(300 - i%50), Sleep: 10},
			})
		}
		for _, name := range []string{"energy", "ecsched-energy", "flow-energy", "flow-dp", "flow-carbon"} {
			b.Run(fmt.Sprintf("%s/%dx%d", name, size.jobs, size.nodes), func(b *testing.B) {
				strategy, err := sched.New(name)
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					plan, proof := strategy.PlanWithin(s, func() bool { return false })
					placed, joules := 0, 0.0
					for i := range plan {
						if plan[i].Node != "" {
							placed++
							joules += float64(plan[i].Cost.Energy)
						}
					}
					b.ReportMetric(float64(placed), "placed")
					b.ReportMetric(joules/3.6e6, "kWh")
					if proof.HasGap {
						b.ReportMetric(100*proof.Gap, "%gap")
					}
				}
			})
		}
	}
}
