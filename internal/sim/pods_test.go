package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// measured is a measurement reported to a learner.
type measured struct {
	ID        string
	Watts     float64
	Over, End time.Duration // since the start
}

// listener is a learner of power that records its measurements. It expects a power of as many watts as it has
// measurements.
type listener struct {
	t     *testing.T
	heard []measured
}

func (l *listener) Measured(j *sched.Job, drew energy.Watts, over time.Duration, end time.Time) {
	if j.Duration != 0 || j.Runtimes != nil {
		l.t.Errorf("the learner is given the duration of job %s: %v", j.ID, j.Duration)
	}
	l.heard = append(l.heard, measured{j.ID, float64(drew), over, end.Sub(start)})
}

func (l *listener) Expect(j *sched.Job) {
	if len(l.heard) > 0 {
		j.Expected, j.HasExpected = energy.Watts(len(l.heard)), true
	}
}

func (l *listener) scenario(s *sim.Scenario) { s.Power = func() predict.PowerLearner { return l } }

// Two jobs on a node of 10 cores with 60 to 160 W, computed by hand: "a" uses 4 of 4 cores from 0 to 60 s, and "b"
// uses 1 of 4 from 20 s on for 60 s. Jobs are charged for the CPU power beyond idle by CPU time, i.e. 10 W per core
// if power is linear.
func TestWhatJobsAreMeasuredToDraw(t *testing.T) {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, c := range map[string]struct {
		exponent float64
		live     sim.Live
		gpu      int64
		want     []measured
	}{
		"no meters: only ended jobs": {1, sim.Live{Off: true}, 0, []measured{
			{"a", 40, seconds(60), seconds(60)}, {"b", 10, seconds(60), seconds(80)},
		}},
		"every half minute, when something happens": {1, sim.Live{Period: seconds(30)}, 0, []measured{
			{"a", 40, seconds(40), seconds(40)},
			{"b", 10, seconds(20), seconds(40)}, // "c" arrives
			{"a", 40, seconds(20), seconds(60)},
			{"b", 10, seconds(20), seconds(60)},
			{"b", 10, seconds(20), seconds(80)},
		}},
		"GPUs on top": {1, sim.Live{Off: true}, 1, []measured{
			{"a", 40 + 200, seconds(60), seconds(60)}, {"b", 10 + 200, seconds(60), seconds(80)},
		}},
		// 4 of 10 cores draw 16 W, 5 draw 25 W, divided 4 to 1 between the jobs, and 1 draws 1 W.
		"power that is not linear": {2, sim.Live{Off: true}, 0, []measured{
			{"a", (20*16 + 40*20) / 60., seconds(60), seconds(60)},
			{"b", (40*5 + 20*1) / 60., seconds(60), seconds(80)},
		}},
	} {
		home := site(t, "home", 1.5, 300)
		n := node("n", home, 10, &energy.Profile{
			Idle: 60, Max: 160, Sleep: 5, WakeUp: 1000, Exponent: c.exponent, GPUIdle: 50, GPUMax: 250,
		})
		n.Capacity.GPU, n.Free.GPU = 2, 2
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{n}, Live: c.live, Use: []float64{1, 0.25, 0},
			Jobs: []sched.Job{
				job("a", 0, seconds(60), 4, 0), job("b", seconds(20), seconds(60), 4, 0),
				job("c", seconds(40), seconds(1), 9, 0),
			},
		}
		s.Jobs[0].Request.GPU, s.Jobs[1].Request.GPU = c.gpu, c.gpu
		s.Jobs[2].Selector = map[string]string{"of": "no node"}
		l := &listener{t: t}
		l.scenario(s)
		run(t, s, "exec")
		if diff := cmp.Diff(c.want, l.heard, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s: unexpected measurements (-want +got):\n%s", name, diff)
		}
	}
}

// A GPU that serves inference draws power according to its class of work, also in the readings of a job's meter.
func TestMetersKnowClassesOfGPUWork(t *testing.T) {
	home := site(t, "home", 1, 300)
	n := node("n", home, 10, &energy.Profile{
		Idle: 60, Max: 160, GPUIdle: 50, GPUMax: 250, GPUClasses: map[string]float64{"inference": 0.25},
	})
	n.Capacity.GPU, n.Free.GPU = 2, 2
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{n}, Live: sim.Live{Off: true},
		Jobs: []sched.Job{job("a", 0, time.Minute, 4, 0)},
	}
	s.Jobs[0].Request.GPU, s.Jobs[0].GPUClass = 1, "inference"
	l := &listener{t: t}
	l.scenario(s)
	run(t, s, "exec")
	want := []measured{{"a", 40 + 0.25*200, time.Minute, time.Minute}}
	if diff := cmp.Diff(want, l.heard, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("unexpected result (-want +got):\n%s", diff)
	}
}

