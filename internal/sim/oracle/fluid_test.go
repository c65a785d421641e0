package oracle_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
)

// drawCores returns a random number of cores that is sufficient for each job, but not for all of them.
func drawCores(t *rapid.T, jobs []sched.Job) int64 {
	var widest, all int64
	for i := range jobs {
		widest = max(widest, jobs[i].Request.MilliCPU)
		all += jobs[i].Request.MilliCPU
	}
	return rapid.Int64Range((widest+999)/1000, (max(widest, all/2)+999)/1000).Draw(t, "cores")
}

// If all times of a small instance are whole hours, there is an optimum without interruptions that starts at whole
// hours. All starts are evaluated.
func TestFluidAgainstAllSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, time.Hour, 10)
		jobs := make([]sched.Job, rapid.IntRange(1, 4).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = drawJob(t, time.Hour, 3)
			jobs[i].Duration, jobs[i].AllowedDelay = min(jobs[i].Duration, 3*time.Hour),
				min(jobs[i].AllowedDelay, 5*time.Hour)
			jobs[i].Request.MilliCPU = 1000 * rapid.Int64Range(1, 3).Draw(t, "cores")
		}
		least := cheapestTogether(c, 3, jobs)
		cost, err := oracle.Fluid(c, 3, jobs)
		switch {
		case errors.Is(err, oracle.ErrOverfull) && math.IsInf(least, 1):
		case err != nil:
			t.Fatalf("unexpected error although a schedule with cost %v exists: %v", least, err)
		case cost > least && !near(cost, least):
			t.Fatalf("Fluid() = %v, want at most the optimum %v", cost, least)
		}
	})
}

// With sufficient capacity for all jobs, the fluid cost is the sum of the costs of the individual jobs, including
// with more replicas.
func TestFluidWithRoomForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		c, jobs := s.Sites[0].Carbon.Series, s.Jobs
		alone := 0.0
		for i := range jobs {
			j := &jobs[i]
			cost := oracle.Interruptible(c, j)
			if rapid.Bool().Draw(t, "elastic") {
				j.Scaling = &sched.Scaling{Least: 1, Throughput: []float64{1, 2, 3}}
				var err error
				if cost, err = oracle.Elastic(c, j); err != nil {
					t.Fatal(err)
				}
			}
			alone += float64(j.Request.MilliCPU) / 1000 * cost
		}
		cost, err := oracle.Fluid(c, 1000, jobs)
		if err != nil {
			t.Fatal(err)
		}
		if !near(cost, alone) {
			t.Fatalf("Fluid() = %v, want %v", cost, alone)
		}
	})
}

// cheapestTogether evaluates all starts at whole hours.
func cheapestTogether(c *grid.Series, cores int64, jobs []sched.Job) float64 {
	var used [64]int64
	var place func(i int) float64
	place = func(i int) float64 {
		if i == len(jobs) {
			return 0
		}
		j := &jobs[i]
		least := math.Inf(1)
		for s := j.Submitted; !s.After(j.LatestStart()); s = s.Add(time.Hour) {
			from, hours, want := int(s.Sub(start)/time.Hour), int(j.Duration/time.Hour), j.Request.MilliCPU/1000
			slots := used[from : from+hours]
			if slices.Max(slots)+want > cores {
				continue
			}
			for k := range slots {
				slots[k] += want
			}
			least = min(least, float64(want)*c.Integral(s, s.Add(j.Duration))+place(i+1))
			for k := range slots {
				slots[k] -= want
			}
		}
		return least
	}
	return place(0)
}

// The fluid cost is never above the cost of any policy on a machine with few cores. If capacity delayed a job
// beyond its allowed delay, the fluid schedule may delay it as well.
func TestFluidIsBelowEveryRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		cores := drawCores(t, s.Jobs)
		room := sched.Resources{MilliCPU: 1000 * cores, Memory: 1 << 50}
		s.Nodes[0].Capacity, s.Nodes[0].Free, s.Nodes[0].Profile = room, room, &energy.Profile{Max: energy.Watts(cores)}
		c := longer(t, s.Sites[0].Carbon.Series)
		s.Sites[0].Carbon.Series = c
		for _, when := range drawWhens(t) {
			r := runPolicy(t, s, "carbon+"+when)
			cost, err := oracle.Fluid(c, float64(cores), asLateAs(s, r))
			if err != nil {
				t.Fatalf("%s: unexpected error of Fluid() although a schedule exists: %v", when, err)
			}
			least := cost * s.Sites[0].PUE / energy.JoulesPerKWh
			if got := float64(r.Carbon); got < least && !near(got, least) {
				t.Fatalf("%s: emissions = %v g, below the fluid bound of %v g", when, got, least)
			}
		}
	})
}

// longer repeats a series to cover long queues.
func longer(t *rapid.T, c *grid.Series) *grid.Series {
	values := make([]float64, 5*c.Len())
	for i := range values {
		values[i] = c.Value(i % c.Len())
	}
	series, err := grid.NewSeries(c.Start(), c.Step(), values)
	if err != nil {
		t.Fatal(err)
	}
	return series
}

// asLateAs returns the jobs of a scenario with the delays in the result if those exceed the allowed delays.
func asLateAs(s *sim.Scenario, r *sim.Result) []sched.Job {
	jobs := slices.Clone(s.Jobs)
	for i := range jobs {
		j := &jobs[i]
		j.AllowedDelay = max(j.AllowedDelay, r.Outcomes[i].Finish.Sub(j.Submitted)-j.Duration)
	}
	return jobs
}

