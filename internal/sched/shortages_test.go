package sched_test

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestShortages checks the shortages of jobs on two nodes. The larger one is nearly full between 10:00 and 13:00, and
// asleep later. Nodes that are asleep have capacity.
func TestShortages(t *testing.T) {
	midnight := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	profile := &energy.Profile{Idle: 50, Max: 150, Sleep: 5}
	nodes := func(large int64) []sched.Node {
		return []sched.Node{
			{
				Name: "small", Labels: map[string]string{"disk": "ssd"}, Capacity: sched.Resources{MilliCPU: 4 * cores},
				Free: sched.Resources{MilliCPU: 2 * cores}, Jobs: 1,
			},
			{
				Name: "large", Capacity: sched.Resources{MilliCPU: 16 * cores}, Jobs: int(16 - large), Profile: profile,
				Free: sched.Resources{MilliCPU: large * cores},
			},
		}
	}
	jobs := []sched.Job{
		{ID: "two cores", Request: sched.Resources{MilliCPU: 2 * cores}},
		{ID: "eight cores", Request: sched.Resources{MilliCPU: 8 * cores}},
		{ID: "sixteen cores", Request: sched.Resources{MilliCPU: 16 * cores}},
		{
			ID: "three cores on ssd", Request: sched.Resources{MilliCPU: 3 * cores},
			Selector: map[string]string{"disk": "ssd"},
		},
		{ID: "never fits", Request: sched.Resources{MilliCPU: 100 * cores}, Selector: map[string]string{"disk": "ssd"}},
	}
	for i := range jobs {
		jobs[i].AllowedDelay = 8 * time.Hour
	}
	var s sched.Shortages
	check := func(at time.Duration, want ...time.Duration) {
		t.Helper()
		s.Set(midnight.Add(at), jobs)
		for i, j := range jobs {
			if j.Shortage.Round(time.Second) != want[i] {
				t.Errorf("after %v: the shortage for %s is %v, want %v", at, j.ID, j.Shortage, want[i])
			}
		}
	}
	const unknown, h, day = 2 * time.Hour, time.Hour, 24 * time.Hour
	check(0, unknown, unknown, unknown, unknown, unknown)
	for _, look := range []struct {
		at    time.Duration
		large int64
	}{{0, 16}, {10 * h, 4}, {12 * h, 4}, {13 * h, 12}, {14 * h, 16}} {
		s.Look(midnight.Add(look.at), nodes(look.large))
	}
	check(14*h, 50*time.Minute, 3*h, 4*h, 14*h, 14*h) // the last one as for smaller jobs
	asleep := nodes(16)
	asleep[1].Free = sched.Resources{}
	s.Look(midnight.Add(15*h), asleep)
	s.Look(midnight.Add(2*day), asleep)
	check(2*day, 0, 3*h, 4*h, 2*day, 2*day)

	jobs[0].Request.MilliCPU = 10 * cores // a new kind
	check(2*day, 3*h, 3*h, 4*h, 2*day, 2*day)
	jobs[1].Request.MilliCPU = 1
	check(2*day, 3*h, unknown, 4*h, 2*day, 2*day)
	jobs[1].AllowedDelay = time.Hour
	check(2*day, 3*h, h/2, 4*h, 2*day, 2*day)
	jobs[1].Request.MilliCPU = 8 * cores
	later := 14*h + 3*day + time.Second
	s.Look(midnight.Add(later), asleep)
	check(later, 0, 0, 0, later, later)
}
