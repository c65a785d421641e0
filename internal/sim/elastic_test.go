package sim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// elastic returns an elastic job; the request of j is that of its minimum number of replicas.
func elastic(j sched.Job, least int, throughput ...float64) sched.Job {
	j.Interruptible, j.Scaling = true, &sched.Scaling{Least: least, Throughput: throughput}
	return j
}

const scaler = "energy+carbon-scaler"

// proportional draws one watt per busy core of 1000 cores.
var proportional = &energy.Profile{Max: 1000}

// A job takes 4 h on one replica of 2 cores; two replicas have 1.5 times the throughput. It must finish by noon.
// The cheapest hours for one replica are at 100, 200 and 300 g. The second replica adds half the work for the same
// energy, so at 100 g it is as efficient as the first at 200 g. 1.5 h of work each are done at 100 and 200 g, and
// the rest at 300 g.
//
//	00:00–01:00  500 g  held
//	01:00–02:00  100 g  2 replicas   1½ h done
//	02:00–03:00  300 g  1 replica    2½ h
//	03:00–04:00  900 g  suspended
//	04:00–05:00  200 g  2 replicas   4 h
//
// The node has 10 cores, draws 100 to 300 W when awake and 10 W asleep, and 36 kJ = 0.01 kWh to wake up; the PUE is
// 1.2.
func TestScalingByHand(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300, Sleep: 10, WakeUp: 36000}
	home := site(t, "home", 1.2, 500, 100, 300, 900, 200, 1000)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, p)},
		Jobs: []sched.Job{elastic(job("a", 0, 4*time.Hour, 2, 2*time.Hour), 1, 1, 1.5)},
	}
	r := run(t, s, scaler)
	at := func(hours int) time.Time { return start.Add(time.Duration(hours) * time.Hour) }
	o := r.Outcomes[0]
	want := sim.Outcome{
		Hold: o.Hold, Placed: o.Placed, HadCapacity: true, Released: at(1), Start: at(1), Finish: at(5), Suspensions: 1,
		Delayed:  time.Hour,
		Runs:     []sched.Window{{Start: at(1), End: at(2)}, {Start: at(2), End: at(3)}, {Start: at(4), End: at(5)}},
		Replicas: []int{2, 1, 2},
	}
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("unexpected outcome (-want +got):\n%s", diff)
	}
	wantKWh := 1.2 * (0.01 + (0.18 + 0.01) + 0.14 + 0.01 + (0.18 + 0.01))
	wantGrams := 1.2 * (0.01*500 + 0.19*100 + 0.14*300 + 0.01*900 + 0.19*200)
	if got := r.Energy.KWh(); math.Abs(got-wantKWh) > 1e-12 {
		t.Errorf("energy = %v kWh, want %v", got, wantKWh)
	}
	if got := float64(r.Carbon); math.Abs(got-wantGrams) > 1e-9 {
		t.Errorf("emissions = %v g, want %v", got, wantGrams)
	}
	if want := 3600 * (4. + 2 + 4); r.BusyCPU != want {
		t.Errorf("BusyCPU = %v core-seconds, want %v", r.BusyCPU, want)
	}
	if got := o.Overdue(&s.Jobs[0]); got != -time.Hour {
		t.Errorf("Overdue() = %v, want -1h", got)
	}
}

// If other jobs may use the capacity, a job does not wait longer than its minimum number of replicas allows. It
// uses at most the available capacity.
func TestScalingTakesTheRoomThereIs(t *testing.T) {
	home := site(t, "home", 1, 900, 800, 100, 900, 900, 900, 900, 900, 900, 900)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 3, proportional)},
		Jobs: []sched.Job{
			elastic(job("a", 0, 3*time.Hour, 1, time.Hour), 1, 1, 2, 3, 4),
			job("b", 30*time.Minute, 9*time.Hour, 1, 0),
		},
	}
	r := run(t, s, scaler)
	o := r.Outcomes[0]
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	// With assured capacity, it would do all work at 100 g. It must start at 1:00, and then has one hour on two
	// replicas.
	want := []sched.Window{{Start: at(60), End: at(120)}, {Start: at(120), End: at(180)}}
	if diff := cmp.Diff(want, o.Runs); diff != "" || !slices.Equal(o.Replicas, []int{1, 2}) {
		t.Errorf("unexpected runs on %v replicas (-want +got):\n%s", o.Replicas, diff)
	}
	if !r.Outcomes[1].Start.Equal(at(30)) {
		t.Errorf("unexpected start of b at %v", r.Outcomes[1].Start)
	}
}

