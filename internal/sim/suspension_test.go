package sim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// scripted is a strategy that follows the script of a test and places jobs on the first node that fits.
type scripted struct {
	hold       func(now time.Time, j *sched.Job) (until, again time.Time) // a zero until means that the job runs
	interrupts bool
	seen       func(s *sched.Snapshot)
}

func (p *scripted) Interrupts() bool { return p.interrupts }

func (p *scripted) Plan(s *sched.Snapshot) sched.Plan {
	if p.seen != nil {
		p.seen(s)
	}
	plan := make(sched.Plan, len(s.Queue))
	for i := range s.Queue {
		j := &s.Queue[i]
		d := &plan[i]
		d.Job, d.Window = j.ID, sched.Window{Start: s.Now, End: s.Now.Add(j.Duration)}
		if p.hold != nil && !j.Released {
			var until time.Time
			if until, d.Again = p.hold(s.Now, j); !until.IsZero() {
				d.Window = sched.Window{Start: until, End: until.Add(j.Duration)}
				continue
			}
		}
		if len(s.Nodes) > 0 && !j.Running {
			d.Node = slices.MinFunc(s.Nodes, func(a, b *sched.Node) int { return strings.Compare(a.Name, b.Name) }).Name
		}
	}
	return plan
}

// dirty returns a script that suspends jobs in the given hours after the start, with a decision at every full hour.
func dirty(hours ...int) func(now time.Time, j *sched.Job) (until, again time.Time) {
	return func(now time.Time, _ *sched.Job) (until, again time.Time) {
		hour := now.Sub(start) / time.Hour
		again = start.Add((hour + 1) * time.Hour)
		if slices.Contains(hours, int(hour)) {
			until = again
		}
		return until, again
	}
}

func play(t testing.TB, s *sim.Scenario, strategy strategy.Strategy) *sim.Result {
	t.Helper()
	r, err := sim.Run(context.Background(), s, "scripted", strategy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func interruptible(j sched.Job, restart time.Duration) sched.Job {
	j.Interruptible, j.RestartCost = true, restart
	return j
}

// A job of 2 h on one node is suspended twice, computed by hand. Each resume repeats half an hour of work. 5 of 10
// cores at 100 to 300 W are 200 W, a sleeping node draws 10 W, a wake-up is 36 kJ = 0.01 kWh, and the PUE is 1.2.
//
//	00:00–01:00 runs       1 h done      500 g
//	01:00–03:00 suspended                400 g, 300 g
//	03:00–04:00 runs       ½ h done once more, 1½ h done   200 g
//	04:00–05:00 suspended                100 g
//	05:00–06:00 runs       ½ h done once more, 2 h done    50 g
func TestSuspensionByHand(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300, Sleep: 10, WakeUp: 36000}
	home := site(t, "home", 1.2, 500, 400, 300, 200, 100, 50)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, p)},
		Jobs: []sched.Job{interruptible(job("a", 0, 2*time.Hour, 5, 6*time.Hour), 30*time.Minute)},
	}
	r := play(t, s, &scripted{hold: dirty(1, 2, 4), interrupts: true})
	at := func(hours int) time.Time { return start.Add(time.Duration(hours) * time.Hour) }
	o := r.Outcomes[0]
	want := sim.Outcome{
		Placed: o.Placed, Released: start, Start: start, Finish: at(6), Suspensions: 2, Lost: time.Hour,
		Redone: 30 * time.Minute, Delayed: 4 * time.Hour,
		Runs: []sched.Window{{Start: at(0), End: at(1)}, {Start: at(3), End: at(4)}, {Start: at(5), End: at(6)}},
	}
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("unexpected outcome (-want +got):\n%s", diff)
	}
	wantKWh := 1.2 * (3*(0.2+0.01) + 3*0.01)
	wantGrams := 1.2 * (0.21*500 + 0.01*400 + 0.01*300 + 0.21*200 + 0.01*100 + 0.21*50)
	if got := r.Energy.KWh(); math.Abs(got-wantKWh) > 1e-12 {
		t.Errorf("energy = %v kWh, want %v", got, wantKWh)
	}
	if got := float64(r.Carbon); math.Abs(got-wantGrams) > 1e-9 {
		t.Errorf("emissions = %v g, want %v", got, wantGrams)
	}
	if want := 5. * 3 * 3600; r.BusyCPU != want {
		t.Errorf("BusyCPU = %v core-seconds, want %v", r.BusyCPU, want)
	}
	if got, want := o.Overdue(&s.Jobs[0]), -2*time.Hour; got != want {
		t.Errorf("Overdue() = %v, want %v", got, want)
	}
}

