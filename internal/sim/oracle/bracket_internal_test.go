package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// tiny returns a scenario with a few jobs of whole hours on two different machines that sleep.
func tiny(t *testing.T, seed uint64) *sim.Scenario {
	t.Helper()
	r := rand.New(rand.NewPCG(25, seed))
	start := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	values := make([]float64, 12)
	for k := range values {
		values[k] = 50 + 500*r.Float64()
	}
	series, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Zone: "DE", PUE: 1.2, Carbon: grid.Signal{Series: series}}
	s := &sim.Scenario{Start: start, Sites: []*sched.Site{site}, Policy: sched.Policy{MaxDelay: 2 * time.Hour}}
	for k, p := range []*energy.Profile{
		{Name: "a", Idle: 50, Max: 150, Sleep: 5, WakeUp: 5000}, {Name: "b", Idle: 100, Max: 250, Sleep: 5, WakeUp: 5000},
	} {
		has := sched.Resources{MilliCPU: 4000}
		s.Nodes = append(s.Nodes, sched.Node{Name: fmt.Sprint("n", k), Site: site, Capacity: has, Free: has, Profile: p})
	}
	for k := range 5 {
		s.Jobs = append(s.Jobs, sched.Job{
			ID: fmt.Sprint("j", k), Submitted: start.Add(time.Duration(r.IntN(3)) * time.Hour),
			Duration: time.Duration(1+r.IntN(2)) * time.Hour, AllowedDelay: time.Duration(r.IntN(4)) * time.Hour,
			Request: sched.Resources{MilliCPU: 1000 * (1 + r.Int64N(3))},
		})
	}
	return s
}

// No schedule of whole hours emits less than the bound, and the median difference between the search and the best
// of all these schedules is at most two per cent over thirty scenarios.
func TestBracket(t *testing.T) {
	placing, err := strategy.New("energy")
	if err != nil {
		t.Fatal(err)
	}
	var gaps, plans []float64
	plan, err := strategy.New("carbon+plan")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(30) {
		whole := tiny(t, seed)
		s := withinPolicy(whole)
		end := s.Start
		for i := range s.Jobs {
			end = timeutil.Later(end, deadline(&s.Jobs[i]))
		}
		bound, asleep, err := Bound(whole, 300)
		if err != nil || asleep <= 0 || bound < asleep {
			t.Fatalf("unexpected result of Bound(): bound %v, asleep %v, error %v", bound, asleep, err)
		}
		least := energy.Grams(0)
		at := assigned{}
		var try func(i int)
		try = func(i int) {
			if i == len(s.Jobs) {
				r, err := sim.Run(t.Context(), s, "one of all", &script{placing, at})
				if err == nil {
					err = r.AccountUntil(end)
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.Carbon < bound*(1-1e-9) {
					t.Fatalf("scenario %d: emissions of a schedule = %v, below the bound %v", seed, r.Carbon, bound)
				}
				if least == 0 || r.Carbon < least {
					least = r.Carbon
				}
				return
			}
			j := &s.Jobs[i]
			for start := j.Submitted; !start.After(j.LatestStart()); start = start.Add(time.Hour) {
				at[j.ID] = sched.Place{Start: start}
				try(i + 1)
			}
		}
		try(0)
		now, err := sim.Run(t.Context(), s, "energy", placing)
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		best, _, err := Best(t.Context(), whole, []*sim.Result{now}, seed, func() float64 { steps++; return float64(steps) / 1500 })
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range best.Outcomes {
			if j := &s.Jobs[i]; o.Overdue(j) > 0 {
				t.Errorf("scenario %d: %s is overdue by %v", seed, j.ID, o.Overdue(j))
			}
		}
		gaps = append(gaps, float64(best.Carbon/least)-1)
		planned, err := sim.Run(t.Context(), whole, "plan", plan)
		if err == nil {
			err = planned.AccountUntil(end)
		}
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, float64(planned.Carbon/least)-1)
	}
	slices.Sort(gaps)
	slices.Sort(plans)
	t.Logf("online plan above the optimum: median %.4f, maximum %.4f", plans[len(plans)/2],
		plans[len(plans)-1])
	t.Logf("search above the best schedule of whole hours: median %.4f, maximum %.4f", gaps[len(gaps)/2], gaps[len(gaps)-1])
	if gaps[len(gaps)/2] > 0.02 {
		t.Error("the median difference between search and optimum exceeds 2 %")
	}
}
