package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

var start = time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC)

func site(t testing.TB, name string, pue float64, intensity ...float64) *sched.Site {
	t.Helper()
	series, err := grid.NewSeries(start, time.Hour, intensity)
	if err != nil {
		t.Fatal(err)
	}
	return &sched.Site{Name: name, Zone: "DE", PUE: pue, Carbon: grid.Signal{Series: series}}
}

func node(name string, s *sched.Site, cores int64, p *energy.Profile) sched.Node {
	capacity := sched.Resources{MilliCPU: 1000 * cores, Memory: cores << 32}
	return sched.Node{Name: name, Site: s, Capacity: capacity, Free: capacity, Profile: p}
}

func job(id string, submitted, duration time.Duration, cores int64, delay time.Duration) sched.Job {
	return sched.Job{
		ID: id, Submitted: start.Add(submitted), Duration: duration, AllowedDelay: delay,
		Request: sched.Resources{MilliCPU: 1000 * cores, Memory: cores << 30},
	}
}

func run(t testing.TB, s *sim.Scenario, name string) *sim.Result {
	t.Helper()
	strategy, err := strategy.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), s, name, strategy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Energy and emissions of a run computed by hand: one node of 10 cores with 100 to 300 W, 10 W asleep, PUE 1.2.
//
//	00:00–01:00 asleep                10 W at 500 g
//	01:00–02:00 a (5 cores)          200 W at 400 g, after a wake-up of 36 kJ
//	02:00–03:00 a and b (10 cores)   300 W at 300 g
//	03:00–04:00 b (5 cores)          200 W at 200 g
func TestAccountingByHand(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300, Sleep: 10, WakeUp: 36000}
	home := site(t, "home", 1.2, 500, 400, 300, 200, 100)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, p)},
		Jobs: []sched.Job{job("a", time.Hour, 2*time.Hour, 5, 0), job("b", 2*time.Hour, 2*time.Hour, 5, 0)},
	}
	r := run(t, s, "energy")
	wantKWh := 1.2 * (0.010 + 0.2 + 0.010 + 0.3 + 0.2)
	wantGrams := 1.2 * (0.010*500 + 0.21*400 + 0.3*300 + 0.2*200)
	if got := r.Energy.KWh(); math.Abs(got-wantKWh) > 1e-12 {
		t.Errorf("energy = %v kWh, want %v", got, wantKWh)
	}
	if got := float64(r.Carbon); math.Abs(got-wantGrams) > 1e-9 {
		t.Errorf("emissions = %v g, want %v", got, wantGrams)
	}
	if !r.End.Equal(start.Add(4 * time.Hour)) {
		t.Errorf("unexpected end of the last job at %v", r.End)
	}
	var charted energy.Joules
	for i, sample := range r.Timeline {
		length := r.Accounted.Sub(sample.Time)
		if i+1 < len(r.Timeline) {
			length = r.Timeline[i+1].Time.Sub(sample.Time)
		}
		charted += sample.Power.For(length)
		if rest := sample.Power - sample.Idle - sample.Asleep; sample.Idle < 0 || sample.Asleep < 0 || rest < -1e-9 {
			t.Errorf("inconsistent sample at %v: power %v W, %v idle and %v asleep", sample.Time, sample.Power, sample.Idle,
				sample.Asleep)
		}
	}
	if math.Abs(charted.KWh()-wantKWh) > 1e-9 {
		t.Errorf("energy of the timeline = %v kWh, want %v", charted.KWh(), wantKWh)
	}
	var sum sim.Cell
	for _, cells := range r.Cells {
		c := cells[0]
		sum.Energy += c.Energy
		sum.Carbon += c.Carbon
		sum.Busy += c.Busy
		sum.Asleep += c.Asleep
	}
	if math.Abs(sum.Energy.KWh()-wantKWh) > 1e-9 || math.Abs(float64(sum.Carbon)-wantGrams) > 1e-6 ||
		math.Abs(sum.Busy-r.BusyCPU) > 1e-6 || math.Abs(sum.Asleep-3600) > 1e-6 {
		t.Errorf("the node's cells add up to %v kWh, %v g, %v core-seconds and %v s asleep, want %v, %v, %v and 3600",
			sum.Energy.KWh(), float64(sum.Carbon), sum.Busy, sum.Asleep, wantKWh, wantGrams, r.BusyCPU)
	}
}

