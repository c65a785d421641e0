package oracle_test

import (
	"math"
	"math/bits"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
)

var start = time.Date(2022, 3, 1, 0, 0, 0, 0, time.UTC)

// drawSeries returns a random intensity that starts before the first job and ends after the last.
func drawSeries(t *rapid.T, step time.Duration, most int) *grid.Series {
	values := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 60), func(v int) float64 { return float64(v * 10) }), 2,
		most).Draw(t, "intensity")
	series, err := grid.NewSeries(start, step, values)
	if err != nil {
		t.Fatal(err)
	}
	return series
}

// drawJob returns a random job with times that are multiples of unit, submitted within the given number of units.
func drawJob(t *rapid.T, unit time.Duration, within int) sched.Job {
	j := sched.Job{
		ID: "job", Submitted: start.Add(time.Duration(rapid.IntRange(0, within).Draw(t, "submitted")) * unit),
		Duration:      time.Duration(rapid.IntRange(1, 8).Draw(t, "duration")) * unit,
		AllowedDelay:  time.Duration(rapid.IntRange(0, 10).Draw(t, "delay")) * unit,
		Request:       sched.Resources{MilliCPU: 1000},
		Interruptible: true,
	}
	if rapid.Bool().Draw(t, "hasFinishBy") {
		j.FinishBy = j.Submitted.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "finishBy")) * unit)
	}
	return j
}

const minute = time.Minute

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// If all times are multiples of a minute, the optimal starts without interruptions are as well, so evaluating all
// of them is exact.
func TestNonPreemptiveAgainstAllStarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, 5*minute, 8)
		j := drawJob(t, minute, 20)
		least, at := math.Inf(1), time.Time{}
		for s := j.Submitted; !s.After(j.LatestStart()); s = s.Add(minute) {
			if cost := c.Integral(s, s.Add(j.Duration)); cost < least {
				least, at = cost, s
			}
		}
		got, cost := oracle.NonPreemptive(c, &j)
		if !near(cost, least) {
			t.Fatalf("NonPreemptive() = %v at %v, but the best start costs %v at %v", cost, got, least, at)
		}
		if got.Before(j.Submitted) || got.After(j.LatestStart()) || !near(c.Integral(got, got.Add(j.Duration)), cost) {
			t.Fatalf("start %v is not allowed or does not cost %v", got, cost)
		}
	})
}

// No start in between is better, verified with 40 random starts.
func TestNoStartIsBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, time.Duration(rapid.IntRange(1, 3600).Draw(t, "step"))*time.Second, 40)
		j := drawJob(t, 101*time.Second, 100)
		_, cost := oracle.NonPreemptive(c, &j)
		span := int64(j.LatestStart().Sub(j.Submitted))
		for range 40 {
			s := j.Submitted.Add(time.Duration(rapid.Int64Range(0, span).Draw(t, "start")))
			if here := c.Integral(s, s.Add(j.Duration)); here < cost && !near(here, cost) {
				t.Fatalf("cost of a start at %v = %v, below the optimum %v", s, here, cost)
			}
		}
	})
}

// cheapestSubset evaluates all subsets of units between the submission and the latest completion with the length of
// the job.
func cheapestSubset(c *grid.Series, j *sched.Job, unit time.Duration) float64 {
	slots, need := int((j.LatestStart().Sub(j.Submitted)+j.Duration)/unit), int(j.Duration/unit)
	least := math.Inf(1)
	for set := range uint(1) << slots {
		if bits.OnesCount(set) != need {
			continue
		}
		cost := 0.0
		for k := range slots {
			if from := j.Submitted.Add(time.Duration(k) * unit); set&(1<<k) != 0 {
				cost += c.Integral(from, from.Add(unit))
			}
		}
		least = min(least, cost)
	}
	return least
}

func TestInterruptibleAgainstAllSubsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, minute, 14)
		j := drawJob(t, minute, 4)
		j.Duration, j.AllowedDelay = min(j.Duration, 5*minute), min(j.AllowedDelay, 7*minute)
		if got, want := oracle.Interruptible(c, &j), cheapestSubset(c, &j, minute); !near(got, want) {
			t.Fatalf("Interruptible() = %v, but the best subset costs %v", got, want)
		}
	})
}

