package sim_test

import (
	"context"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// poison is the value of all times that must not be known yet.
const poison = 1e6

// guess has the current value and forecasts the value of an hour ago for all future times.
type guess struct {
	t     testing.TB
	truth *grid.Series
	asked []time.Time
}

func (g *guess) At(now time.Time) grid.Signal {
	g.t.Helper()
	g.asked = append(g.asked, now)
	from := now.Truncate(time.Hour)
	values := []float64{g.truth.At(now)}
	for len(values) < 48 {
		values = append(values, g.truth.At(now.Add(-time.Hour)))
	}
	series, err := grid.NewSeries(from, time.Hour, values)
	if err != nil {
		g.t.Fatal(err)
	}
	return grid.Signal{Series: series, AsOf: now}
}

// Strategies get the forecasts known at the time, at sites and at nodes, and the accountant uses the true values.
func TestForesight(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400, poison, poison, poison, poison)
	known := site(t, "known", 1, 100, 200, 300, 400, 500, 600)
	g := &guess{t: t, truth: home.Carbon.Series}
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home, known},
		Nodes:     []sched.Node{node("n", home, 10, p), node("o", known, 10, p)},
		Foresight: []sim.Foresight{g, nil},
		Jobs: []sched.Job{
			job("a", 10*time.Minute, time.Hour, 5, 0), job("b", 20*time.Minute, time.Minute, 1, 0),
			job("c", 65*time.Minute, time.Minute, 5, 0),
		},
	}
	r := play(t, s, &scripted{seen: func(s *sched.Snapshot) {
		carbon := s.Sites[0].Carbon.Series
		if carbon == home.Carbon.Series || s.Sites[1] != known {
			t.Error("the strategy is given the wrong series of a site")
		}
		if carbon.At(s.Now) != home.Carbon.Series.At(s.Now) {
			t.Errorf("at %v: unexpected current value %v", s.Now, carbon.At(s.Now))
		}
		for i := range carbon.Len() {
			if carbon.Value(i) == poison {
				t.Fatalf("at %v: the strategy is given future values", s.Now)
			}
		}
		for _, n := range s.Nodes {
			if n.Site != s.Sites[0] && n.Site != s.Sites[1] {
				t.Errorf("node %s belongs to a site that is not in the snapshot", n.Name)
			}
		}
	}})
	if want := []time.Time{start.Add(10 * time.Minute), start.Add(65 * time.Minute)}; !cmp.Equal(g.asked, want) {
		t.Errorf("foresight was queried at %v, want once an hour: %v", g.asked, want)
	}
	if got, want := float64(r.Carbon), 0.2*(50./60*500+10./60*400)+0.02*1./60*500+0.1*1./60*400; math.Abs(
		got-want) > 1e-9 {
		t.Errorf("emissions = %v g, want %v by the true intensity", got, want)
	}
	if s.Nodes[0].Site != home || s.Nodes[1].Site != known {
		t.Error("Run() modified the scenario")
	}
}