// drawElastic returns a scenario with a random day of hourly intensities and an elastic job. The deadline of the
// job is at a full hour.
func drawElastic(t *rapid.T, intensity func(label string) float64) (*sim.Scenario, *sched.Job) {
	least := rapid.IntRange(1, 3).Draw(t, "least")
	throughput, gain := []float64{1}, 1/float64(least)
	for range rapid.IntRange(0, 3).Draw(t, "more") {
		gain *= rapid.SampledFrom([]float64{1, 1, 0.8, 0.5, 0}).Draw(t, "fall")
		throughput = append(throughput, throughput[len(throughput)-1]+gain)
	}
	hours := rapid.IntRange(1, 4).Draw(t, "hours")
	duration := time.Duration(rapid.IntRange(1, hours*3600).Draw(t, "duration")) * time.Second
	j := elastic(job("a", 0, duration, int64(least), time.Duration(hours)*time.Hour-duration), least, throughput...)
	values := make([]float64, 24)
	for i := range values {
		values[i] = intensity(fmt.Sprint("intensity", i))
	}
	series, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	home := &sched.Site{Name: "home", Carbon: grid.Signal{Series: series}}
	return &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 1000, proportional)},
		Jobs: []sched.Job{j},
	}, &j
}

// minGrams evaluates every number of replicas in every hour available to a job, and a mixture of two numbers in one
// of the hours. The amount of work is one constraint of a linear program, so one of these schedules is optimal.
func minGrams(c *grid.Series, j *sched.Job) float64 {
	hours := int((j.AllowedDelay + j.Duration) / time.Hour)
	levels := append([]float64{0}, j.Scaling.Throughput...)
	watts := func(level int) float64 {
		if level == 0 {
			return 0
		}
		return float64(j.Request.MilliCPU) / 1000 / float64(j.Scaling.Least) * float64(j.Scaling.Least+level-1)
	}
	least := math.Inf(1)
	chosen := make([]int, hours)
	var choose func(k int, done, cost float64)
	choose = func(k int, done, cost float64) {
		if k < hours {
			for level := range levels {
				chosen[k] = level
				choose(k+1, done+levels[level], cost+watts(level)*c.Value(k))
			}
			return
		}
		missing := j.Duration.Hours() - done
		if missing <= 1e-9 {
			least = min(least, cost)
			return
		}
		for k, low := range chosen {
			for high := range levels {
				if share := missing / (levels[high] - levels[low]); levels[high] > levels[low] && share <= 1 {
					least = min(least, cost+share*(watts(high)-watts(low))*c.Value(k))
				}
			}
		}
	}
	choose(0, 0, 0)
	return least / 1000
}

// With accurate forecasts and sufficient capacity, the emissions of a run equal those of the optimal plan.
func TestScalingIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, j := drawElastic(t, func(label string) float64 { return 10 * float64(rapid.IntRange(0, 50).Draw(t, label)) })
		strategy, err := strategy.New(scaler)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), s, scaler, strategy)
		if err != nil {
			t.Fatal(err)
		}
		got, want := float64(r.Carbon), minGrams(s.Sites[0].Carbon.Series, j)
		if got < want-1e-9*max(1, want) || got > want+1e-5*max(1, want) {
			t.Fatalf("emissions = %v g, want %v g as for the optimal plan: %+v", got, want, r.Outcomes[0])
		}
		const rounding = time.Microsecond // the remaining work is rounded up to nanoseconds at each change
		if end := j.Submitted.Add(j.AllowedDelay + j.Duration); r.Outcomes[0].Finish.After(end.Add(rounding)) {
			t.Fatalf("job finished at %v, after its deadline %v: %+v", r.Outcomes[0].Finish, end, r.Outcomes[0])
		}
	})
}

// A job with a strict deadline still waits for the hours with the lowest intensity, until the latest time at which
// its maximum number of replicas can finish in time.
func TestScalingWaitsForItsPlan(t *testing.T) {
	for name, c := range map[string]struct {
		work   time.Duration
		most   int
		delay  time.Duration
		starts time.Duration
	}{
		"on more replicas than hours": {5 * time.Hour, 8, 0, 4 * time.Hour},
		"on as many":                  {12 * time.Hour, 12, 0, 11 * time.Hour},
		"on fewer":                    {8 * time.Hour, 4, 0, 6 * time.Hour},
		"with some delay":             {5 * time.Hour, 5, time.Hour, 5 * time.Hour},
	} {
		values := make([]float64, 48)
		for i := range values {
			values[i] = 900 - 10*float64(i)
		}
		home := site(t, "home", 1, values...)
		j := elastic(job("a", 0, c.work, 1, c.delay), 1)
		j.Scaling = sched.Amdahl(1, c.most, 1)
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 1000, proportional)},
			Jobs: []sched.Job{j},
		}
		o := run(t, s, scaler).Outcomes[0]
		if end := start.Add(c.work + c.delay); !o.Start.Equal(start.Add(c.starts)) || o.Finish.After(end) {
			t.Errorf("%s: job ran from %v to %v, want a start after %v and an end after at most %v", name, o.Start.Sub(start),
				o.Finish.Sub(start), c.starts, end.Sub(start))
		}
	}
}

