package scenarios_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/workload/workloadtest"
)

// TestLargePodsWaitNoLonger compares "energy" with the default kube-scheduler on the machines of
// experiments/kubenergysched.yaml: pods of 16 cores fit on three of ten, which are the most efficient ones. The day of
// the demo is drawn 30 times. Prices of waiting were compared on other draws.
func TestLargePodsWaitNoLonger(t *testing.T) {
	for _, tc := range []struct {
		length            time.Duration
		saved, longerWait float64 // required mean saving and ratio of the 99th percentiles of the wait
	}{{4 * time.Hour, 0.1, 1.3}, {12 * time.Hour, 0.09, 1.5}} {
		t.Run(tc.length.String(), func(t *testing.T) {
			const days = 30
			var saved float64
			var wait, stockWait time.Duration
			for seed := range uint64(days) {
				s := threeLargeMachines(seed+101, tc.length)
				stock, r := runNamed(t, s, "least-allocated"), runNamed(t, s, "energy")
				saved += (1 - float64(r.Energy)/float64(stock.Energy)) / days
				wait += longWait(r)
				stockWait += longWait(stock)
			}
			ratio := float64(wait) / float64(stockWait)
			t.Logf("saved %.1f %%, 99th percentile of the wait %v, %.2f times that of the default", 100*saved,
				(wait / days).Round(time.Second), ratio)
			if saved < tc.saved || ratio > tc.longerWait {
				t.Errorf("want a saving of at least %.0f %%, and at most %.1f times the wait", 100*tc.saved, tc.longerWait)
			}
		})
	}
}

func longWait(r *sim.Result) time.Duration {
	waits := make([]time.Duration, len(r.Outcomes))
	for i := range r.Outcomes {
		waits[i] = r.Outcomes[i].Start.Sub(r.Scenario.Jobs[i].Submitted)
	}
	slices.Sort(waits)
	return waits[len(waits)*99/100]
}

func threeLargeMachines(seed uint64, length time.Duration) *sim.Scenario {
	site := &sched.Site{Name: "here"}
	s := &sim.Scenario{Start: start, Sites: []*sched.Site{site}}
	for _, kind := range []struct {
		name      string
		count     int
		cores     int64
		idle, max energy.Watts
	}{{"old", 7, 12, 62, 244}, {"mid", 2, 28, 39, 237}, {"big", 1, 64, 52, 228}} {
		profile := &energy.Profile{Idle: kind.idle, Max: kind.max}
		room := sched.Resources{MilliCPU: kind.cores * 1000, Memory: kind.cores * 4 << 30}
		for i := range kind.count {
			s.Nodes = append(s.Nodes, sched.Node{
				Name: fmt.Sprint(kind.name, i), Site: site, Capacity: room, Free: room, Profile: profile, Awake: true,
			})
		}
	}
	for _, j := range workloadtest.Demo(seed, start) {
		if j.Submitted.Sub(start) < length {
			j.AllowedDelay = 0
			s.Jobs = append(s.Jobs, j)
		}
	}
	return s
}
