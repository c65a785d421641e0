package strategy_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
)

func drawElastic(t *rapid.T) (*grid.Series, *sched.Elastic) {
	values := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 50), func(v int) float64 { return float64(10 * v) }), 1,
		4).Draw(t, "intensity")
	c, err := grid.NewSeries(schedtest.Day, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	e := &sched.Elastic{
		From: schedtest.Day, Until: schedtest.Day.Add(time.Duration(len(values)) * time.Hour),
		Scaling: sched.Scaling{Least: rapid.IntRange(1, 3).Draw(t, "least"), Throughput: []float64{1}},
	}
	gain := 1 / float64(e.Least)
	for range rapid.IntRange(0, 3).Draw(t, "replicas") {
		gain *= rapid.Float64Range(0, 1).Draw(t, "fall")
		e.Throughput = append(e.Throughput, e.Throughput[len(e.Throughput)-1]+gain)
	}
	most := e.Throughput[len(e.Throughput)-1] * float64(len(values))
	e.Work = max(1, time.Duration(rapid.Float64Range(0.01, 0.999).Draw(t, "share")*most*float64(time.Hour)))
	return c, e
}

// minCarbon evaluates every number of replicas in every hour, and a mixture of two numbers in one of the hours. The
// problem is a linear program with one constraint, so the optimum is among these combinations.
func minCarbon(c *grid.Series, e *sched.Elastic) float64 {
	levels := append([]float64{0}, e.Throughput...)
	replicas := func(level int) float64 {
		if level == 0 {
			return 0
		}
		return float64(e.Least + level - 1)
	}
	work, hours := e.Work.Hours(), c.Len()
	least := math.Inf(1)
	chosen := make([]int, hours)
	var choose func(k int, done, cost float64)
	choose = func(k int, done, cost float64) {
		if k < hours {
			for level := range levels {
				chosen[k] = level
				choose(k+1, done+levels[level], cost+replicas(level)*c.Value(k))
			}
			return
		}
		for mixed := range hours {
			low := chosen[mixed]
			for high := range levels {
				share := 0.0
				if levels[high] > levels[low] {
					share = (work - done) / (levels[high] - levels[low])
				}
				if share >= 0 && share <= 1 && done+share*(levels[high]-levels[low]) >= work-1e-9 {
					least = min(least, cost+share*(replicas(high)-replicas(low))*c.Value(mixed))
				}
			}
		}
	}
	choose(0, 0, 0)
	return 3600 * least
}

func TestScaleIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, e := drawElastic(t)
		plan, cost, err := sched.Scale(c, e)
		if err != nil {
			t.Fatal(err)
		}
		if want := minCarbon(c, e); math.Abs(cost-want) > 1e-6*max(1, want) {
			t.Fatalf("cost = %v, want the optimum %v", cost, want)
		}
		work, spent, at := 0.0, 0.0, e.From
		for _, s := range plan {
			if !s.Start.Equal(at) || s.End.Before(s.Start) {
				t.Fatalf("stretch from %v to %v follows %v", s.Start, s.End, at)
			}
			at = s.End
			if s.Replicas == 0 {
				continue
			}
			if s.Replicas < e.Least || s.Replicas >= e.Least+len(e.Throughput) {
				t.Fatalf("got %d replicas, want %d to %d", s.Replicas, e.Least, e.Least+len(e.Throughput)-1)
			}
			work += e.Throughput[s.Replicas-e.Least] * s.End.Sub(s.Start).Seconds()
			spent += float64(s.Replicas) * c.Integral(s.Start, s.End)
		}
		if !at.Equal(e.Until) {
			t.Fatalf("plan ends at %v, want %v", at, e.Until)
		}
		if math.Abs(work-e.Work.Seconds()) > 1e-6*max(1, e.Work.Seconds()) || math.Abs(spent-cost) > 1e-5*max(1, cost) {
			t.Fatalf("plan does %v s of work at a cost of %v, want %v s at %v", work, spent, e.Work.Seconds(), cost)
		}
	})
}

// TestScaleAgainstFewerReplicas checks that additional replicas never increase the cost, and that under a constant
// intensity the minimum number is optimal.
func TestScaleAgainstFewerReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, e := drawElastic(t)
		fixed := *e
		fixed.Throughput = e.Throughput[:1]
		_, without, err := sched.Scale(c, &fixed)
		if err != nil {
			return // more replicas are required to finish in time
		}
		_, with, err := sched.Scale(c, e)
		if err != nil {
			t.Fatal(err)
		}
		if with > without*(1+1e-9) {
			t.Fatalf("cost with more replicas = %v, without them %v", with, without)
		}
		constant, err := grid.Constant(schedtest.Day, 24*time.Hour, 100)
		if err != nil {
			t.Fatal(err)
		}
		_, same, err := sched.Scale(constant, e)
		if want := 100 * float64(e.Least) * e.Work.Seconds(); err != nil || math.Abs(same-want) > 1e-6*want {
			t.Fatalf("cost under a constant intensity = %v, %v, want %v", same, err, want)
		}
	})
}

func TestScaleRefuses(t *testing.T) {
	c, err := grid.Constant(schedtest.Day, 24*time.Hour, 100)
	if err != nil {
		t.Fatal(err)
	}
	good := sched.Elastic{
		From: schedtest.Day, Until: schedtest.Day.Add(4 * time.Hour), Work: 3 * time.Hour,
		Scaling: sched.Scaling{Least: 1, Throughput: []float64{1, 1.8}},
	}
	for name, change := range map[string]func(*sched.Elastic){
		"too much work": func(e *sched.Elastic) { e.Work = 8 * time.Hour },
		"gains rise":    func(e *sched.Elastic) { e.Throughput = []float64{1, 1.2, 1.9} },
		"gain of block": func(e *sched.Elastic) { e.Least = 2 },
		"no throughput": func(e *sched.Elastic) { e.Throughput = nil },
		"no time":       func(e *sched.Elastic) { e.Until = schedtest.Day },
	} {
		e := good
		change(&e)
		if plan, cost, err := sched.Scale(c, &e); err == nil {
			t.Errorf("%s: got %v at a cost of %v, want an error", name, plan, cost)
		}
	}
	if _, _, err := sched.Scale(c, &good); err != nil {
		t.Error(err)
	}
}

// TestScaleWantsAllOfTheIntensity checks that Scale returns an error if the intensity is not known for the whole
// interval.
func TestScaleWantsAllOfTheIntensity(t *testing.T) {
	series, err := grid.NewSeries(schedtest.Day, time.Hour, []float64{300, 200, 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, until time.Duration
		ok          bool
	}{
		{0, 3 * time.Hour, true},
		{0, 4 * time.Hour, false},
		{-time.Hour, 2 * time.Hour, false},
		{3 * time.Hour, 5 * time.Hour, false},
	} {
		e := &sched.Elastic{
			From: schedtest.Day.Add(c.from), Until: schedtest.Day.Add(c.until), Work: time.Hour,
			Scaling: sched.Scaling{Least: 1, Throughput: []float64{1}},
		}
		plan, _, err := sched.Scale(series, e)
		if (err == nil) != c.ok || !c.ok && !strings.Contains(err.Error(), "intensity is only known") {
			t.Errorf("from %v until %v: plan = %v, error = %v", c.from, c.until, plan, err)
		}
	}
}