func TestAHeldJobStartsInItsWindow(t *testing.T) {
	p := &energy.Profile{Idle: 50, Max: 150}
	home := site(t, "home", 1, 500, 400, 100, 600, 600, 600)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, p)},
		Jobs: []sched.Job{job("waits", 0, time.Hour, 1, 4*time.Hour), job("urgent", 0, time.Hour, 1, 0)},
	}
	r := run(t, s, "energy+window")
	for i, want := range []time.Duration{2 * time.Hour, 0} {
		if got := r.Outcomes[i].Start.Sub(start); got != want {
			t.Errorf("start of %s = %v, want %v", s.Jobs[i].ID, got, want)
		}
	}
	if !r.Outcomes[0].Held() || r.Outcomes[1].Held() {
		t.Errorf("Held() = %v and %v, want true and false", r.Outcomes[0].Held(), r.Outcomes[1].Held())
	}
}

// A job that does not fit does not block smaller jobs, as in kube-scheduler, and starts when a completion frees
// capacity.
func TestTheQueueIsNotBlockedByItsHead(t *testing.T) {
	p := &energy.Profile{Idle: 50, Max: 150}
	home := site(t, "home", 1, 500, 400, 100, 600)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 4, p)},
		Jobs: []sched.Job{
			job("running", 0, time.Hour, 3, 0), job("big", time.Minute, time.Hour, 4, 0),
			job("small", 2*time.Minute, time.Minute, 1, 0), job("never", 3*time.Minute, time.Minute, 5, 0),
		},
	}
	r := run(t, s, "least-allocated")
	var got []string
	for _, o := range r.Outcomes {
		if o.Placed.Node != "" {
			got = append(got, fmt.Sprint(s.Jobs[o.Job].ID, " ", o.Start.Sub(start)))
		}
	}
	want := []string{"running 0s", "big 1h0m0s", "small 2m0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected starts (-want +got):\n%s", diff)
	}
}

func TestRunRefuses(t *testing.T) {
	p := &energy.Profile{Idle: 50, Max: 150}
	home := site(t, "home", 1, 500)
	good := func() *sim.Scenario {
		return &sim.Scenario{
			Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 4, p)},
			Jobs: []sched.Job{job("j", 0, time.Minute, 1, 0)},
		}
	}
	for name, c := range map[string]struct {
		change func(*sim.Scenario)
		want   string
	}{
		"no nodes":             {func(s *sim.Scenario) { s.Nodes = nil }, "no nodes"},
		"no jobs":              {func(s *sim.Scenario) { s.Jobs = nil }, "no jobs"},
		"a name twice":         {func(s *sim.Scenario) { s.Nodes = append(s.Nodes, s.Nodes[0]) }, "used twice"},
		"no profile":           {func(s *sim.Scenario) { s.Nodes[0].Profile = nil }, "no power profile"},
		"no duration":          {func(s *sim.Scenario) { s.Jobs[0].Duration = 0 }, "duration above 0"},
		"before the start":     {func(s *sim.Scenario) { s.Start = start.Add(time.Second) }, "at or after"},
		"outside the series":   {func(s *sim.Scenario) { s.Start = start.Add(-time.Second) }, "not the start"},
		"series ends too soon": {func(s *sim.Scenario) { s.Jobs[0].Duration = 2 * time.Hour }, "the run reaches"},
		"unnamed site": {func(s *sim.Scenario) {
			s.Jobs[0].Duration, s.Sites[0] = 2*time.Hour, site(t, "", 1, 500)
			s.Nodes[0].Site = s.Sites[0]
		}, "the run reaches"},
	} {
		s := good()
		c.change(s)
		strategy, err := strategy.New("energy")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sim.Run(context.Background(), s, name, strategy); err == nil ||
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "site ,") {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.want)
		}
	}
}

