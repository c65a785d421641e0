package scenarios_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/internal/workload/workloadtest"
)

// generatedDay returns a variant of the demo with different jobs, node names and solar power.
func generatedDay(t *testing.T, demo *sim.Scenario, day int) *sim.Scenario {
	t.Helper()
	values := make([]float64, 0, 96)
	for hour := range cap(values) {
		values = append(values, intensityAt(float64(hour%24)+0.5, clouds[day%len(clouds)]))
	}
	series, err := grid.NewSeries(midnight, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	site := *demo.Sites[0]
	site.Carbon.Series = series
	s := *demo
	s.Start, s.Sites, s.Jobs = start, []*sched.Site{&site}, workloadtest.Demo(uint64(day+1), start)
	if s.Nodes, err = workload.Nodes("demo24", uint64(day), &site); err != nil {
		t.Fatal(err)
	}
	return &s
}

// TestPlanOnGeneratedDays checks that joint plans have lower mean emissions than energy on days that are similar to the
// demo, and only slightly higher emissions on the worst day. No job may be delayed for longer than allowed. It
// simulates five days, or a hundred with KUBENERGY_LONG=1.
func TestPlanOnGeneratedDays(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates several days")
	}
	days := 5
	if long {
		days = 100
	}
	file, err := sim.ReadFile("demo/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	demo, err := file.LoadContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"energy", "carbon+window", "carbon+plan", "carbon+guarded"}
	saved, ends, waits := map[string][]float64{}, map[string]time.Duration{}, map[string]time.Duration{}
	for day := range days {
		s := generatedDay(t, demo, day)
		var results []*sim.Result
		for _, name := range names {
			strategy, err := strategy.ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(t.Context(), s, name, strategy)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, r)
			ends[name] += r.End.Sub(s.Start) / time.Duration(days)
			var all []time.Duration
			for i := range r.Outcomes {
				o, j := &r.Outcomes[i], &s.Jobs[i]
				if o.Overdue(j) > 0 {
					t.Errorf("day %d, %s: %s is delayed by %v more than allowed", day, name, j.ID, o.Overdue(j))
				}
				all = append(all, o.Start.Sub(j.Submitted))
			}
			slices.Sort(all)
			waits[name] += all[len(all)*95/100] / time.Duration(days)
		}
		if _, err := sim.Align(results...); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			saved[name] = append(saved[name], 1-float64(results[i].Carbon/results[0].Carbon))
		}
	}
	for _, name := range names {
		of := report.MeanOf(saved[name], 0.05)
		mean, half := of.Value, *of.High-of.Value
		worst := slices.Min(saved[name])
		t.Logf("%-13s emits %.2f ± %.2f %% less than energy, %.2f %% on the worst day; makespan %v, p95 wait %v", name,
			100*mean, 100*half, 100*worst, ends[name].Round(time.Minute), waits[name].Round(time.Minute))
		if (name == "carbon+plan" || name == "carbon+guarded") && (mean-half <= 0 || worst < -0.01) {
			t.Errorf("%s does not save enough", name)
		}
	}
}