// A job without remaining slack runs even if the strategy would never run it.
func TestWithoutSlackJobsRun(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400, 300, 200, 100, 50)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, p)},
		Jobs: []sched.Job{
			interruptible(job("suspended", 0, time.Hour, 1, 90*time.Minute), 10*time.Minute),
			job("held", 0, time.Hour, 1, 90*time.Minute),
			interruptible(job("urgent", 0, time.Hour, 1, 0), 0),
		},
	}
	never := func(now time.Time, j *sched.Job) (until, again time.Time) {
		if j.ID == "suspended" && now.Equal(start) {
			return time.Time{}, start.Add(20 * time.Minute) // it runs first
		}
		return now.Add(24 * time.Hour), now.Add(time.Hour)
	}
	r := play(t, s, &scripted{hold: never, interrupts: true})
	for i, want := range []sim.Outcome{
		{
			Start: start, Finish: start.Add(160 * time.Minute), Suspensions: 1, Lost: 10 * time.Minute,
			Delayed: 100 * time.Minute,
		},
		{Start: start.Add(90 * time.Minute), Finish: start.Add(150 * time.Minute), Delayed: 90 * time.Minute},
		{Start: start, Finish: start.Add(time.Hour)},
	} {
		o := r.Outcomes[i]
		got := sim.Outcome{
			Start: o.Start, Finish: o.Finish, Suspensions: o.Suspensions, Lost: o.Lost, Delayed: o.Delayed,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: unexpected result (-want +got):\n%s", s.Jobs[i].ID, diff)
		}
	}
	if got, want := r.Outcomes[0].Overdue(&s.Jobs[0]), s.Jobs[0].RestartCost; got != want {
		t.Errorf("Overdue() of a job resumed without slack = %v, want one restart of %v", got, want)
	}
}

// A suspended job frees its capacity immediately, and resumes on any node with sufficient capacity.
func TestSuspendedJobsMakeRoom(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400, 300, 200, 100, 50)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home},
		Nodes: []sched.Node{node("a", home, 4, p), node("b", home, 2, p)},
		Jobs: []sched.Job{
			interruptible(job("moves", 0, 2*time.Hour, 2, 9*time.Hour), 0),
			job("fills", 0, 20*time.Hour, 1, 0),
			job("waits", time.Minute, 5*time.Hour, 3, 0),
		},
	}
	s.Sites[0].Carbon = grid.Signal{}
	r := play(t, s, &scripted{hold: func(now time.Time, j *sched.Job) (until, again time.Time) {
		if !j.Interruptible {
			return time.Time{}, time.Time{}
		}
		return dirty(1)(now, j)
	}, interrupts: true})
	var got []string
	for i, o := range r.Outcomes {
		got = append(got, fmt.Sprint(s.Jobs[i].ID, " on ", o.Placed.Node, " ", o.Start.Sub(start), " ",
			o.Finish.Sub(start), " ", o.Suspensions))
	}
	want := []string{"moves on a 0s 3h0m0s 1", "fills on a 0s 20h0m0s 0", "waits on a 1h0m0s 6h0m0s 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected result (-want +got):\n%s", diff)
	}
	if kWh := r.NodeEnergy[1].KWh(); math.Abs(kWh-0.3) > 1e-9 { // 2 of 2 cores for an hour, and 0 W asleep
		t.Errorf("energy of node b = %v kWh, want 0.3 for the rest of the job", kWh)
	}
}

