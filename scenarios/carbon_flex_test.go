package scenarios_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// TestCarbonFlex reproduces the setting of CarbonFlex (Hanafy et al., arXiv 2505.18357): South Australia in 2022,
// three queues with a maximum delay of 6, 24 and 48 hours, and twice as many cores as the jobs of a week use on
// average. The job lengths of the queues are not published. This test uses up to 2 hours, up to 12 hours, and
// longer jobs. The scaling curves are only published as figures. This test scales jobs linearly by a factor of up
// to four. Savings are compared with the fluid bound.
func TestCarbonFlex(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("takes five minutes: set KUBENERGY_LONG=1")
	}
	carbon, _, err := grid.ReadFiles(grid.CSVOptions{Column: "AU-SA"}, shared(t, "carbon/em_2022_wide_79zones.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	year := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	type sum struct{ saved, bound float64 }
	sums := map[string]*sum{}
	for _, name := range []string{"azure-100k", "pai-100k"} {
		trace, err := workload.Load(shared(t, "workload/gaia/"+name+".csv.gz"), "gaia", year)
		if err != nil {
			t.Fatal(err)
		}
		for _, hour := range []int{1008, 4032, 6720} {
			s := carbonFlex(carbon, trace.Jobs, year.Add(time.Duration(hour)*time.Hour))
			none := runNamed(t, s, "fcfs+now")
			for _, c := range []struct {
				label, strategy string
				most            int // maximum number of replicas
				model           string
			}{
				{"alone", "fcfs+wait-awhile", 1, ""},
				{"rigid", "fcfs+plan", 1, ""},
				{"rigid, forecast", "fcfs+plan", 1, forecast.History},
				{"linear", "fcfs+plan", 4, ""},
			} {
				family := oracle.FamilyInterruptible
				scaled := *s
				if c.most > 1 {
					family = oracle.FamilyElastic
					scaled.Jobs = linear(s, c.most)
				}
				if c.model != "" {
					foresight, err := forecast.Issue(t.Context(), forecast.Issuance{
						History: carbon.Series, Model: c.model, From: s.Start, Until: s.Start.AddDate(0, 0, 14),
					})
					if err != nil {
						t.Fatal(err)
					}
					scaled.Foresight = []sim.Foresight{foresight}
				}
				least, err := oracle.Least(&scaled, family)
				if err != nil {
					t.Fatal(err)
				}
				r := runNamed(t, &scaled, c.strategy)
				one := sum{1 - float64(r.Carbon)/float64(none.Carbon), 1 - float64(least)/float64(none.Carbon)}
				if sums[c.label] == nil {
					sums[c.label] = &sum{}
				}
				sums[c.label].saved += one.saved
				sums[c.label].bound += one.bound
				late, before := overruns(r), overruns(none)
				t.Logf("%-10s hour %d, %d jobs on %3.0f cores: %-16s saves %.3f of %.3f (%.3f); late %d (now %d); %v",
					name, hour, len(s.Jobs), float64(s.Nodes[0].Capacity.MilliCPU)/1000, c.label, one.saved, one.bound,
					one.saved/one.bound, late, before, r.Elapsed.Round(time.Second))
				if late > before {
					t.Errorf("%s: %d jobs are late, want at most %d as without delays", c.label, late, before)
				}
			}
		}
	}
	for label, least := range map[string]float64{"rigid": 0.78, "linear": 0.85, "alone": 0, "rigid, forecast": 0} {
		eta := sums[label].saved / sums[label].bound
		if t.Logf("%-16s achieves %.3f of the savings of the bound", label, eta); eta < least {
			t.Errorf("%s: the fraction is below %.2f", label, least)
		}
	}
}

// overruns returns the number of jobs that were delayed for longer than allowed.
func overruns(r *sim.Result) (late int) {
	for i := range r.Outcomes {
		if r.Outcomes[i].Overdue(&r.Scenario.Jobs[i]) > 0 {
			late++
		}
	}
	return late
}

// linear returns the jobs of a scenario with linear scaling up to the given number of replicas, limited by the
// capacity of the node.
func linear(s *sim.Scenario, most int) []sched.Job {
	jobs := slices.Clone(s.Jobs)
	for i := range jobs {
		j := &jobs[i]
		j.Scaling = &sched.Scaling{Least: 1}
		for n := 1; n <= most && int64(n)*j.Request.MilliCPU <= s.Nodes[0].Capacity.MilliCPU; n++ {
			j.Scaling.Throughput = append(j.Scaling.Throughput, float64(n))
		}
	}
	return jobs
}

func runNamed(t *testing.T, s *sim.Scenario, name string) *sim.Result {
	t.Helper()
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), s, name, strategy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// carbonFlex returns a scenario with the jobs of one week on a node with an average utilisation of 50 % and 1 W per
// core.
func carbonFlex(carbon grid.Signal, all []sched.Job, from time.Time) *sim.Scenario {
	var jobs []sched.Job
	work, widest := 0.0, int64(0)
	for _, j := range all {
		if j.Submitted.Before(from) || !j.Submitted.Before(from.AddDate(0, 0, 7)) {
			continue
		}
		for _, queue := range []struct{ upTo, delay time.Duration }{{2, 6}, {12, 24}, {1 << 16, 48}} {
			if j.Duration <= queue.upTo*time.Hour {
				j.AllowedDelay = queue.delay * time.Hour
				break
			}
		}
		j.Interruptible = true
		jobs = append(jobs, j)
		work += float64(j.Request.MilliCPU) * j.Duration.Hours()
		widest = max(widest, j.Request.MilliCPU)
	}
	has := sched.Resources{MilliCPU: max(widest, int64(work/168/0.5))}
	watts := energy.Watts(float64(has.MilliCPU) / 1000)
	site := &sched.Site{Name: "AU-SA", Zone: "AU-SA", Carbon: carbon}
	return &sim.Scenario{
		Name: "carbonflex", Start: from, Sites: []*sched.Site{site}, Jobs: slices.Clip(jobs),
		Nodes: []sched.Node{{
			Name: "cloud", Site: site, Capacity: has, Free: has, Profile: &energy.Profile{Name: "1 W a core", Max: watts},
		}},
	}
}
