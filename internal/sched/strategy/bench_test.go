package strategy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// twoDays returns 48 hours in steps of five minutes, with a minimum that depends on the zone in time and depth.
func twoDays(b *testing.B, zone int) *grid.Series {
	b.Helper()
	values := make([]float64, 576)
	for i := range values {
		values[i] = 300 + float64(zone%7)*10 + 100*math.Sin(2*math.Pi*float64(i+zone)/288) + float64((i*7919+zone)%13)
	}
	s, err := grid.NewSeries(schedtest.Day.Add(time.Duration(zone)*time.Second), 5*time.Minute, values)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func zones(b *testing.B, n int) *sched.Snapshot {
	b.Helper()
	s := &sched.Snapshot{
		Now: schedtest.Day.Add(10 * time.Minute), Policy: sched.Policy{Weights: sched.Weights{Carbon: 1, Price: 1}},
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
		// The limits are never met, so that the whole forecast is searched.
		Limits: sched.Limits{Carbon: 10, Percentile: 0.2, Price: 10, HasPrice: true},
	}}
	return s
}

func benchmarkPlan(b *testing.B, n int) {
	for _, name := range []string{"energy+window", "energy+threshold"} {
		b.Run(name, func(b *testing.B) {
			strategy, err := strategy.New(name)
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

// BenchmarkPlan100Zones must not take longer than 100 ms.
func BenchmarkPlan100Zones(b *testing.B) { benchmarkPlan(b, 100) }

// BenchmarkCosts computes the costs of one job on 1,000 nodes at 3 sites.
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
			strategy, err := strategy.New(name)
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

// BenchmarkBatch plans a queue of jobs with 24 different requests on nodes that all differ in their free resources.
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
				strategy, err := strategy.New(name)
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

// federation returns the given number of clusters with nodes of four kinds, both busy and asleep, on grids with
// different levels and shapes and hourly forecasts for two days. Two thirds of the jobs in the queue may wait, and
// some are restricted to one or two sites.
func federation(b *testing.B, clusters, nodes, jobs int) *sched.Snapshot {
	b.Helper()
	rnd := rand.New(rand.NewPCG(22, 1))
	s := &sched.Snapshot{Now: schedtest.Day.Add(10 * time.Minute)}
	var kinds []*energy.Profile
	for k := range 4 {
		idle := energy.Watts(40 + 15*k)
		kinds = append(kinds, &energy.Profile{Idle: idle, Max: 4*idle + 50, Exponent: 1, Sleep: 10, WakeUp: 20000})
	}
	for c := range clusters {
		values := make([]float64, 48)
		mean, swing, phase := 30+600*rnd.Float64(), rnd.Float64(), 24*rnd.Float64()
		for h := range values {
			values[h] = mean * (1 + 0.7*swing*math.Sin(2*math.Pi*(float64(h)+phase)/24) + 0.1*rnd.Float64())
		}
		series, err := grid.NewSeries(schedtest.Day, time.Hour, values)
		if err != nil {
			b.Fatal(err)
		}
		site := &sched.Site{Name: fmt.Sprintf("c%03d", c), PUE: 1 + rnd.Float64(), Carbon: grid.Signal{Series: series}}
		s.Sites = append(s.Sites, site)
		for i := range nodes {
			capacity := sched.Resources{MilliCPU: int64(16000 << (i % 4)), Memory: 64 << 30}
			n := &sched.Node{
				Name: fmt.Sprintf("c%03d-n%03d", c, i), Site: site, Capacity: capacity, Free: capacity, Profile: kinds[i%4],
			}
			if n.Jobs = rnd.IntN(4); n.Jobs > 0 {
				used := rnd.Float64()
				n.Free.MilliCPU -= int64(used * float64(capacity.MilliCPU))
				n.Free.Memory -= int64(used * float64(capacity.Memory))
			}
			s.Nodes = append(s.Nodes, n)
		}
	}
	for i := range jobs {
		j := sched.Job{
			ID: fmt.Sprintf("j%05d", i), Submitted: s.Now, Duration: time.Duration(5+rnd.IntN(300)) * time.Minute,
			Request: sched.Resources{MilliCPU: int64(500 << rnd.IntN(5)), Memory: int64(1+rnd.IntN(8)) << 30},
		}
		if i%3 != 2 {
			j.AllowedDelay = time.Duration(1+rnd.IntN(24)) * time.Hour
		}
		if i%10 == 9 {
			j.Sites = []string{s.Sites[rnd.IntN(clusters)].Name, s.Sites[rnd.IntN(clusters)].Name}
		}
		s.Queue = append(s.Queue, j)
	}
	return s
}

// BenchmarkClusters plans a queue for 100 clusters, and ranks them for one job, both with all nodes and with folded
// nodes. The queue must not take longer than one second, the ranking not longer than 5 ms.
func BenchmarkClusters(b *testing.B) {
	strategy, err := strategy.New("carbon+window")
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []struct {
		nodes, jobs int
		fold        bool
	}{{50, 1, false}, {50, 1, true}, {50, 5000, false}, {50, 5000, true}, {1000, 5000, true}} {
		s := federation(b, 100, size.nodes, size.jobs)
		if size.jobs == 1 {
			s.Queue[0].AllowedDelay = 0 // the job is placed, so that nodes are ranked
		}
		if size.fold {
			s.Nodes = sched.Fold(s.Nodes)
		}
		b.Run(fmt.Sprintf("jobs=%d/nodes=100x%d/as=%d", size.jobs, size.nodes, len(s.Nodes)), func(b *testing.B) {
			for b.Loop() {
				placed := 0
				for _, d := range strategy.Plan(s) {
					if d.Node != "" {
						placed++
					}
				}
				b.ReportMetric(float64(placed), "placed")
			}
		})
	}
}
