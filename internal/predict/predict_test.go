package predict_test

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var t0 = time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC)

type running struct {
	job sched.Job
	ran time.Duration
}

func stillRunning(all ...running) iter.Seq2[*sched.Job, time.Duration] {
	return func(yield func(*sched.Job, time.Duration) bool) {
		for i := range all {
			if !yield(&all[i].job, all[i].ran) {
				return
			}
		}
	}
}

// survivalByHand computes the documented estimate for one class.
func survivalByHand(ended, going []time.Duration, upTo time.Duration) float64 {
	const step, n0 = 3 * time.Minute, 5.0
	prior := func(d time.Duration) float64 {
		return min(1, max(0, 1-math.Log(d.Minutes())/math.Log(72*60)))
	}
	within := func(all []time.Duration, b int) (n float64) {
		for _, d := range all {
			if int(d/step) == b {
				n++
			}
		}
		return n
	}
	s, risk := 1.0, float64(len(ended)+len(going))
	for b := range int(upTo / step) {
		e, c := within(ended, b), within(going, b)
		p, next := prior(time.Duration(b)*step), prior(time.Duration(b+1)*step)
		s *= 1 - (e+n0*(p-next))/(risk-c/2+n0*p)
		risk -= e + c
	}
	return s
}

func TestSurvival(t *testing.T) {
	ended := []time.Duration{2 * time.Minute, 10 * time.Minute, 10 * time.Minute, time.Hour, 30 * time.Hour}
	going := []time.Duration{0, 7 * time.Minute, 3 * time.Hour, 40 * time.Hour}
	s := predict.NewSurvival()
	job := sched.Job{Queue: "short"}
	for _, d := range ended {
		s.Ended(&job, d)
	}
	before := job
	s.Expect(&before)
	var all []running
	for _, d := range going {
		all = append(all, running{job, d})
	}
	s.Refresh(t0, stillRunning(all...))
	s.Expect(&job)
	for _, at := range []time.Duration{
		3 * time.Minute, 12 * time.Minute, time.Hour, 5 * time.Hour, 39 * time.Hour, 60 * time.Hour,
	} {
		if got, want := job.Runtimes.Longer(at), survivalByHand(ended, going, at); math.Abs(got-want) > 1e-12 {
			t.Errorf("fraction of jobs running longer than %[2]v = %[1]v, want %[3]v", got, at, want)
		}
	}
	if job.Duration != job.Runtimes.Mean() || job.Duration < time.Hour {
		t.Errorf("unexpected expected run time: %v", job.Duration)
	}
	other := sched.Job{Queue: "long"}
	s.Expect(&other)
	if before.Runtimes != other.Runtimes || before.Runtimes == job.Runtimes {
		t.Error("finished jobs must take effect at the next Refresh, and only for their own class")
	}
	again := sched.Job{Queue: "short"}
	if s.Expect(&again); again.Runtimes != job.Runtimes {
		t.Error("two jobs of a class do not share their run times")
	}
	s.Refresh(t0.Add(time.Hour), stillRunning())
	s.Expect(&again)
	if got, want := again.Runtimes.Longer(5*time.Hour),
		survivalByHand(ended, nil, 5*time.Hour); math.Abs(got-want) > 1e-12 {
		t.Errorf("without running jobs, the fraction running longer than 5 h = %v, want %v", got, want)
	}
}

// TestSurvivalConverges checks that the estimate converges to the true distribution with and without censored jobs,
// and that censored jobs never decrease it.
func TestSurvivalConverges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s, job := predict.NewSurvival(), sched.Job{}
	var all []running
	for range 4000 {
		length, cut := time.Duration(random.ExpFloat64()*float64(4*time.Hour)),
			time.Duration(random.ExpFloat64()*float64(24*time.Hour))
		if length <= cut {
			s.Ended(&job, length)
		} else {
			all = append(all, running{job, cut})
		}
	}
	s.Refresh(t0, stillRunning(all...))
	s.Expect(&job)
	if got := job.Duration.Hours(); math.Abs(got-4) > 0.25 {
		t.Errorf("expected run time with a mean of 4 h and one sixth of censored jobs = %.2f h", got)
	}
	finished := predict.NewSurvival()
	finished.Ended(&job, time.Hour)
	finished.Refresh(t0, stillRunning())
	alone := sched.Job{}
	finished.Expect(&alone)
	finished.Refresh(t0, stillRunning(running{sched.Job{}, 100 * time.Hour}))
	with := sched.Job{}
	if finished.Expect(&with); with.Duration <= alone.Duration {
		t.Errorf("run time with a job running for 100 h = %v, want more than %v", with.Duration, alone.Duration)
	}
}