// A strategy that does not interrupt jobs makes no decisions on running jobs, and there are none for jobs that are
// not interruptible.
func TestOnlyInterruptibleJobsAreAskedAgain(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400, 300, 200, 100, 50)
	for _, interrupts := range []bool{false, true} {
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, p)},
			Jobs: []sched.Job{
				interruptible(job("may", 0, 3*time.Hour, 1, time.Hour), 0), job("must", 0, 3*time.Hour, 1, time.Hour),
			},
		}
		asked := map[string]int{}
		play(t, s, &scripted{interrupts: interrupts, hold: dirty(), seen: func(s *sched.Snapshot) {
			if s.Queue[0].Running {
				asked[s.Queue[0].ID]++
			}
		}})
		want := map[string]int{}
		if interrupts {
			want["may"] = 2 // at 1:00 and 2:00; it ends at 3:00
		}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("interrupts %v: unexpected decisions on running jobs (-want +got):\n%s", interrupts, diff)
		}
	}
}

// Events at the same time are processed in the documented order.
func TestTheOrderOfAnInstant(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400, 300, 200, 100, 50)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 5, p)},
		Jobs: []sched.Job{
			job("arrives", time.Hour, time.Minute, 1, 0),
			job("again", 0, time.Minute, 1, 5*time.Hour),
			job("released", 0, time.Minute, 1, 5*time.Hour),
			job("waiting", time.Minute, time.Minute, 3, 0),
			interruptible(job("second", 0, 2*time.Hour, 1, 5*time.Hour), 0),
			interruptible(job("first", 0, 2*time.Hour, 1, 5*time.Hour), 0),
			job("ends", 0, time.Hour, 1, 0),
		},
	}
	var order []string
	hour := start.Add(time.Hour)
	r := play(t, s, &scripted{
		interrupts: true,
		seen: func(s *sched.Snapshot) {
			if s.Now.Equal(hour) {
				order = append(order, s.Queue[0].ID)
			}
		},
		hold: func(now time.Time, j *sched.Job) (until, again time.Time) {
			switch {
			case now.Equal(start) && j.ID == "released":
				return hour, time.Time{}
			case now.Equal(start) && j.ID == "again":
				return hour.Add(time.Hour), hour
			case now.Equal(start) && j.Interruptible:
				return time.Time{}, hour
			case now.Equal(hour) && j.ID == "first":
				return hour.Add(time.Hour), hour.Add(time.Hour)
			}
			return time.Time{}, time.Time{}
		},
	})
	if diff := cmp.Diff([]string{"second", "first", "waiting", "released", "again", "arrives"}, order); diff != "" {
		t.Errorf("unexpected order of decisions (-want +got):\n%s", diff)
	}
	if o := r.Outcomes[3]; !o.Start.Equal(hour) {
		t.Errorf("waiting job started at %v, want %v when capacity becomes free", o.Start, hour)
	}
}

func TestAgainMustBeLater(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 5, p)},
		Jobs: []sched.Job{job("a", 0, time.Minute, 1, time.Hour)},
	}
	_, err := sim.Run(context.Background(), s, "x",
		&scripted{hold: func(now time.Time, _ *sched.Job) (until, again time.Time) {
			return now.Add(time.Minute), now
		}})
	if err == nil || !strings.Contains(err.Error(), "next decision") {
		t.Errorf("expected an error about the next decision, got %v", err)
	}
}

// The allowed delay is the time in which a job does not work, on fast and slow nodes alike: running does not
// consume slack, and a fast node does not add any.
func TestSlackIsOfTime(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500)
	for _, speed := range []float64{0.5, 1, 2} {
		n := node("n", home, 10, p)
		n.Speed = speed
		// It runs for 2 h and is then suspended for 3 h, but only one hour is allowed.
		length := time.Duration(3 * speed * float64(time.Hour))
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{n},
			Jobs: []sched.Job{interruptible(job("a", 0, length, 1, time.Hour), 0)},
		}
		var slack []time.Duration
		r := play(t, s, &scripted{interrupts: true, hold: dirty(2, 3, 4), seen: func(s *sched.Snapshot) {
			slack = append(slack, s.Queue[0].Slack(s.Now))
		}})
		o := &r.Outcomes[0]
		hour := func(h int) time.Time { return start.Add(time.Duration(h) * time.Hour) }
		if want := []sched.Window{{Start: start, End: hour(2)}, {Start: hour(3), End: hour(4)}}; !slices.Equal(o.Runs,
			want) || o.Delayed != time.Hour {
			t.Errorf("at speed %v: Runs = %v, Delayed = %v, want %v and 1h", speed, o.Runs, o.Delayed, want)
		}
		if want := []time.Duration{time.Hour, time.Hour, time.Hour, 0}; !slices.Equal(slack, want) {
			t.Errorf("at speed %v: slack = %v, want %v", speed, slack, want)
		}
	}
}

