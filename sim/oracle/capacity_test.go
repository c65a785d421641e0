package oracle_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
	"github.com/kubenergy/kubenergy/sim/oracle"
)

func capacity(t *rapid.T, c *grid.Series, cores float64, jobs []sched.Job) *oracle.Capacity {
	p, err := oracle.NewCapacity(c, cores, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// drawCores draws so few cores that jobs are in each other's way, but enough for each of them alone.
func drawCores(t *rapid.T, jobs []sched.Job) int64 {
	var widest, all int64
	for i := range jobs {
		widest = max(widest, jobs[i].Request.MilliCPU)
		all += jobs[i].Request.MilliCPU
	}
	return rapid.Int64Range((widest+999)/1000, (max(widest, all/2)+999)/1000).Draw(t, "cores")
}

// bracket returns what bounds the optimum from below and from above; ok is false where the jobs find no room.
func bracket(t *rapid.T, p *oracle.Capacity) (fluid, lower float64, upper *oracle.Schedule, ok bool) {
	flow, err := p.Fluid()
	if errors.Is(err, oracle.ErrOverfull) {
		return 0, 0, nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	upper, err = p.Schedule(flow.Prices, 5, 1)
	if err != nil && !errors.Is(err, oracle.ErrOverfull) {
		t.Fatal(err)
	}
	known := 0.0
	if upper != nil {
		known = upper.Cost
	}
	lower, prices, err := p.Bound(flow, known, 20)
	if err != nil {
		t.Fatal(err)
	}
	for k, price := range prices {
		if price < 0 {
			t.Fatalf("step %d has the price %v", k, price)
		}
	}
	return flow.Cost, lower, upper, upper != nil
}

// checkSchedule makes sure that a schedule is in time, has room at every moment, and costs what it says.
func checkSchedule(t *rapid.T, c *grid.Series, cores float64, jobs []sched.Job, s *oracle.Schedule) {
	cost := 0.0
	for i := range jobs {
		j := &jobs[i]
		if s.Starts[i].Before(j.Submitted) || s.Starts[i].After(j.LatestStart()) {
			t.Fatalf("job %d starts at %v: want %v to %v", i, s.Starts[i], j.Submitted, j.LatestStart())
		}
		cost += float64(j.Request.MilliCPU) / 1000 * c.Integral(s.Starts[i], s.Starts[i].Add(j.Duration))
		used := int64(0) // as job i starts: use can only rise at a start
		for k := range jobs {
			if !s.Starts[k].After(s.Starts[i]) && s.Starts[k].Add(jobs[k].Duration).After(s.Starts[i]) {
				used += jobs[k].Request.MilliCPU
			}
		}
		if float64(used) > cores*1000 {
			t.Fatalf("as job %d starts, %d millicores are in use of %v cores", i, used, cores)
		}
	}
	if !near(cost, s.Cost) {
		t.Fatalf("the schedule says it costs %v, but it costs %v", s.Cost, cost)
	}
}

func TestBoundsAreInOrder(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		c, jobs := s.Sites[0].Carbon.Series, s.Jobs
		cores := float64(drawCores(t, jobs))
		fluid, lower, upper, ok := bracket(t, capacity(t, c, cores, jobs))
		if !ok {
			return
		}
		compared++
		checkSchedule(t, c, cores, jobs, upper)
		free := 0.0
		for i := range jobs {
			free += float64(jobs[i].Request.MilliCPU) / 1000 * oracle.Interruptible(c, &jobs[i])
		}
		for _, pair := range [][2]float64{{free, fluid}, {fluid, lower}, {lower, upper.Cost}} {
			if pair[0] > pair[1] && !near(pair[0], pair[1]) {
				t.Fatalf("uncapacitated %v, fluid %v, Lagrangian %v, schedule %v: want them in this order", free, fluid,
					lower, upper.Cost)
			}
		}
	})
	if compared < 20 {
		t.Errorf("only %d draws had a schedule", compared)
	}
}

// With room for all, the bounds are what jobs cost alone.
func TestBoundsWithRoomForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		c, jobs := s.Sites[0].Carbon.Series, s.Jobs
		fluid, lower, upper, ok := bracket(t, capacity(t, c, 1000, jobs))
		if !ok {
			t.Fatal("jobs find no room on 1000 cores")
		}
		suspended, once := 0.0, 0.0
		for i := range jobs {
			cores := float64(jobs[i].Request.MilliCPU) / 1000
			suspended += cores * oracle.Interruptible(c, &jobs[i])
			_, cost := oracle.NonPreemptive(c, &jobs[i])
			once += cores * cost
		}
		if !near(fluid, suspended) || !near(lower, once) || !near(upper.Cost, once) {
			t.Fatalf("fluid %v, Lagrangian %v, schedule %v: want %v and twice %v", fluid, lower, upper.Cost, suspended,
				once)
		}
	})
}