// A pause that is too short to save energy is omitted. The job must still get the replicas that it relies on
// afterwards.
func TestScalingAfterAPauseOfNothing(t *testing.T) {
	series, err := grid.NewSeries(start, 30*time.Minute, slices.Repeat([]float64{1.5, 1.5, 1, 0.5}, 20))
	if err != nil {
		t.Fatal(err)
	}
	home := &sched.Site{Name: "home", Carbon: grid.Signal{Series: series}}
	j := elastic(job("a", 0, 40844*time.Second, 1, 565*time.Second), 1, sched.Amdahl(1, 2, 0.9).Throughput...)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 1000, proportional)},
		Jobs: []sched.Job{j},
	}
	if o, end := run(t, s, scaler).Outcomes[0], start.Add(j.Duration+j.AllowedDelay); o.Finish.After(end) {
		t.Errorf("job finished at %v, after its deadline %v: %+v", o.Finish, end, o)
	}
}

// With a linear speed-up and a constant intensity, scaling changes the completion time of a job but not its
// emissions.
func TestScalingOnAConstantIntensity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := float64(rapid.IntRange(1, 900).Draw(t, "value"))
		s, j := drawElastic(t, func(string) float64 { return value })
		s.Jobs[0].Scaling = sched.Amdahl(j.Scaling.Least, j.Scaling.Most(), 1)
		strategy, err := strategy.New(scaler)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), s, scaler, strategy)
		if err != nil {
			t.Fatal(err)
		}
		want := value * j.Duration.Hours() * float64(j.Scaling.Least) / 1000
		if got := float64(r.Carbon); math.Abs(got-want) > 1e-9*want {
			t.Fatalf("emissions = %v g, want %v g as on the minimum number of replicas: %+v", got, want, r.Outcomes[0])
		}
	})
}

// liar returns arbitrary forecasts.
type liar struct{ seed uint64 }

func (l liar) At(now time.Time) grid.Signal {
	from := now.Truncate(time.Hour)
	h := l.seed ^ uint64(from.Unix())*0x9e3779b97f4a7c15
	values := make([]float64, 40)
	for i := range values {
		h ^= h << 13
		h ^= h >> 7
		h ^= h << 17
		values[i] = float64(h % 600)
	}
	series, err := grid.NewSeries(from, time.Hour, values)
	if err != nil {
		panic(err)
	}
	return grid.Signal{Series: series, AsOf: now}
}

// drawCluster returns a scenario with mostly elastic jobs on nodes that may be too small for them.
func drawCluster(t *rapid.T) *sim.Scenario {
	s := drawScenario(t, func(i int) float64 { return 300 + 200*math.Sin(float64(i)/24*2*math.Pi) })
	for i := range s.Nodes {
		s.Nodes[i].Speed = s.Nodes[0].Speed // the outcome does not record the node of each run
	}
	restart := time.Duration(rapid.IntRange(0, 1).Draw(t, "restart")) * 7 * time.Minute
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.RestartCost, j.Interruptible = restart, i%4 != 1
		if i%4 == 3 {
			continue
		}
		least := 1 + i%2
		j.Request.MilliCPU *= int64(least)
		j.Request.Memory *= int64(least)
		j.Scaling = sched.Amdahl(least, least+rapid.IntRange(0, 7).Draw(t, "more"),
			rapid.SampledFrom([]float64{1, 0.9, 0.5}).Draw(t, "parallel"))
	}
	if rapid.Bool().Draw(t, "ample") {
		for i := range s.Nodes {
			s.Nodes[i].Capacity = sched.Resources{MilliCPU: 1e7, Memory: 1 << 60}
			s.Nodes[i].Free = s.Nodes[i].Capacity
		}
	}
	if rapid.Bool().Draw(t, "lies") {
		for range s.Sites {
			s.Foresight = append(s.Foresight, liar{seed: 1 + rapid.Uint64().Draw(t, "seed")})
		}
	}
	if rapid.Bool().Draw(t, "learnt") {
		s.Learner = func() predict.Learner { return predict.NewMean() }
	}
	return s
}