// Repeating work takes longer on slow nodes, and a job resumed without slack may be overdue by that time.
func TestRestartsOnSlowNodes(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 500, 500, 500, 500, 500)
	n := node("n", home, 10, p)
	n.Speed = 0.5
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{n},
		Jobs: []sched.Job{interruptible(job("a", 0, time.Hour, 1, time.Hour), 10*time.Minute)},
	}
	o := play(t, s, &scripted{interrupts: true, hold: dirty(1)}).Outcomes[0]
	if o.Lost != 10*time.Minute || o.Redone != 20*time.Minute || o.Overdue(&s.Jobs[0]) != o.Redone ||
		o.Finish.Sub(start) != 200*time.Minute {
		t.Errorf("unexpected outcome: %v of work repeated in %v, overdue by %v, end after %v", o.Lost, o.Redone,
			o.Overdue(&s.Jobs[0]), o.Finish.Sub(start))
	}
}

// For any suspensions on nodes of any speed, jobs complete all of their work and the repeated work, nodes are not
// overcommitted, no job is delayed by more than allowed plus one restart, and the energy is the sum over the nodes.
func TestSuspensionKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t, func(i int) float64 { return 300 + 200*math.Sin(float64(i)/24*2*math.Pi) })
		restart := time.Duration(rapid.IntRange(0, 900).Draw(t, "restart")) * time.Second
		for i := range s.Jobs {
			if i%4 != 3 {
				s.Jobs[i] = interruptible(s.Jobs[i], restart)
			}
		}
		slowest, fastest := 1., 1.
		for i := range s.Nodes {
			if speed := s.Nodes[i].Speed; speed > 0 {
				slowest, fastest = min(slowest, speed), max(fastest, speed)
			}
		}
		seed := rapid.Uint64().Draw(t, "whims")
		whims := func(now time.Time, j *sched.Job) (until, again time.Time) {
			h := seed ^ uint64(now.Sub(start)/time.Minute)*0x9e3779b97f4a7c15 ^ uint64(
				len(j.ID)*31+int(j.ID[len(j.ID)-1]))*0xbf58476d1ce4e5b9
			h ^= h >> 29
			again = now.Add(time.Duration(1+h%7200) * time.Second)
			if h>>32&1 == 0 && j.Slack(now) > 0 {
				until = again.Add(time.Duration(h>>40%3600) * time.Second)
			}
			return until, again
		}
		planned, err := strategy.New("carbon+plan")
		if err != nil {
			t.Fatal(err)
		}
		strategies := map[string]strategy.Strategy{"whims": &scripted{hold: whims, interrupts: true}, "plan": planned}
		name := rapid.SampledFrom([]string{"whims", "plan"}).Draw(t, "strategy")
		r, err := sim.Run(context.Background(), s, name, strategies[name])
		if err != nil {
			t.Fatal(err)
		}
		var busy float64
		for i := range r.Outcomes {
			o, j := &r.Outcomes[i], &s.Jobs[i]
			runs := o.Runs
			if o.Suspensions == 0 {
				if runs != nil || o.Lost != 0 {
					t.Fatalf("unexpected outcome of job %s without suspensions: %+v", j.ID, o)
				}
				runs = []sched.Window{{Start: o.Start, End: o.Finish}}
			}
			var ran time.Duration
			for k, w := range runs {
				ran += w.End.Sub(w.Start)
				if k > 0 && w.Start.Before(runs[k-1].End) {
					t.Fatalf("job %s has overlapping runs: %v", j.ID, runs)
				}
			}
			busy += ran.Seconds() * float64(j.Request.MilliCPU) / 1000
			// Every run is rounded to whole nanoseconds.
			cut := time.Duration(2 * len(runs))
			if work := (j.Duration + o.Lost).Seconds(); ran.Seconds() > work/slowest+cut.Seconds() ||
				ran.Seconds() < work/fastest-cut.Seconds() {
				t.Fatalf("job %s of length %v ran for %v and repeated %v", j.ID, j.Duration, ran, o.Lost)
			}
			if slowest == fastest && ran-o.Lost != j.Duration {
				t.Fatalf("job %s of length %v ran for %v and lost %v", j.ID, j.Duration, ran, o.Lost)
			}
			if len(runs) != o.Suspensions+1 || !runs[0].Start.Equal(o.Start) || !runs[len(runs)-1].End.Equal(o.Finish) {
				t.Fatalf("unexpected outcome of job %s: %+v", j.ID, o)
			}
			if o.Lost > time.Duration(o.Suspensions)*restart {
				t.Fatalf("job %s lost %v in %d suspensions, more than possible", j.ID, o.Lost, o.Suspensions)
			}
			if over := o.Overdue(j); over > 0 && over > o.Redone ||
				o.Redone.Seconds() > j.RestartCost.Seconds()/slowest {
				t.Fatalf("job %s is overdue by %v, outcome %+v", j.ID, over, o)
			}
			if most := o.Idle(j).Seconds() + o.Lost.Seconds()/slowest; o.Delayed.Seconds() > most+cut.Seconds() {
				t.Fatalf("job %s was delayed by %v, want at most %v s", j.ID, o.Delayed, most)
			}
		}
		if math.Abs(busy-r.BusyCPU) > 1e-6*busy {
			t.Fatalf("BusyCPU = %v core-seconds, want %v as in the runs of the jobs", r.BusyCPU, busy)
		}
	})
}