// No strategy uses unknown values: if futures differ after some time, decisions before that time are the same.
func TestDecisionsDoNotDependOnTheFuture(t *testing.T) {
	_, whens := strategy.Names()
	until := 30 * time.Hour
	load := func(future float64) *sim.Scenario {
		s := bench(t, 6, 60)
		values := make([]float64, 24*60)
		for i := range values {
			values[i] = 300 + 200*math.Sin(float64(i)/24*2*math.Pi)
			if time.Duration(i)*time.Hour >= until {
				values[i] = future
			}
		}
		series, err := grid.NewSeries(start, time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		s.Sites[0].Carbon.Series = series
		s.Foresight = []sim.Foresight{&guess{t: t, truth: series}}
		for i := range s.Jobs {
			s.Jobs[i].Interruptible, s.Jobs[i].AllowedDelay = i%2 == 0, 24*time.Hour
			s.Jobs[i].Limits.Carbon = 250
		}
		return s
	}
	for _, when := range whens {
		name := "energy+" + when
		one, other := run(t, load(1), name), run(t, load(900), name)
		for i := range one.Outcomes {
			a, b := &one.Outcomes[i], &other.Outcomes[i]
			before := func(at time.Time) bool { return at.Before(start.Add(until)) }
			if (before(a.Start) || before(b.Start)) && !a.Start.Equal(b.Start) {
				t.Errorf("%s: job %d starts at %v or at %v depending on the future after %v", name, i, a.Start, b.Start, until)
			}
			for k, w := range a.Runs {
				if before(w.Start) && (k >= len(b.Runs) || !b.Runs[k].Start.Equal(w.Start)) {
					t.Errorf("%s: job %d runs in %v or in %v depending on the future after %v", name, i, a.Runs, b.Runs, until)
					break
				}
			}
		}
	}
}

// notes is a learner that records its input.
type notes struct {
	t         *testing.T
	every     time.Duration
	refreshed []time.Duration
	elapsed   []map[string]time.Duration
	ended     map[string]time.Duration
}

func (n *notes) Every() time.Duration { return n.every }

func (n *notes) Refresh(now time.Time, unfinished iter.Seq2[*sched.Job, time.Duration]) {
	n.refreshed = append(n.refreshed, now.Sub(start))
	all := map[string]time.Duration{}
	for j, ran := range unfinished {
		n.blind(j)
		all[j.ID] = ran
	}
	n.elapsed = append(n.elapsed, all)
}

func (n *notes) Ended(j *sched.Job, ran time.Duration) {
	n.blind(j)
	n.ended[j.ID] = ran
}

func (n *notes) Expect(j *sched.Job) {
	n.blind(j)
	j.Duration = 42 * time.Minute
}

func (n *notes) blind(j *sched.Job) {
	n.t.Helper()
	if j.Duration != 0 || j.Runtimes != nil {
		n.t.Errorf("the learner is given the duration of job %s: %v", j.ID, j.Duration)
	}
}

type seer struct{ scripted }

func (*seer) Clairvoyant() bool { return true }

// The true length of a job is not revealed before the job has ended.
func TestLearner(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500, 400, 300, 200, 100, 50)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 4, p)},
		Jobs: []sched.Job{
			interruptible(job("a", 0, 2*time.Hour, 2, 5*time.Hour), 0), job("b", 10*time.Minute, 30*time.Minute, 2, 0),
			job("waits", 20*time.Minute, time.Hour, 2, 0), job("late", 4*time.Hour, time.Minute, 1, 0),
		},
	}
	var n *notes
	s.Learner = func() predict.Learner {
		n = &notes{t: t, every: time.Hour, ended: map[string]time.Duration{}}
		return n
	}
	asked := 0
	seen := func(s *sched.Snapshot) {
		asked++
		if got := s.Queue[0].Duration; got != 42*time.Minute {
			t.Errorf("at %v: the strategy is given a duration of job %s of %v", s.Now, s.Queue[0].ID, got)
		}
	}
	r := play(t, s, &scripted{hold: dirty(1), interrupts: true, seen: seen})
	if asked < 5 {
		t.Errorf("got %d decisions, want at least 5", asked)
	}
	for i, want := range []time.Duration{
		3 * time.Hour, 40 * time.Minute, 100 * time.Minute, 4*time.Hour + time.Minute,
	} {
		if got := r.Outcomes[i].Finish.Sub(start); got != want {
			t.Errorf("job %s finished after %v, want %v by its true length", s.Jobs[i].ID, got, want)
		}
	}
	if want := map[string]time.Duration{
		"a": 2 * time.Hour, "b": 30 * time.Minute, "waits": time.Hour, "late": time.Minute,
	}; !cmp.Equal(n.ended, want) {
		t.Errorf("Ended() calls = %v, want %v", n.ended, want)
	}
	// At 1:00, a has run for an hour and is then suspended; at 2:00 the value is unchanged.
	wantElapsed := []map[string]time.Duration{{}, {"a": time.Hour, "waits": 20 * time.Minute}, {"a": time.Hour}, {}, {}}
	if diff := cmp.Diff(wantElapsed, n.elapsed); diff != "" {
		t.Errorf("unexpected elapsed times at %v (-want +got):\n%s", n.refreshed, diff)
	}

	clairvoyant := &seer{scripted{seen: func(snapshot *sched.Snapshot) {
		if q := snapshot.Queue[0]; q.ID == "b" && q.Duration != 30*time.Minute {
			t.Errorf("the clairvoyant strategy is given a duration of b of %v", q.Duration)
		}
	}}}
	play(t, s, clairvoyant)
}

// A learner that requires updates at every change is updated whenever a job arrives or ends, before the next
// decision.
func TestLearnerOfEveryChange(t *testing.T) {
	p := &energy.Profile{Idle: 100, Max: 300}
	home := site(t, "home", 1, 500)
	n := &notes{t: t, ended: map[string]time.Duration{}}
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 4, p)},
		Learner: func() predict.Learner { return n },
		Jobs:    []sched.Job{job("a", 0, 10*time.Minute, 1, 0), job("b", 5*time.Minute, 10*time.Minute, 1, 0)},
	}
	if _, err := sim.Run(context.Background(), s, "x", &scripted{}); err != nil {
		t.Fatal(err)
	}
	want := []map[string]time.Duration{{}, {"a": 5 * time.Minute}, {"b": 5 * time.Minute}, {}}
	if diff := cmp.Diff(want, n.elapsed); diff != "" {
		t.Errorf("unexpected elapsed times at %v (-want +got):\n%s", n.refreshed, diff)
	}
}