// For any forecast and capacity, elastic jobs complete all of their work with an allowed number of replicas,
// decisions never delay a job longer than allowed, and runs are reproducible.
func TestScalingKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawCluster(t)
		strategy, err := strategy.New(rapid.SampledFrom([]string{
			scaler, "least-allocated+carbon-scaler", "round-robin+carbon-scaler/shortest", "min-min+carbon-scaler",
			"ecsched-dp+carbon-scaler",
		}).Draw(t, "strategy"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), s, "x", strategy)
		if err != nil {
			t.Fatal(err)
		}
		busy := 0.0
		for i := range r.Outcomes {
			o, j := &r.Outcomes[i], &s.Jobs[i]
			if o.Placed.Node == "" {
				continue // no node is large enough
			}
			busy += checkScaled(t, o, j, s.Nodes[0].Speed)
			// On machines with a speed other than 1, the number of replicas is fixed, and jobs are suspended like
			// jobs that are not elastic.
			scaled := j.Scaling != nil && j.Interruptible && (s.Nodes[0].Speed == 0 || s.Nodes[0].Speed == 1)
			if over := o.Overdue(j); over > j.RestartCost || over > 0 && scaled {
				t.Fatalf("job %s is overdue by %v, outcome %+v", j.ID, over, o)
			}
		}
		if math.Abs(busy-r.BusyCPU) > 1e-6*busy {
			t.Fatalf("BusyCPU = %v core-seconds, want %v as in the runs of the jobs", r.BusyCPU, busy)
		}
		again, err := sim.Run(context.Background(), s, "x", strategy)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.Outcomes, again.Outcomes); diff != "" || r.Totals != again.Totals {
			t.Fatalf("second run of the same scenario differs:\n%s", diff)
		}
	})
}

// checkScaled verifies the runs of a job on nodes of the given speed and returns its core-seconds.
func checkScaled(t *rapid.T, o *sim.Outcome, j *sched.Job, speed float64) (busy float64) {
	if speed == 0 {
		speed = 1
	}
	runs := o.Runs
	if runs == nil {
		runs = []sched.Window{{Start: o.Start, End: o.Finish}}
	}
	if scaled := j.Scaling != nil && j.Interruptible && speed == 1; scaled != (o.Replicas != nil) ||
		scaled && len(o.Replicas) != len(runs) {
		t.Fatalf("unexpected outcome of job %s: %+v", j.ID, o)
	}
	work := 0.0
	for k, w := range runs {
		if k > 0 && w.Start.Before(runs[k-1].End) || !w.End.After(w.Start) {
			t.Fatalf("job %s has invalid runs %v", j.ID, runs)
		}
		cores, rate := float64(j.Request.MilliCPU)/1000, 1.0
		if o.Replicas != nil {
			n := o.Replicas[k]
			if rate = j.Scaling.Rate(n); n < j.Scaling.Least || n > j.Scaling.Most() {
				t.Fatalf("job %s runs on an invalid number of %d replicas", j.ID, n)
			}
			cores *= float64(n) / float64(j.Scaling.Least)
		}
		work += speed * rate * w.End.Sub(w.Start).Seconds()
		busy += cores * w.End.Sub(w.Start).Seconds()
	}
	if math.Abs(work-(j.Duration+o.Lost).Seconds()) > 1e-3 || !runs[0].Start.Equal(o.Start) ||
		!runs[len(runs)-1].End.Equal(o.Finish) {
		t.Fatalf("job %s of length %v did %v s of work: %+v", j.ID, j.Duration, work, o)
	}
	if o.Lost > time.Duration(o.Suspensions)*j.RestartCost {
		t.Fatalf("job %s lost %v in %d suspensions, more than possible", j.ID, o.Lost, o.Suspensions)
	}
	return busy
}