func TestMean(t *testing.T) {
	m := predict.NewMean()
	small, large := sched.Job{Request: sched.Resources{MilliCPU: 1000}},
		sched.Job{Request: sched.Resources{MilliCPU: 8000}}
	expect := func(j sched.Job, want float64) {
		t.Helper()
		if m.Expect(&j); math.Abs(j.Duration.Seconds()-want) > 1e-6 || j.Runtimes != nil {
			t.Errorf("expected run time of %v = %v s, want %v s", j.Request, j.Duration.Seconds(), want)
		}
	}
	expect(small, 300)
	m.Ended(&small, 100*time.Second)
	m.Ended(&small, 200*time.Second)
	g := (300 + 5*300.0) / (2 + 5)
	expect(small, (300+2*g)/(2+2))
	expect(large, g)
	m.Refresh(t0, stillRunning(running{large, 1000 * time.Second}, running{small, 0}))
	g = (1300 + 5*300.0) / (2 + 5)
	expect(small, (300+2*g)/(2+2))
	expect(large, (1000+2*g)/(0+2))
	m.Refresh(t0, stillRunning())
	m.Ended(&large, 1200*time.Second)
	g = (1500 + 5*300.0) / (3 + 5)
	expect(large, (1200+2*g)/(1+2))
}

func TestBaselines(t *testing.T) {
	ann, bob := sched.Job{Owner: "ann", Queue: "a"}, sched.Job{Owner: "bob", Queue: "b"}
	for name, c := range map[string]struct {
		learner  predict.Learner
		ann, bob float64 // bob has no finished jobs
	}{
		"last-2":     {predict.NewLastTwo(), 250, (600 + 1500) / 8.0},
		"EWMA":       {predict.NewMoving(0.5), 225, (600 + 1500) / 8.0},
		"mean":       {predict.NewAverage(), 200, 200},
		"queue mean": {predict.NewQueueAverage(), 200, (600 + 1500) / 8.0},
	} {
		for _, s := range []time.Duration{100, 200, 300} {
			c.learner.Ended(&ann, s*time.Second)
		}
		for _, j := range []struct {
			job  sched.Job
			want float64
		}{{ann, c.ann}, {bob, c.bob}} {
			c.learner.Expect(&j.job)
			if got := j.job.Duration.Seconds(); math.Abs(got-j.want) > 1e-6 {
				t.Errorf("%s: run time of a job of %[3]s = %[2]v s, want %[4]v s", name, got, j.job.Owner, j.want)
			}
		}
	}
}

// manyUsers returns jobs of users with different run times and a known variation.
func manyUsers(seed uint64, n int) []sched.Job {
	random := rand.New(rand.NewPCG(seed, 0))
	jobs := make([]sched.Job, n)
	for i := range jobs {
		user := random.IntN(20)
		scale := math.Exp(float64(user)/3) * 60
		jobs[i] = sched.Job{
			ID: strconv.Itoa(i), Owner: fmt.Sprint("user-", user),
			Submitted: t0.Add(time.Duration(i) * 10 * time.Minute),
			Duration:  time.Duration(scale * math.Exp(0.8*random.NormFloat64()) * float64(time.Second)),
			Request:   sched.Resources{MilliCPU: int64(1+user%4) * 1000},
		}
	}
	return jobs
}

func TestGroupsBeatLastTwo(t *testing.T) {
	jobs := manyUsers(1, 2000)
	groups := predict.Backtest(jobs, predict.NewGroups(), quantiles, 500)
	last := predict.Backtest(jobs, predict.NewLastTwo(), quantiles, 500)
	if groups.MeanPinball() > 0.8*last.MeanPinball() {
		t.Errorf("pinball loss = %.0f s, last-2 = %.0f s, want 20 %% less", groups.MeanPinball(), last.MeanPinball())
	}
	for k, p := range quantiles {
		if math.Abs(groups.Coverage[k]-p) > 0.025 {
			t.Errorf("%.1f %% of the jobs finished within the quantile of %.0f %%", 100*groups.Coverage[k], 100*p)
		}
	}
	if again := predict.Backtest(jobs, predict.NewGroups(), quantiles, 500); !reflect.DeepEqual(again, groups) {
		t.Errorf("scores differ for the same jobs: %+v and %+v", again, groups)
	}
}