// Long-running jobs are read at increasing intervals of up to an hour.
func TestLongJobsAreReadLessOften(t *testing.T) {
	home := site(t, "home", 1, 300, 300, 300, 300, 300, 300)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10,
			&energy.Profile{Idle: 60, Max: 160})},
		Live: sim.Live{Period: 15 * time.Second}, Jobs: []sched.Job{job("long", 0, 5*time.Hour, 1, 0)},
	}
	for i := range 5 * 60 { // there is an event every minute
		s.Jobs = append(s.Jobs, job(fmt.Sprint("j", i), time.Duration(i)*time.Minute, time.Second, 1, 0))
	}
	l := &listener{t: t}
	l.scenario(s)
	run(t, s, "exec")
	var ends []time.Duration
	for _, m := range l.heard {
		if m.ID == "long" {
			ends = append(ends, m.End)
		}
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 300}
	for i := range want {
		want[i] *= time.Minute
	}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Errorf("unexpected result (-want +got):\n%s", diff)
	}
}

// The power of a job depends on its CPU usage rather than on its request, in the accounting and in meter readings.
func TestJobsThatUseLess(t *testing.T) {
	home := site(t, "home", 1, 300)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10,
			&energy.Profile{Idle: 60, Max: 160})},
		Jobs: []sched.Job{job("a", 0, time.Hour, 10, 0)}, Use: []float64{0.3},
	}
	if got := run(t, s, "energy").Energy.KWh(); math.Abs(got-0.09) > 1e-12 {
		t.Errorf("energy = %v kWh, want 90 W for an hour", got)
	}
	s.Jobs = append(s.Jobs, job("b", 30*time.Minute, time.Minute, 1, 0))
	s.Jobs[0].Request.MilliCPU, s.Use = 5000, []float64{0.3, 1}
	if n := watch(t, s).seen[1][0]; n.Live != 75 {
		t.Errorf("meter reading = %v W, want 75", n.Live)
	}
	s.Use = []float64{1, 1}
	all := run(t, s, "energy").Energy
	if s.Use = nil; run(t, s, "energy").Energy != all {
		t.Error("energy of full CPU use differs from the energy without a CPU use")
	}
	for _, wrong := range [][]float64{{1}, {1, 1.5}, {1, math.NaN()}, {-1, 1}} {
		if s.Use = wrong; s.Validate() == nil {
			t.Errorf("Validate() with a use of %v = nil, want an error", wrong)
		}
	}
}

// Strategies get the measurements up to now, and none before the first.
func TestStrategiesAreToldWhatJobsDraw(t *testing.T) {
	home := site(t, "home", 1, 300)
	for _, batch := range []bool{false, true} {
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{home},
			Nodes: []sched.Node{node("n", home, 10, &energy.Profile{Idle: 60, Max: 160})},
			Jobs: []sched.Job{
				job("a", 0, time.Minute, 1, 0), job("b", 30*time.Second, time.Minute, 1, 0),
				job("c", time.Minute, time.Minute, 1, 0),
			},
			Live: sim.Live{Off: true},
		}
		if batch {
			s.Queue.Window = 9
		}
		(&listener{t: t}).scenario(s)
		reported := map[string]float64{}
		play(t, s, &scripted{seen: func(s *sched.Snapshot) {
			for i := range s.Queue {
				if reported[s.Queue[i].ID] = -1; s.Queue[i].HasExpected {
					reported[s.Queue[i].ID] = float64(s.Queue[i].Expected)
				}
			}
		}})
		if diff := cmp.Diff(map[string]float64{"a": -1, "b": -1, "c": 1}, reported); diff != "" {
			t.Errorf("batch %v: unexpected expectations (-want +got):\n%s", batch, diff)
		}
	}
}

// mixed returns a scenario with jobs of two owners with equal requests: the jobs of "hot" use a whole core, and the
// jobs of "cold" a tenth. A few jobs of each arrive first, followed by bursts in which they alternate.
func mixed(t testing.TB) *sim.Scenario {
	t.Helper()
	home := site(t, "home", 1, 300, 300, 300, 300)
	p := &energy.Profile{Idle: 60, Max: 160, Sleep: 60, Exponent: 2}
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Live: sim.Live{Period: 15 * time.Second, MaxAge: 45 * time.Second},
	}
	for i := range 2 {
		s.Nodes = append(s.Nodes, node(fmt.Sprint("n", i), home, 12, p))
	}
	add := func(at time.Duration) {
		j := job(fmt.Sprintf("%03d", len(s.Jobs)), at, 5*time.Minute, 1, 0)
		j.Owner = [2]string{"hot", "cold"}[len(s.Jobs)%2]
		s.Jobs, s.Use = append(s.Jobs, j), append(s.Use, [2]float64{1, 0.1}[len(s.Jobs)%2])
	}
	for i := range 6 {
		add(time.Duration(i) * 6 * time.Minute)
	}
	for burst := range 4 {
		for i := range 16 {
			add(time.Hour + time.Duration(burst)*20*time.Minute + time.Duration(i)*time.Millisecond)
		}
	}
	return s
}