// Two jobs share the cheap hours of one machine: each pauses while the other runs or the intensity is high.
func TestPlanSuspends(t *testing.T) {
	cheap := func(hour int) float64 { return 100 + 400*float64(hour%2) }
	s := scenarioOf(t, cheap, 1, 24)
	for i := range 2 {
		s.Jobs = append(s.Jobs, sched.Job{
			ID: fmt.Sprint("j", i), Submitted: start.Add(time.Duration(i) * time.Minute), Duration: 2 * time.Hour,
			Request: sched.Resources{MilliCPU: 1000}, AllowedDelay: 10 * time.Hour, Interruptible: true,
		})
	}
	planned, err := strategy.New("carbon+plan")
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, s, planned)
	if want := 4 * 100 * 1e-3; math.Abs(float64(r.Carbon)-want) > 0.02*want {
		t.Errorf("emissions = %v, want %v g as in four cheap hours", r.Carbon, want)
	}
	for i := range r.Outcomes {
		if o := &r.Outcomes[i]; o.Suspensions == 0 || o.Overdue(&s.Jobs[i]) > 0 {
			t.Errorf("job %d: unexpected outcome with %d suspensions, runs %v", i, o.Suspensions, o.Runs)
		}
	}
	// On two replicas, if there is capacity, the job does not need a second hour.
	s = scenarioOf(t, cheap, 2, 24)
	s.Jobs = []sched.Job{{
		ID: "elastic", Submitted: start, Duration: 4 * time.Hour, Request: sched.Resources{MilliCPU: 1000},
		AllowedDelay: 10 * time.Hour, Interruptible: true, Scaling: &sched.Scaling{Least: 1, Throughput: []float64{1, 2}},
	}}
	r = play(t, s, planned)
	if o := &r.Outcomes[0]; !slices.Equal(o.Replicas, []int{2, 2}) || math.Abs(float64(r.Carbon)-0.4) > 0.001 {
		t.Errorf("unexpected result on replicas %v: emissions %v, runs %v", o.Replicas, r.Carbon, o.Runs)
	}
}

// scenarioOf returns a scenario without jobs and with one machine of the given number of cores that draw one watt
// each.
func scenarioOf(t *testing.T, intensity func(hour int) float64, cores, hours int) *sim.Scenario {
	t.Helper()
	values := make([]float64, hours)
	for i := range values {
		values[i] = intensity(i)
	}
	series, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", PUE: 1, Carbon: grid.Signal{Series: series}}
	has := sched.Resources{MilliCPU: int64(1000 * cores)}
	return &sim.Scenario{
		Start: start, Sites: []*sched.Site{site},
		Nodes: []sched.Node{{
			Name: "n", Site: site, Capacity: has, Free: has, Profile: &energy.Profile{Max: energy.Watts(cores)},
		}},
	}
}
