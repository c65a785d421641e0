package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// firstFit plans a whole queue and places every job on the first node with sufficient capacity. It records the time
// and the number of jobs of each plan.
type firstFit struct {
	batches bool
	asked   []string
	hold    func(now time.Time, j *sched.Job) (until, again time.Time)
}

func (f *firstFit) Batches() bool { return f.batches }

func (f *firstFit) Plan(s *sched.Snapshot) sched.Plan {
	f.asked = append(f.asked, fmt.Sprint(s.Now.Sub(start), " ", len(s.Queue)))
	free := map[string]sched.Resources{}
	plan := make(sched.Plan, len(s.Queue))
	for i := range s.Queue {
		j := &s.Queue[i]
		plan[i] = sched.Decision{Job: j.ID, Window: sched.Window{Start: s.Now}}
		if f.hold != nil && !j.Released {
			if until, again := f.hold(s.Now, j); !until.IsZero() {
				plan[i].Window.Start, plan[i].Again = until, again
				continue
			}
		}
		for _, n := range s.Nodes {
			if _, ok := free[n.Name]; !ok {
				free[n.Name] = n.Free
			}
			if j.Request.Within(free[n.Name]) {
				free[n.Name] = free[n.Name].Sub(j.Request)
				plan[i].Node = n.Name
				break
			}
		}
	}
	return plan
}

func starts(r *sim.Result) (all []string) {
	for i, o := range r.Outcomes {
		if o.Placed.Node != "" {
			all = append(all, fmt.Sprint(r.Scenario.Jobs[i].ID, " ", o.Start.Sub(start)))
		}
	}
	return all
}

func crowd(t testing.TB, cores ...int64) *sim.Scenario {
	t.Helper()
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400, 300)
	s := &sim.Scenario{Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 4, p)}}
	for i, c := range cores {
		s.Jobs = append(s.Jobs, job(fmt.Sprint("j", i), 500*time.Millisecond, time.Minute, c, 0))
	}
	return s
}