// highest returns the maximum power of any node.
func highest(s *sim.Scenario, r *sim.Result) (most energy.Watts) {
	for at := start; at.Before(r.End); at = at.Add(10 * time.Second) {
		busy := map[string]float64{}
		for i := range r.Outcomes {
			if o := &r.Outcomes[i]; !at.Before(o.Start) && at.Before(o.Finish) {
				busy[o.Placed.Node] += s.Use[i]
			}
		}
		for i := range s.Nodes {
			n := &s.Nodes[i]
			most = max(most, n.Profile.Power(1000*busy[n.Name]/float64(n.Capacity.MilliCPU)))
		}
	}
	return most
}

// If jobs with equal requests draw different power, learnt power spreads them better: the maximum power of a node
// is lower, and with superlinear power less energy is used.
func TestLearntPowerPlacesBetter(t *testing.T) {
	s := mixed(t)
	plain := run(t, s, "exec")
	s.Power = func() predict.PowerLearner { return predict.NewPower() }
	learnt := run(t, s, "exec")
	before, after := highest(s, plain)-60, highest(s, learnt)-60
	if after > 0.5*before {
		t.Errorf("maximum power above idle = %v with learnt power, want at most half of %v", after, before)
	}
	dynamic := func(r *sim.Result) energy.Joules { return r.Energy - energy.Watts(120).For(r.End.Sub(start)) }
	if dynamic(learnt) > 0.8*dynamic(plain) {
		t.Errorf("energy above idle = %v with learnt power, want at most 80 %% of %v", dynamic(learnt), dynamic(plain))
	}
	if again := run(t, s, "exec"); again.Energy != learnt.Energy || !cmp.Equal(again.Outcomes, learnt.Outcomes) {
		t.Error("two runs of the same scenario differ")
	}
}

// The power of jobs does not affect earlier decisions: two scenarios in which jobs draw the same power until some
// time have the same decisions up to and including that time.
func TestPowerIsNotKnownBefore(t *testing.T) {
	at := time.Hour + 20*time.Minute // in the second burst
	results := map[float64]*sim.Result{}
	for _, later := range []float64{0, 1} {
		s := mixed(t)
		for i := range s.Jobs {
			if s.Jobs[i].Submitted.Sub(start) >= at {
				s.Use[i] = later
			}
		}
		s.Power = func() predict.PowerLearner { return predict.NewPower() }
		results[later] = run(t, s, "exec")
	}
	differ := false
	for i := range results[0].Outcomes {
		a, b := &results[0].Outcomes[i], &results[1].Outcomes[i]
		if a.Start.Sub(start) < at+15*time.Second { // until the meters are read
			if a.Placed.Node != b.Placed.Node {
				t.Errorf("job %d, started at %v, runs on %s or on %s depending on the power from %v on", i, a.Start,
					a.Placed.Node, b.Placed.Node, at)
			}
			continue
		}
		differ = differ || a.Placed.Node != b.Placed.Node
	}
	if !differ {
		t.Error("the power of jobs does not affect later decisions")
	}
}

// For jobs of unknown owners, the expected power is the nominal power until measurements exist, and then the mean
// power per core of other jobs.
func TestPowerOfUnknownOwners(t *testing.T) {
	s := mixed(t)
	s.Jobs, s.Use = s.Jobs[:4], s.Use[:4]
	stranger := job("stranger", 50*time.Minute, time.Minute, 3, 0)
	stranger.Owner = "nobody"
	first := stranger
	first.ID, first.Submitted, first.Owner = "first", start, "somebody"
	s.Jobs, s.Use = append(s.Jobs, stranger, first), append(s.Use, 1, 1)
	s.Power = func() predict.PowerLearner { return predict.NewPower() }
	reported := map[string]sched.Job{}
	play(t, s, &scripted{seen: func(s *sched.Snapshot) { reported[s.Queue[0].ID] = s.Queue[0] }})
	if j := reported["first"]; j.HasExpected {
		t.Errorf("Expected = %v before the first measurement, want none", j.Expected)
	}
	// One core draws 100·(1/12)² = 0.7 W beyond idle, and a tenth of a core almost nothing, both less than the
	// nominal 12 W.
	if j := reported["stranger"]; !j.HasExpected || j.Expected <= 0 || j.Expected >= j.Nominal() {
		t.Errorf("unexpected power of a job of an unknown owner: Expected = %v, HasExpected = %v", j.Expected, j.HasExpected)
	}
}
