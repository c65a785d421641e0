package oracle_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
)

// Choosing replicas is at least as good as suspending. With perfect knowledge, carbon-scaler is the optimum of
// elastic jobs, and with less knowledge it is not better.
func TestCarbonScalerAgainstItsOracle(t *testing.T) {
	strategy, err := strategy.New("energy+carbon-scaler")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		intensity, dearest := s.Sites[0].Carbon.Series, 0.0
		for i := range intensity.Len() {
			dearest = max(dearest, intensity.Value(i))
		}
		rounding := 1e-9 // grams of all jobs in the 2 ms by which a plan exceeds the required part of a slot
		for i := range s.Jobs {
			j := &s.Jobs[i]
			j.Interruptible, j.RestartCost = true, 0
			j.Scaling = sched.Amdahl(1, rapid.IntRange(1, 4).Draw(t, "most"),
				rapid.SampledFrom([]float64{1, 0.9, 0.5}).Draw(t, "parallel"))
			watts := energy.Watts(float64(j.Request.MilliCPU) / 1000 * float64(j.Scaling.Most()) * s.Sites[0].PUE)
			rounding += watts.For(2*time.Millisecond).KWh() * dearest
		}
		least, err := oracle.Least(s, oracle.FamilyElastic)
		if err != nil {
			t.Fatal(err)
		}
		suspending, err := oracle.Least(s, oracle.FamilyInterruptible)
		if err != nil {
			t.Fatal(err)
		}
		if least > suspending && !near(float64(least), float64(suspending)) {
			t.Fatalf("minimum emissions = %v with scaling, want at most %v as without", least, suspending)
		}
		r, err := sim.Run(context.Background(), s, "x", strategy)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := float64(r.Carbon), float64(least); got < want && !near(got, want) || got > want*(1+1e-4)+rounding {
			t.Fatalf("emissions of carbon-scaler = %v g, want the optimum of %v g", got, want)
		}
		drawIgnorance(t, s)
		if r, err = sim.Run(context.Background(), s, "x", strategy); err != nil {
			t.Fatal(err)
		}
		if got, want := float64(r.Carbon), float64(least); got < want && !near(got, want) {
			t.Fatalf("emissions with less knowledge = %v g, below the optimum of %v g", got, want)
		}
	})
}