// Small instances whose times are all whole hours have an optimum at whole hours: all starts are tried.
func TestBoundsAgainstAllSchedules(t *testing.T) {
	costs, optima := 0.0, 0.0
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, time.Hour, 10)
		jobs := make([]sched.Job, rapid.IntRange(1, 4).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = drawJob(t, time.Hour, 3)
			jobs[i].Duration, jobs[i].AllowedDelay = min(jobs[i].Duration, 3*time.Hour),
				min(jobs[i].AllowedDelay, 5*time.Hour)
			jobs[i].Request.MilliCPU = 1000 * rapid.Int64Range(1, 3).Draw(t, "cores")
		}
		fluid, lower, upper, ok := bracket(t, capacity(t, c, 3, jobs))
		least := cheapestTogether(c, 3, jobs)
		if math.IsInf(least, 1) {
			if ok {
				t.Fatalf("there is no schedule, but %v costs %v", upper.Starts, upper.Cost)
			}
			return
		}
		if !ok {
			return // the heuristic found none
		}
		costs, optima = costs+upper.Cost, optima+least
		if fluid > least && !near(fluid, least) || lower > least && !near(lower, least) ||
			upper.Cost < least && !near(upper.Cost, least) {
			t.Fatalf("fluid %v, Lagrangian %v, optimum %v, schedule %v: want them in this order", fluid, lower, least,
				upper.Cost)
		}
	})
	if costs > 1.05*optima {
		t.Errorf("schedules of small instances cost %.2f %% more than their optima, all together", 100*(costs/optima-1))
	}
}

// cheapestTogether tries all starts at whole hours.
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

// Whatever a policy does on a machine of few cores, the flow is never above it. Where it let a job end too late, for
// want of room, the flow may do so as well.
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
			p := capacity(t, c, float64(cores), asLateAs(s, r))
			flow, err := p.Fluid()
			if err != nil {
				t.Fatalf("%s has a schedule, but the flow none: %v", when, err)
			}
			least := flow.Cost * s.Sites[0].PUE / energy.JoulesPerKWh
			if got := float64(r.Carbon); got < least && !near(got, least) {
				t.Fatalf("%s emits %v g, less than the flow, %v g", when, got, least)
			}
		}
	})
}

// longer repeats a series, for queues that take long.
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

// asLateAs returns the jobs of a scenario, each with the delay that it had where that is longer than allowed.
func asLateAs(s *sim.Scenario, r *sim.Result) []sched.Job {
	jobs := slices.Clone(s.Jobs)
	for i := range jobs {
		j := &jobs[i]
		j.AllowedDelay = max(j.AllowedDelay, r.Outcomes[i].Finish.Sub(j.Submitted)-j.Duration)
	}
	return jobs
}

// Cores that are no whole number are those that they are, to a thousandth.
func TestScheduleUsesAllCores(t *testing.T) {
	c, err := grid.Constant(start, 6*time.Hour, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		cores    float64
		requests []int64 // of jobs of an hour that may not wait
		fit      bool
	}{
		{1.001, []int64{1001}, true}, // times 1000 it is a little less than 1001 in binary
		{1.001, []int64{1000, 1}, true},
		{1.001, []int64{1001, 1}, false},
		{1.0018, []int64{1001, 1}, false}, // there are no fractions of a millicore
	} {
		var jobs []sched.Job
		for i, m := range k.requests {
			jobs = append(jobs, sched.Job{
				ID: string('a' + rune(i)), Submitted: start, Duration: time.Hour, Request: sched.Resources{MilliCPU: m},
			})
		}
		p, err := oracle.NewCapacity(c, k.cores, jobs)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Schedule(nil, 1, 1); (err == nil) != k.fit || err != nil && !errors.Is(err, oracle.ErrOverfull) {
			t.Errorf("jobs of %d millicores on %v cores: error %v, want a schedule: %v", k.requests, k.cores, err,
				k.fit)
		}
	}
}