// TestGroupsShrink checks that the prediction for a group with few observations is close to the wider group, and
// with many observations to its own run times.
func TestGroupsShrink(t *testing.T) {
	g := predict.NewGroups()
	ann, bob := sched.Job{ID: "1", Owner: "ann"}, sched.Job{ID: "2", Owner: "bob"}
	for range 200 {
		g.Ended(&ann, time.Hour)
	}
	if stranger := g.Quantile(&bob, 0.5); stranger < 50*time.Minute || stranger > 70*time.Minute {
		t.Errorf("median of an unknown owner = %v, want about the hour of all other jobs", stranger)
	}
	for range 50 {
		g.Ended(&bob, time.Minute)
	}
	g.Refresh(t0, stillRunning())
	g.Expect(&bob)
	if own := g.Quantile(&bob, 0.5); own > 2*time.Minute {
		t.Errorf("median after 50 jobs of one minute = %v", own)
	}
	if g.Expect(&ann); ann.Duration < bob.Duration {
		t.Errorf("expected run time of long jobs = %v, of short jobs = %v", ann.Duration, bob.Duration)
	}
}

// TestGroupsAreDistributions checks that quantiles increase with their probability and match the run-time
// distribution.
func TestGroupsAreDistributions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := predict.NewGroups()
		owners := rapid.SampledFrom([]string{"", "ann", "bob"})
		for i := range rapid.IntRange(0, 60).Draw(t, "jobs") {
			j := sched.Job{
				ID: strconv.Itoa(i), Owner: owners.Draw(t, "owner"),
				Queue: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"),
			}
			if rapid.Bool().Draw(t, "asked") {
				g.Expect(&j)
			}
			g.Ended(&j, time.Duration(rapid.Float64Range(0, 1e6).Draw(t, "ran")*float64(time.Second)))
		}
		j := sched.Job{Owner: owners.Draw(t, "owner")}
		g.Expect(&j)
		last := time.Duration(0)
		for _, p := range []float64{0, 0.1, 0.5, 0.9, 0.99, 1} {
			q := g.Quantile(&j, p)
			if q < last {
				t.Fatalf("quantile of %v = %v, but a lower quantile = %v", p, q, last)
			}
			last = q
			if longer := j.Runtimes.Longer(q); q > time.Hour && q < 129*time.Hour && math.Abs(1-longer-p) > 0.1 {
				t.Fatalf("fraction %v of jobs runs longer than the quantile of %v, %v", longer, p, q)
			}
		}
	})
}

// witness records all predictions of a learner for one job.
type witness struct {
	predict.Learner
	of   string
	said []time.Duration
}

func (w *witness) Expect(j *sched.Job) {
	w.Learner.Expect(j)
	if j.ID != w.of {
		return
	}
	w.said = append(w.said, j.Duration)
	if q, ok := w.Learner.(predict.Quantiler); ok {
		for _, p := range quantiles {
			w.said = append(w.said, q.Quantile(j, p))
		}
	}
	if j.Runtimes != nil {
		for ran := time.Duration(0); ran < 130*time.Hour; ran += time.Hour {
			w.said = append(w.said, time.Duration(j.Runtimes.Executed(ran)*float64(time.Second)))
		}
	}
}

// cheat uses the true run time of the job itself, or of another job that is still running.
type cheat struct {
	predict.Learner
	length map[string]time.Duration
	peeks  string // job with the run time to use; empty means the job itself
}

func (c cheat) Expect(j *sched.Job) {
	c.Learner.Expect(j)
	name := j.ID
	if c.peeks != "" {
		name = c.peeks
	}
	j.Duration = c.length[name]
}

// heedless returns a job unchanged.
type heedless struct{ predict.Learner }

func (heedless) Expect(*sched.Job) {}

