package scenarios_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
	"github.com/kubenergy/kubenergy/sim/oracle"
	"github.com/kubenergy/kubenergy/workload"
)

// The setting of CarbonFlex (Hanafy et al., arXiv 2505.18357): South Australia in 2022, three queues whose jobs may wait
// for 6, 24 and 48 hours, and as many cores as a week's jobs use half of. Which lengths the queues are for is not
// published: here up to 2 and 12 hours, and more.
func TestCarbonFlex(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("takes minutes: set KUBENERGY_LONG=1")
	}
	carbon, _, err := grid.ReadFiles(grid.CSVOptions{Column: "AU-SA"}, shared(t, "carbon/em_2022_wide_79zones.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	year := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"azure-100k", "pai-100k"} {
		trace, err := workload.Load(shared(t, "workload/gaia/"+name+".csv.gz"), "gaia", year)
		if err != nil {
			t.Fatal(err)
		}
		for _, hour := range []int{1008, 4032, 6720} {
			s := carbonFlex(carbon, trace.Jobs, year.Add(time.Duration(hour)*time.Hour))
			cores := float64(s.Nodes[0].Capacity.MilliCPU) / 1000
			p, err := oracle.NewCapacity(carbon.Series, cores, s.Jobs)
			if err != nil {
				t.Fatal(err)
			}
			flow, err := p.Fluid()
			if err != nil {
				t.Logf("%s hour %d: %v", name, hour, err)
				continue
			}
			var none float64
			for _, strategy := range []string{"fcfs+now", "fcfs+wait-awhile", "fcfs+plan"} {
				r := runNamed(t, s, strategy)
				late := 0
				for i := range r.Outcomes {
					if r.Outcomes[i].Overdue(&s.Jobs[i]) > 0 {
						late++
					}
				}
				if strategy == "fcfs+now" {
					none = float64(r.Carbon)
				}
				least := flow.Cost / energy.JoulesPerKWh
				t.Logf("%s hour %d: %d jobs on %.0f cores: %-16s saves %.3f of at most %.3f: %.3f; %d late; %v",
					name, hour, len(s.Jobs), cores, strategy, 1-float64(r.Carbon)/none, 1-least/none,
					(none-float64(r.Carbon))/(none-least), late, r.Elapsed.Round(time.Millisecond))
			}
		}
	}
}

func runNamed(t *testing.T, s *sim.Scenario, name string) *sim.Result {
	t.Helper()
	strategy, err := sched.New(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), s, name, strategy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// carbonFlex returns a week's jobs of a trace on cores of which they use half, at a watt each.
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