// drawScenario returns a random busy small cluster with series that outlast every run: 40 consecutive jobs of
// 20,000 s at half speed after a delay of twelve hours end after 40 days. Every site has a node with capacity for
// every job.
func drawScenario(t *rapid.T, intensity func(i int) float64) *sim.Scenario {
	values := make([]float64, 24*90)
	for i := range values {
		values[i] = intensity(i)
	}
	series, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	s := &sim.Scenario{Start: start, Policy: sched.Policy{Seed: rapid.Uint64Range(0, 2).Draw(t, "seed")}}
	for i := range rapid.IntRange(1, 2).Draw(t, "sites") {
		s.Sites = append(s.Sites, &sched.Site{
			Name: fmt.Sprint("s", i), PUE: 1 + float64(i)/10, Carbon: grid.Signal{Series: series},
		})
	}
	for i := range rapid.IntRange(len(s.Sites), 5).Draw(t, "nodes") { // at least one per site
		idle := energy.Watts(rapid.IntRange(20, 150).Draw(t, "idle"))
		at := rapid.SampledFrom(s.Sites).Draw(t, "site")
		if i < len(s.Sites) {
			at = s.Sites[i]
		}
		n := node(fmt.Sprint("n", i), at,
			rapid.Int64Range(4, 16).Draw(t, "cores"),
			&energy.Profile{Idle: idle, Max: idle * 3, Sleep: idle / 10, WakeUp: 1000})
		n.Speed = rapid.SampledFrom([]float64{0, 1, 0.5, 2, 1.7}).Draw(t, "speed")
		n.Benchmarks = map[string]energy.Benchmark{"training": {
			Rate:  rapid.Float64Range(1, 9).Draw(t, "rate"),
			Power: 2 * idle, Idle: idle,
		}}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range rapid.IntRange(1, 40).Draw(t, "jobs") {
		s.Jobs = append(s.Jobs, job(fmt.Sprint("j", i),
			time.Duration(rapid.IntRange(0, 36*3600).Draw(t, "submit"))*time.Second,
			time.Duration(rapid.IntRange(1, 20000).Draw(t, "duration"))*time.Second,
			rapid.Int64Range(1, 4).Draw(t, "request"),
			time.Duration(rapid.IntRange(0, 12).Draw(t, "delay"))*time.Hour))
		s.Jobs[i].Class = "training"
		s.Jobs[i].Limits = sched.Limits{
			Carbon:     grid.Intensity(rapid.IntRange(0, 500).Draw(t, "limit")),
			Percentile: rapid.Float64Range(0, 0.9).Draw(t, "share"),
		}
	}
	return s
}

// Under any strategy, every job runs once and for its run time on a node with sufficient capacity, and not before
// its submission and release. Energy equals the sum of the power of the nodes over fine time steps.
func TestRunKeepsItsInvariants(t *testing.T) {
	wheres, whens := strategy.Names()
	wheres = append(wheres, strategy.Clusters()...)
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t, func(i int) float64 { return 300 + 200*math.Sin(float64(i)/24*2*math.Pi) })
		name := rapid.SampledFrom(wheres).Draw(t, "where") + "+" + rapid.SampledFrom(whens).Draw(t, "when")
		strategy, err := strategy.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), s, name, strategy)
		if err != nil {
			t.Fatal(err)
		}
		type change struct {
			at   time.Time
			node string
			by   int64
		}
		var changes []change
		for i, o := range r.Outcomes {
			j := &s.Jobs[i]
			on := slices.IndexFunc(s.Nodes, func(n sched.Node) bool { return n.Name == o.Placed.Node })
			if on < 0 || o.Finish.Sub(o.Start) != s.Nodes[on].Runtime(j) || o.Start.Before(o.Released) ||
				o.Released.Before(j.Submitted) {
				t.Fatalf("%s: unexpected outcome of job %s: %+v", name, j.ID, o)
			}
			if o.Released.After(j.LatestStart()) {
				t.Fatalf("%s: job %s was released at %v, after its latest start at %v", name, j.ID, o.Released,
					j.LatestStart())
			}
			changes = append(changes, change{o.Start, o.Placed.Node, j.Request.MilliCPU},
				change{o.Finish, o.Placed.Node, -j.Request.MilliCPU})
		}
		slices.SortFunc(changes, func(a, b change) int {
			if c := a.at.Compare(b.at); c != 0 {
				return c
			}
			return int(a.by - b.by)
		})
		var sum energy.Joules
		for k := range s.Nodes {
			n := &s.Nodes[k]
			var used, jobs int64
			since := s.Start
			draw := func(until time.Time) {
				power := n.Profile.Sleep
				if jobs > 0 {
					power = n.Profile.Power(float64(used) / float64(n.Capacity.MilliCPU))
				}
				sum += energy.Joules(n.Site.PUE) * power.For(until.Sub(since))
				since = until
			}
			for i, c := range changes {
				if c.node != n.Name {
					continue
				}
				draw(c.at)
				used += c.by
				if used < 0 || used > n.Capacity.MilliCPU {
					t.Fatalf("%s: node %s uses %d of %d millicores at %v", name, n.Name, used, n.Capacity.MilliCPU, c.at)
				}
				if c.by > 0 {
					if jobs == 0 {
						sum += energy.Joules(n.Site.PUE) * n.Profile.WakeUp
					}
					jobs++
				} else {
					jobs--
				}
				_ = i
			}
			draw(r.End)
		}
		if math.Abs(float64(sum-r.Energy)) > 1e-6*float64(sum) {
			t.Fatalf("%s: accounted energy = %v, want %v", name, r.Energy, sum)
		}
	})
}