// A node is never overcommitted, and the energy equals the integral over the load of a single node derived from the
// runs.
func TestScalingConservesEnergy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawCluster(t)
		s.Nodes, s.Sites = s.Nodes[:1], []*sched.Site{s.Nodes[0].Site}
		if s.Foresight != nil {
			s.Foresight = s.Foresight[:1]
		}
		n := &s.Nodes[0]
		strategy, err := strategy.New(scaler)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), s, "x", strategy)
		if err != nil {
			t.Fatal(err)
		}
		changes := loadOf(r)
		if len(changes) == 0 {
			return
		}
		joules := drawnBy(t, n, changes)
		// The energy for a wake-up is consumed an integral number of times, at most once per run
		pue := n.Site.PUE
		wakes := (float64(r.Energy) - pue*joules) / (pue * float64(n.Profile.WakeUp))
		if math.Abs(wakes-math.Round(wakes)) > 1e-6*max(1, float64(r.Energy)/1000) || math.Round(wakes) < 1 ||
			int(math.Round(wakes)) > len(changes)/2 {
			t.Fatalf("energy = %v J, but the runs account for %v J and %v wake-ups", r.Energy, pue*joules, wakes)
		}
	})
}

// loadChange is the start or the end of a run of a job.
type loadChange struct {
	at   time.Time
	cpu  int64
	jobs int
}

// loadOf returns the changes of the runs of all jobs in order of time.
func loadOf(r *sim.Result) (changes []loadChange) {
	for i := range r.Outcomes {
		o, j := &r.Outcomes[i], &r.Scenario.Jobs[i]
		if o.Placed.Node == "" {
			continue
		}
		runs := o.Runs
		if runs == nil {
			runs = []sched.Window{{Start: o.Start, End: o.Finish}}
		}
		for k, w := range runs {
			sized := *j
			if o.Replicas != nil {
				sized = j.On(o.Replicas[k])
			}
			changes = append(changes, loadChange{w.Start, sized.Request.MilliCPU, 1},
				loadChange{w.End, -sized.Request.MilliCPU, -1})
		}
	}
	slices.SortStableFunc(changes, func(a, b loadChange) int { return a.at.Compare(b.at) })
	return changes
}

// drawnBy integrates the power of a node under a load, which must never exceed its capacity.
func drawnBy(t *rapid.T, n *sched.Node, changes []loadChange) (joules float64) {
	var used int64
	jobs, since := 0, start
	for k, c := range changes {
		power := float64(n.Profile.Sleep)
		if jobs > 0 {
			power = float64(n.Profile.Power(float64(used) / float64(n.Capacity.MilliCPU)))
		}
		joules += power * c.at.Sub(since).Seconds()
		since = c.at
		used, jobs = used+c.cpu, jobs+c.jobs
		if last := k+1 == len(changes) || !changes[k+1].at.Equal(c.at); last && used > n.Capacity.MilliCPU {
			t.Fatalf("node is overcommitted: %d of %d millicores in use at %v", used, n.Capacity.MilliCPU, c.at)
		}
	}
	return joules
}

// As reported by Hanafy et al., savings increase with the scalability of a job. Scaling saves more than starting
// immediately, and more than suspending and resuming on a fixed number of replicas.
func TestMoreScalingSavesMore(t *testing.T) {
	values := make([]float64, 24*12)
	for i := range values {
		values[i] = 300 + 200*math.Sin(float64(i)/24*2*math.Pi) + 60*math.Sin(float64(i)*1.7)
	}
	home := site(t, "home", 1, values...)
	grams := func(strategy string, most int, parallel float64) float64 {
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 1000, proportional)},
		}
		for i := range 24 {
			s.Jobs = append(s.Jobs, elastic(job(strconv.Itoa(i), time.Duration(7*i)*time.Hour, 12*time.Hour, 1,
				12*time.Hour), 1))
			s.Jobs[i].Scaling = sched.Amdahl(1, most, parallel)
		}
		return float64(run(t, s, strategy).Carbon)
	}
	atOnce, suspended := grams("energy+now", 1, 1), grams("energy+wait-awhile", 1, 1)
	saved := []float64{}
	for _, most := range []int{1, 2, 4, 8} {
		saved = append(saved, 1-grams(scaler, most, 1)/atOnce)
	}
	if !slices.IsSorted(saved) || saved[1] < saved[0]+0.05 || saved[3] < saved[2]+0.01 {
		t.Errorf("savings with up to 1, 2, 4 and 8 replicas = %.3f, want a clear increase each time", saved)
	}
	if fixed := 1 - suspended/atOnce; math.Abs(saved[0]-fixed) > 1e-6 {
		t.Errorf("savings without scaling = %v, want %v as with suspending on one replica", saved[0], fixed)
	}
	if less := 1 - grams(scaler, 4, 0.8)/atOnce; less <= saved[0] || less >= saved[2] {
		t.Errorf("savings with 4 inefficient replicas = %v, want between %v and %v", less, saved[0], saved[2])
	}
}