// TestLearnersKnowOnlyThePast checks that the prediction for a job does not depend on its run time, or on the run
// times of jobs that are unfinished at its submission.
func TestLearnersKnowOnlyThePast(t *testing.T) {
	const asked = 200
	jobs := manyUsers(2, asked+1)
	changed, running := slices.Clone(jobs), ""
	for i := range changed {
		if changed[i].Submitted.Add(changed[i].Duration).After(jobs[asked].Submitted) {
			changed[i].Duration += 9 * time.Hour
			if running == "" {
				running = changed[i].ID
			}
		}
	}
	lookAhead := func(build func(of []sched.Job) predict.Learner) bool {
		var said [2][]time.Duration
		for k, history := range [][]sched.Job{jobs, changed} {
			w := &witness{Learner: build(history), of: jobs[asked].ID}
			predict.Backtest(history, w, quantiles, asked)
			if said[k] = w.said; len(w.said) == 0 {
				t.Fatal("no prediction for the job under test")
			}
		}
		return !slices.Equal(said[0], said[1])
	}
	lengths := func(of []sched.Job) map[string]time.Duration {
		all := map[string]time.Duration{}
		for i := range of {
			all[of[i].ID] = of[i].Duration
		}
		return all
	}
	honest := append(learners(), namedLearner{"siblings", func() predict.Learner { return predict.NewSiblings() }},
		namedLearner{"unchanged", func() predict.Learner { return heedless{predict.NewAverage()} }})
	for _, l := range honest {
		if lookAhead(func([]sched.Job) predict.Learner { return l.new() }) {
			t.Errorf("%s: prediction depends on the future", l.name)
		}
	}
	for _, at := range []string{"", running} {
		if !lookAhead(func(of []sched.Job) predict.Learner { return cheat{predict.NewAverage(), lengths(of), at} }) {
			t.Errorf("learner that uses the run time of job %q was not detected", at)
		}
	}
}

func TestPower(t *testing.T) {
	p := predict.NewPower()
	ann := sched.Job{Owner: "ann", Request: sched.Resources{MilliCPU: 2000}}
	if p.Expect(&ann); ann.HasExpected {
		t.Error("unexpected prediction without measurements")
	}
	random := rand.New(rand.NewPCG(3, 3))
	for i := range 100 {
		p.Measured(&ann, energy.Watts(30+2*random.NormFloat64()), 5*time.Minute, t0.Add(time.Duration(i)*time.Hour/2))
	}
	if p.Expect(&ann); !ann.HasExpected || math.Abs(float64(ann.Expected)-30) > 1 {
		t.Errorf("expected power = %v W, known = %v, want about 30 W", ann.Expected, ann.HasExpected)
	}
	big := sched.Job{Owner: "bob", Request: sched.Resources{MilliCPU: 8000}}
	if p.Expect(&big); !big.HasExpected || math.Abs(float64(big.Expected)-120) > 6 {
		t.Errorf("expected power of a larger job of another owner = %v W, known = %v, want about 120 W", big.Expected,
			big.HasExpected)
	}
	p.Measured(&big, energy.Watts(math.NaN()), time.Minute, t0.Add(60*time.Hour))
	if p.Expect(&big); math.IsNaN(float64(big.Expected)) {
		t.Error("one invalid measurement affects the prediction")
	}
}

// TestPublishedTraceIsPredicted is the short version of the table in docs/measurements/prediction.md.
func TestPublishedTraceIsPredicted(t *testing.T) {
	jobs := published(t, "swf/hpc2n_first3171.swf.gz")
	groups := predict.Backtest(jobs, predict.NewGroups(), quantiles, 100)
	last := predict.Backtest(jobs, predict.NewLastTwo(), quantiles, 100)
	if groups.MeanPinball() > 0.8*last.MeanPinball() || groups.Accuracy < last.Accuracy {
		t.Errorf("pinball loss = %.0f s with an accuracy of %.3f, but %.0f s and %.3f for last-2", groups.MeanPinball(),
			groups.Accuracy, last.MeanPinball(), last.Accuracy)
	}
	if c := groups.Coverage[4]; c < 0.87 || c > 0.92 {
		t.Errorf("%.1f %% of the jobs finished within the quantile of 90 %%", 100*c)
	}
}