// Runs of the same scenario give identical results.
func TestRunIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t, func(i int) float64 { return float64(i%24) * 30 })
		for _, name := range []string{"least-allocated", "carbon+window", "round-robin"} {
			strategy, err := strategy.New(name)
			if err != nil {
				t.Fatal(err)
			}
			var results [2]*sim.Result
			for i := range results {
				if results[i], err = sim.Run(context.Background(), s, name, strategy); err != nil {
					t.Fatal(err)
				}
			}
			ignore := cmp.Options{
				cmpopts.IgnoreUnexported(sim.Result{}), cmpopts.IgnoreFields(sim.Result{}, "Elapsed", "Scenario"),
			}
			if diff := cmp.Diff(results[0], results[1], ignore); diff != "" {
				t.Fatalf("%s: two runs of the same scenario differ:\n%s", name, diff)
			}
		}
	})
}

// A replay of the decisions of a run results in the same accounting.
func TestReplayAgreesWithRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t, func(i int) float64 { return float64(i%24) * 30 })
		s.Sleep = sim.SleepRules{Policy: sleep.DefaultPolicy(), BootFailures: 0.3}
		for i := range s.Nodes {
			if rapid.Bool().Draw(t, "boots") {
				s.Nodes[i].Profile = booting
			}
		}
		strategy, err := strategy.New("carbon+window")
		if err != nil {
			t.Fatal(err)
		}
		want, err := sim.Run(context.Background(), s, "carbon+window", strategy)
		if err != nil {
			t.Fatal(err)
		}
		var placements []sim.Placement
		for _, o := range want.Outcomes {
			placements = append(placements, sim.Placement{
				Job: o.Job, Node: o.Placed.Node, Released: o.Released, Start: o.Start, Finish: o.Finish,
			})
		}
		got, err := sim.Replay(s, "replay", placements, want.Power)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.AccountUntil(want.Accounted); err != nil {
			t.Fatal(err)
		}
		if got.Sleep != want.Sleep {
			t.Fatalf("sleep statistics of the replay = %+v, want %+v", got.Sleep, want.Sleep)
		}
		if math.Abs(float64(got.Energy-want.Energy)) > 1e-6*float64(want.Energy) ||
			math.Abs(float64(got.Carbon-want.Carbon)) > 1e-6*float64(want.Carbon) {
			t.Fatalf("replay accounts %v and %v, want %v and %v as in the run", got.Energy, got.Carbon, want.Energy, want.Carbon)
		}
	})
}

// A strategy that holds jobs is not charged for more hours of empty nodes than one that does not.
func TestAlign(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300, Sleep: 100}
	home := site(t, "home", 1, 500, 500, 500, 100, 500, 500)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, p)},
		Jobs: []sched.Job{job("a", 0, time.Hour, 10, 3*time.Hour)},
	}
	at, later := run(t, s, "energy"), run(t, s, "energy+window")
	if at.Energy == later.Energy {
		t.Fatal("expected different energies before alignment")
	}
	end, err := sim.Align(at, later)
	if err != nil {
		t.Fatal(err)
	}
	if at.Energy != later.Energy || !end.Equal(start.Add(4*time.Hour)) {
		t.Errorf("unexpected result of alignment to %v: %v and %v", end, at.Energy, later.Energy)
	}
	if want := energy.Grams(0.3*500 + 0.1*500*2 + 0.1*100); math.Abs(float64(at.Carbon-want)) > 1e-9 {
		t.Errorf("emissions = %v, want %v", at.Carbon, want)
	}
}

func TestRunStopsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := bench(t, 10, 10_000)
	strategy, err := strategy.New("energy")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(ctx, s, "energy", strategy); err == nil {
		t.Error("Run() with a cancelled context = nil, want an error")
	}
}

// patient is a strategy that plans a queue until it is stopped.
type patient struct{ planning chan struct{} }

func (patient) Batches() bool { return true }

func (p patient) Plan(s *sched.Snapshot) sched.Plan { return make(sched.Plan, len(s.Queue)) }

func (p patient) PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality) {
	close(p.planning)
	for !stop() {
		runtime.Gosched()
	}
	return p.Plan(s), strategy.Optimality{}
}

// Cancelling the context stops planning.
func TestPlansStopWhenTold(t *testing.T) {
	s := bench(t, 10, 100)
	for i := range s.Jobs {
		s.Jobs[i].Submitted = s.Start
	}
	ctx, cancel := context.WithCancel(t.Context())
	strategy := patient{planning: make(chan struct{})}
	go func() {
		<-strategy.planning
		cancel()
	}()
	if _, err := sim.Run(ctx, s, "patient", strategy); !errors.Is(err, context.Canceled) {
		t.Errorf("unexpected error after cancellation: %v", err)
	}
}