// For interruptible jobs at 50 % utilisation, a plan without knowledge of future jobs achieves most of the possible
// savings, with the requested cores and with up to four times as many, and no job is late.
func TestPlanOnFewCores(t *testing.T) {
	begin := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	values := make([]float64, 8*24)
	for k := range values {
		values[k] = 300 + 200*math.Cos(float64(k)*math.Pi/12) + 20*float64(k%5)
	}
	carbon, err := grid.NewSeries(begin, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
	s := &sim.Scenario{Name: "few cores", Start: begin, Sites: []*sched.Site{site}}
	work := 0.0
	for i := range 300 {
		j := sched.Job{
			ID: strconv.Itoa(i), Submitted: begin.Add(time.Duration(r.IntN(5*24*60)) * time.Minute),
			Duration:     time.Duration(10+r.IntN(300)) * time.Minute,
			AllowedDelay: time.Duration(2+r.IntN(22)) * time.Hour, Interruptible: true,
			Request: sched.Resources{MilliCPU: 1000 * (1 + r.Int64N(2))},
		}
		work += j.Duration.Hours() * float64(j.Request.MilliCPU)
		s.Jobs = append(s.Jobs, j)
	}
	room := sched.Resources{MilliCPU: int64(work / (5 * 24) / 0.5)}
	s.Nodes = []sched.Node{{
		Name: "cloud", Site: site, Capacity: room, Free: room,
		Profile: &energy.Profile{Name: "1 W a core", Max: energy.Watts(float64(room.MilliCPU) / 1000)},
	}}
	none := runPolicy(t, s, "fcfs+now")
	for _, most := range []int{1, 4} {
		scaled, family := *s, oracle.FamilyInterruptible
		if most > 1 {
			family = oracle.FamilyElastic
			scaled.Jobs = slices.Clone(s.Jobs)
			for i := range scaled.Jobs {
				scaled.Jobs[i].Scaling = &sched.Scaling{Least: 1, Throughput: []float64{1, 2, 3, 4}}
			}
		}
		least, err := oracle.Least(&scaled, family)
		if err != nil {
			t.Fatal(err)
		}
		got := runPolicy(t, &scaled, "fcfs+plan")
		share := float64(none.Carbon-got.Carbon) / float64(none.Carbon-least)
		if t.Logf("up to %d times as many cores: saves %.3f of the maximum", most, share); share < 0.85 || share > 1 {
			t.Errorf("unexpected fraction of the possible savings, want 0.85 to 1")
		}
		for i := range got.Outcomes {
			if late := got.Outcomes[i].Overdue(&scaled.Jobs[i]); late > 0 {
				t.Errorf("job %d is overdue by %v", i, late)
			}
		}
	}
}

// Interruptible jobs are completed in time: elastic jobs only, next to jobs that cannot be suspended, and if memory
// is scarcer than cores.
func TestPlanKeepsDeadlines(t *testing.T) {
	begin := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	job := func(hours, delay time.Duration, cores, gib int64) sched.Job {
		return sched.Job{
			Submitted: begin, Duration: hours * time.Hour, AllowedDelay: delay * time.Hour, Interruptible: true,
			Request: sched.Resources{MilliCPU: 1000 * cores, Memory: gib << 30},
		}
	}
	wide, rigid := job(8, 2, 1, 1), job(2, 20, 1, 1)
	wide.Scaling, rigid.Interruptible = &sched.Scaling{Least: 1, Throughput: []float64{1, 2, 3, 4, 5, 6, 7, 8}}, false
	for name, c := range map[string]struct {
		cores, gib int64
		intensity  func(hour int) float64
		jobs       []sched.Job
	}{
		"elastic": {8, 64, func(hour int) float64 { return 500 - 5*float64(hour) }, []sched.Job{wide}},
		"beside": {
			1, 64, func(hour int) float64 { return 50 + 450*float64(min(hour, 1)) }, []sched.Job{rigid, job(1, 1, 1, 1)},
		},
		"memory": {
			64, 64, func(hour int) float64 { return 500 - 400*float64(hour/9%2) },
			slices.Repeat([]sched.Job{job(1, 9, 1, 32)}, 8),
		},
	} {
		values := make([]float64, 72)
		for hour := range values {
			values[hour] = c.intensity(hour)
		}
		carbon, err := grid.NewSeries(begin, time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
		room := sched.Resources{MilliCPU: 1000 * c.cores, Memory: c.gib << 30}
		s := &sim.Scenario{Name: name, Start: begin, Sites: []*sched.Site{site}, Jobs: slices.Clone(c.jobs), Nodes: []sched.Node{{
			Name: "n", Site: site, Capacity: room, Free: room, Profile: &energy.Profile{Name: "p", Max: 100},
		}}}
		for i := range s.Jobs {
			s.Jobs[i].ID = strconv.Itoa(i)
		}
		got := runPolicy(t, s, "fcfs+plan")
		for i := range s.Jobs {
			j := &s.Jobs[i]
			if late := got.Outcomes[i].Finish.Sub(j.LatestStart().Add(j.Duration)); late > 5*time.Minute { // one tick
				t.Errorf("%s: job %d finished %v after its deadline", name, i, late)
			}
		}
	}
}