// With a grid of decisions that does not divide the length of the job or the cost of a resume.
func TestWithRestartsAgainstAllSchedules(t *testing.T) {
	const step = 4 * minute
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, time.Duration(rapid.IntRange(1, 9).Draw(t, "step"))*minute, 14)
		j := drawJob(t, 3*minute, 4)
		j.Duration = min(j.Duration, 18*minute)
		j.RestartCost = time.Duration(rapid.IntRange(0, 7).Draw(t, "restart")) * minute
		got := withRestarts(c, &j, step)
		_, once := oracle.NonPreemptive(c, &j)
		want := min(once, cheapestOnGrid(c, &j, step))
		if !near(got, want) {
			t.Fatalf("withRestarts() = %v, but the best schedule costs %v", got, want)
		}
	})
}

// cheapestOnGrid evaluates all schedules recursively: in every step the job runs or pauses.
func cheapestOnGrid(c *grid.Series, j *sched.Job, step time.Duration) float64 {
	end := j.LatestStart().Add(j.Duration)
	var try func(now time.Time, left time.Duration, running, begun bool) float64
	try = func(now time.Time, left time.Duration, running, begun bool) float64 {
		if left <= 0 {
			return 0
		}
		if now.Add(left).After(end) {
			return math.Inf(1)
		}
		best := try(now.Add(step), left, false, begun) // pause
		need := left
		if begun && !running {
			need += j.RestartCost
		}
		if !now.Add(need).After(end) {
			best = min(best, c.Integral(now, now.Add(min(step, need)))+try(now.Add(step), need-step, true, true))
		}
		return best
	}
	return try(j.Submitted, j.Duration, false, false)
}

// Additional freedom never increases the cost, and a higher cost of resuming never decreases it.
func TestTheOraclesAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, 7*minute, 40)
		j := drawJob(t, 5*minute, 20)
		step := time.Duration(rapid.IntRange(3, 20).Draw(t, "step")) * minute
		_, once := oracle.NonPreemptive(c, &j)
		last := oracle.Interruptible(c, &j)
		for _, restart := range []time.Duration{0, minute, 4 * minute, 30 * minute, 1000 * time.Hour} {
			j.RestartCost = restart
			cost := withRestarts(c, &j, step)
			if cost < last && !near(cost, last) {
				t.Fatalf("cost with a restart cost of %v = %v, below %v without", restart, cost, last)
			}
			last = cost
		}
		if !near(last, once) {
			t.Fatalf("cost with expensive resumes = %v, want %v as without interruptions", last, once)
		}
		now := c.Integral(j.Submitted, j.Submitted.Add(j.Duration))
		if once > now && !near(once, now) {
			t.Fatalf("cost of the best start = %v, above %v of an immediate start", once, now)
		}
	})
}

// If all times are multiples of the grid, free resumes make the program equal to the oracle for interruptible jobs.
func TestWithRestartsOnItsOwnGridIsInterruptible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, 10*minute, 30)
		j := drawJob(t, 10*minute, 10)
		if got, want := withRestarts(c, &j, 10*minute), oracle.Interruptible(c, &j); !near(got, want) {
			t.Fatalf("withRestarts() = %v, want %v", got, want)
		}
	})
}

func TestConstantIntensityAndZeroDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSeries(t, 7*minute, 40)
		j := drawJob(t, 5*minute, 20)
		if rapid.Bool().Draw(t, "constant") {
			var err error
			if c, err = grid.Constant(start, 1000*time.Hour, c.Value(0)); err != nil {
				t.Fatal(err)
			}
		} else {
			j.AllowedDelay = 0
		}
		now := c.Integral(j.Submitted, j.Submitted.Add(j.Duration))
		_, once := oracle.NonPreemptive(c, &j)
		for name, cost := range map[string]float64{
			"non-preemptive": once, "interruptible": oracle.Interruptible(c, &j),
			"with restarts": withRestarts(c, &j, 3*minute),
		} {
			if !near(cost, now) {
				t.Errorf("%s: cost = %v, want %v of an immediate start", name, cost, now)
			}
		}
	})
}