// Expected results of each queue rule, computed by hand. All jobs are submitted half a second after the start and
// run for a minute.
func TestQueueRules(t *testing.T) {
	for name, c := range map[string]struct {
		rules         sim.QueueRules
		cores         []int64
		starts, asked []string
	}{
		"at events, the whole queue": {
			cores:  []int64{2, 3, 1, 1},
			starts: []string{"j0 500ms", "j1 1m0.5s", "j2 500ms", "j3 500ms"},
			asked:  []string{"500ms 4", "1m0.5s 1"},
		},
		"no job behind a window of two is considered": {
			rules: sim.QueueRules{Window: 2}, cores: []int64{3, 3, 1, 1},
			starts: []string{"j0 500ms", "j1 1m0.5s", "j2 1m0.5s", "j3 2m0.5s"},
			asked:  []string{"500ms 2", "1m0.5s 2", "2m0.5s 1"},
		},
		"a job that fits on no node is not in the window": {
			rules: sim.QueueRules{Window: 2}, cores: []int64{5, 5, 4, 1},
			starts: []string{"j2 500ms", "j3 1m0.5s"},
			asked:  []string{"500ms 2", "1m0.5s 1"},
		},
		"in steps, remaining jobs are planned again after a step": {
			rules: sim.QueueRules{Window: 2, Step: time.Second}, cores: []int64{3, 3, 1, 1},
			starts: []string{"j0 1s", "j1 1m1s", "j2 2s", "j3 1m2s"},
			asked:  []string{"1s 2", "2s 2", "3s 2", "1m1s 2", "1m2s 1"},
		},
		"one a second": {
			rules: sim.QueueRules{PerStep: 1, Step: time.Second}, cores: []int64{2, 4, 1, 1},
			starts: []string{"j0 1s", "j1 1m3s", "j2 2s", "j3 3s"},
			asked:  []string{"1s 4", "2s 3", "3s 2", "4s 1", "1m1s 1", "1m2s 1", "1m3s 1"},
		},
	} {
		s := crowd(t, c.cores...)
		s.Queue = c.rules
		f := &firstFit{batches: true}
		r := play(t, s, f)
		if diff := cmp.Diff(c.starts, starts(r)); diff != "" {
			t.Errorf("%s: unexpected starts (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.asked, f.asked); diff != "" {
			t.Errorf("%s: unexpected plans (-want +got):\n%s", name, diff)
		}
	}
}

// If the scenario has queue rules, every strategy plans the queue as a whole. Here the stock scheduler makes one
// placement per second.
func TestRulesHoldForEveryStrategy(t *testing.T) {
	s := crowd(t, 1, 1, 1, 1)
	s.Queue = sim.QueueRules{PerStep: 1, Step: time.Second}
	if diff := cmp.Diff([]string{"j0 1s", "j1 2s", "j2 3s", "j3 4s"},
		starts(run(t, s, "least-allocated"))); diff != "" {
		t.Errorf("unexpected starts (-want +got):\n%s", diff)
	}
}

// A plan may hold jobs, either finally or until the next decision. They return to the end of the queue.
func TestBatchesHold(t *testing.T) {
	s := crowd(t, 1, 1, 1)
	for i := range s.Jobs {
		s.Jobs[i].AllowedDelay = time.Hour
	}
	f := &firstFit{batches: true, hold: func(now time.Time, j *sched.Job) (until, again time.Time) {
		switch {
		case j.ID == "j0" && now.Sub(start) < time.Minute:
			return start.Add(10 * time.Minute), time.Time{}
		case j.ID == "j1" && now.Sub(start) < 20*time.Minute:
			return start.Add(40 * time.Minute), now.Add(10 * time.Minute)
		}
		return time.Time{}, time.Time{}
	}}
	r := play(t, s, f)
	if diff := cmp.Diff([]string{"j0 10m0s", "j1 20m0.5s", "j2 500ms"}, starts(r)); diff != "" {
		t.Errorf("unexpected starts (-want +got):\n%s", diff)
	}
	if o := r.Outcomes[0]; !o.Held() || o.Delayed != 10*time.Minute-500*time.Millisecond || !o.Released.Equal(o.Start) {
		t.Errorf("j0: %+v", o)
	}
}

// On a busy cluster with queue rules, every job runs once and within the capacity.
func TestBatchesOfEveryStrategy(t *testing.T) {
	wheres, _ := strategy.Names()
	for k, rules := range []sim.QueueRules{{Window: 5}, {Window: 7, PerStep: 2, Step: time.Minute}, {Step: time.Hour}} {
		s := bench(t, 4, 60)
		s.Queue = rules
		for i := range s.Nodes {
			s.Nodes[i].Benchmarks = map[string]energy.Benchmark{"training": {
				Rate: float64(1 + i), Power: 300,
				Idle: 80,
			}}
		}
		for i := range s.Jobs {
			s.Jobs[i].Class = "training"
		}
		for _, name := range wheres {
			r := run(t, s, name)
			for i, o := range r.Outcomes {
				if o.Placed.Node == "" || o.Finish.Sub(o.Start) != s.Jobs[i].Duration ||
					o.Start.Before(s.Jobs[i].Submitted) {
					t.Errorf("rules %d: %s: unexpected outcome %+v", k, name, o)
				}
				if rules.Step > 0 && o.Start.Sub(start)%rules.Step != 0 {
					t.Errorf("rules %d: %s: job %d starts between two steps at %v", k, name, i, o.Start)
				}
			}
			perStep := map[time.Time]int{}
			for _, o := range r.Outcomes {
				perStep[o.Start]++
			}
			for at, n := range perStep {
				if rules.PerStep > 0 && n > rules.PerStep {
					t.Errorf("rules %d: %s: %d jobs start in the step at %v", k, name, n, at)
				}
			}
		}
	}
	if !slices.Contains(wheres, "energy") {
		t.Error("no strategy was tried")
	}
}

// A quota of two cores is used by two jobs when two more arrive: the first with a short allowed delay, and the
// second with a day. Cores that become free before the intensity changes go to the first in line, and no job waits
// longer than allowed.
func TestThrottledJobsStayInLine(t *testing.T) {
	hours := append([]float64{500, 500, 500, 100}, slices.Repeat([]float64{500}, 60)...)
	for name, c := range map[string]struct {
		rules sim.QueueRules
		brief time.Duration // run time of the first job
		want  []string
	}{
		"a core becomes free": {
			sim.QueueRules{},
			10 * time.Minute,
			[]string{"r0 0s", "r1 0s", "a 10m0s", "b 2h10m0s"},
		},
		"in steps": {
			sim.QueueRules{Step: 4 * time.Minute},
			10 * time.Minute,
			[]string{"r0 0s", "r1 0s", "a 12m0s", "b 2h12m0s"},
		},
		"none becomes free in time": {
			sim.QueueRules{},
			20 * time.Hour,
			[]string{"r0 0s", "r1 0s", "a 1h31m0s", "b 3h0m0s"},
		},
		"the delay ends at no event": {
			sim.QueueRules{Step: 40 * time.Minute},
			20 * time.Hour,
			[]string{"r0 0s", "r1 0s", "a 2h0m0s", "b 3h20m0s"},
		},
	} {
		p := &energy.Profile{Idle: 100, Max: 300}
		home := site(t, "home", 1, hours...)
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 8, p)}, Queue: c.rules,
		}
		s.Jobs = append(s.Jobs, job("r0", 0, c.brief, 1, 0), job("r1", 0, 20*time.Hour, 1, 0),
			job("a", time.Minute, 2*time.Hour, 1, 90*time.Minute), job("b", 2*time.Minute, time.Hour, 1, 24*time.Hour))
		strategy, err := strategy.ByName("cap(2-6):carbon+now")
		if err != nil {
			t.Fatal(err)
		}
		r := play(t, s, strategy)
		if diff := cmp.Diff(c.want, starts(r)); diff != "" {
			t.Errorf("%s: unexpected starts (-want +got):\n%s", name, diff)
		}
		for i, o := range r.Outcomes {
			if held := i >= 2; o.Held() != held ||
				held && (o.Hold.Reason.Kind != sched.QuotaUsedUp || o.Released != o.Start) {
				t.Errorf("%s: unexpected outcome of %s: held %v, released at %v, starts at %v", name, s.Jobs[i].ID, o.Held(),
					o.Released.Sub(start), o.Start.Sub(start))
			}
		}
		for _, sample := range r.Timeline {
			planned := sample.Time.Sub(start) >= c.rules.Step // no plan was made before the first step
			if planned && sample.Queued != 0 || sample.Held < 0 || sample.Held > 2 {
				t.Errorf("%s: %d jobs wait for capacity and %d for the quota at %v", name, sample.Queued, sample.Held,
					sample.Time.Sub(start))
			}
		}
	}
}

// A throttled strategy suspends the same jobs as the underlying strategy.
func TestThrottledStrategiesSuspend(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, append([]float64{100, 900, 900, 100}, slices.Repeat([]float64{500}, 60)...)...)
	s := &sim.Scenario{Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 8, p)}}
	s.Jobs = append(s.Jobs, job("a", 0, 2*time.Hour, 1, 10*time.Hour))
	s.Jobs[0].Interruptible = true
	for _, name := range []string{"carbon+wait-awhile", "cap(2-6):carbon+wait-awhile", "cap(2-6):carbon+residual"} {
		strategy, err := strategy.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if o := play(t, s, strategy).Outcomes[0]; o.Suspensions != 1 || !o.Finish.Equal(start.Add(4*time.Hour)) {
			t.Errorf("%s: got %d suspensions and an end after %v, want 1 and 4h", name, o.Suspensions, o.Finish.Sub(start))
		}
	}
}
