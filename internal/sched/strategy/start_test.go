package strategy_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

func TestEveryStrategyIsDescribed(t *testing.T) {
	wheres, whens := strategy.Names()
	for _, name := range slices.Concat(wheres, whens, []string{"cap"}) {
		if strategy.Describe(name) == "" {
			t.Errorf("strategy %s has no description", name)
		}
	}
	if text := strategy.Describe("best-effort"); text != "" {
		t.Errorf("Describe() of an unknown name = %q", text)
	}
	starting, suspending := strategy.Families()
	if got := len(starting) + len(suspending); got != len(whens) {
		t.Errorf("%d start rules belong to a family, want %d", got, len(whens))
	}
}

func TestFamilies(t *testing.T) {
	for name, want := range map[string]struct{ holds, interrupts, clairvoyant bool }{
		"now": {}, "window": {holds: true}, "carbon-time": {holds: true}, "rolling": {holds: true},
		"ecovisor": {true, true, false}, "residual": {true, true, false}, "wait-awhile": {true, true, true},
	} {
		g, err := strategy.New("energy+" + name)
		if err != nil {
			t.Fatal(err)
		}
		if g.Holds() != want.holds || g.Interrupts() != want.interrupts || g.Clairvoyant() != want.clairvoyant {
			t.Errorf("%s: Holds() = %v, Interrupts() = %v, Clairvoyant() = %v, want %v",
				name, g.Holds(), g.Interrupts(), g.Clairvoyant(), want)
		}
	}
}

// TestWhoMayBeKeptFromWorking checks that jobs without slack, released jobs and running jobs that are not
// interruptible are never held, and that the next decision is later than now and not later than the start of the
// window.
func TestWhoMayBeKeptFromWorking(t *testing.T) {
	_, suspending := strategy.Families()
	rapid.Check(t, func(t *rapid.T) {
		s, name := schedtest.DrawSnapshot(t, anyIntensity), rapid.SampledFrom(schedtest.Strategies).Draw(t, "strategy")
		for i := range s.Queue {
			schedtest.DrawLife(t, s, &s.Queue[i])
		}
		addPrices(t, s)
		for i, d := range plan(t, name, s) {
			j := &s.Queue[i]
			if !d.Again.IsZero() && (!d.Again.After(s.Now) || d.Held(s.Now) && d.Again.After(d.Window.Start)) {
				t.Fatalf("%s: next decision on job %s at %v, but now is %v and its window starts at %v",
					name, j.ID, d.Again, s.Now, d.Window.Start)
			}
			if j.Running && d.Node != "" {
				t.Fatalf("%s: running job %s is placed on %s", name, j.ID, d.Node)
			}
			if !d.Held(s.Now) {
				if !d.Again.IsZero() && !j.Interruptible {
					t.Fatalf("%s: job %s is not interruptible, but its next decision is at %v", name, j.ID, d.Again)
				}
				continue
			}
			switch {
			case j.Slack(s.Now) == 0, j.Released:
				t.Fatalf("%s: job %s is held with a slack of %v, released = %v", name, j.ID, j.Slack(s.Now), j.Released)
			case d.Window.Start.After(s.Now.Add(j.Slack(s.Now))):
				t.Fatalf("%s: job %s is held until %v with a slack of %v", name, j.ID, d.Window.Start, j.Slack(s.Now))
			case j.Running && (!j.Interruptible || !slices.Contains(suspending, strategy.When(name))):
				t.Fatalf("%s: job %s is suspended", name, j.ID)
			}
		}
	})
}

// life is the result of running one job with repeated decisions and an exact forecast.
type life struct {
	cost        float64 // integral of the intensity
	suspensions int
	finish      time.Time
}

// live simulates a job with a known length.
func live(t rapid.TB, when string, series *grid.Series, j sched.Job) (l life) {
	t.Helper()
	strategy, err := strategy.New("energy+" + when)
	if err != nil {
		t.Fatal(err)
	}
	s := &sched.Snapshot{Sites: []*sched.Site{{Name: "s", Carbon: grid.Signal{Series: series}}}}
	left, begun := j.Duration, false
	for s.Now = j.Submitted; ; {
		s.Queue = []sched.Job{j}
		d := strategy.Plan(s)[0]
		if d.Held(s.Now) {
			if j.Running {
				l.suspensions++
			}
			j.Running, s.Now = false, d.Window.Start
			if d.Again.IsZero() {
				j.Released = true
			} else {
				s.Now = d.Again
			}
			continue
		}
		if begun && !j.Running {
			left += j.RestartCost
		}
		until := s.Now.Add(left)
		if !d.Again.IsZero() && d.Again.Before(until) {
			until = d.Again
		}
		worked := until.Sub(s.Now)
		l.cost += series.Integral(s.Now, until)
		j.Done += max(0, worked-max(0, left-(j.Duration-j.Done)))
		left -= worked
		begun, j.Running, s.Now = true, true, until
		if left == 0 {
			l.finish = until
			return l
		}
	}
}

func drawDay(t *rapid.T) *grid.Series {
	series, err := grid.NewSeries(schedtest.Day, time.Hour, rapid.SliceOfN(rapid.Float64Range(1, 900), 48, 60).Draw(t,
		"intensity"))
	if err != nil {
		t.Fatal(err)
	}
	return series
}

func drawMinutes(t *rapid.T, least, most int, label string) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Minute
}

// minInterruptible returns the clairvoyant optimum: the cheapest minutes among all in which the job may run.
func minInterruptible(series *grid.Series, j *sched.Job) (sum float64) {
	var minutes []float64
	for t := j.Submitted; t.Before(j.Submitted.Add(j.AllowedDelay + j.Duration)); t = t.Add(time.Minute) {
		minutes = append(minutes, series.Integral(t, t.Add(time.Minute)))
	}
	slices.Sort(minutes)
	for _, v := range minutes[:j.Duration/time.Minute] {
		sum += v
	}
	return sum
}

func TestWaitAwhileIsTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		series := drawDay(t)
		j := sched.Job{
			ID: "j", Submitted: schedtest.Day.Add(drawMinutes(t, 0, 600, "submitted")),
			Duration:     drawMinutes(t, 1, 900, "length"),
			AllowedDelay: drawMinutes(t, 0, 600, "delay"), Interruptible: true,
		}
		want, got := minInterruptible(series, &j), live(t, "wait-awhile", series, j)
		if math.Abs(got.cost-want) > 1e-6*want {
			t.Fatalf("cost = %v, want %v", got.cost, want)
		}
	})
}

// TestRollingStartsBest checks that a job that is not interruptible gets the best start.
func TestRollingStartsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		series := drawDay(t)
		j := sched.Job{
			ID: "j", Submitted: schedtest.Day.Add(drawMinutes(t, 0, 600, "submitted")),
			Duration:     drawMinutes(t, 1, 900, "length"),
			AllowedDelay: drawMinutes(t, 0, 600, "delay"),
		}
		least := math.Inf(1)
		for start := j.Submitted; !start.After(j.LatestStart()); start = start.Add(time.Minute) {
			least = min(least, series.Integral(start, start.Add(j.Duration)))
		}
		for _, when := range []string{"rolling", "residual", "wait-awhile"} {
			if got := live(t, when, series, j).cost; got > least*(1+1e-6) {
				t.Fatalf("%s: cost = %v, want %v", when, got, least)
			}
		}
		for _, when := range []string{"lowest-window", "carbon-time", "lowest-slot", "window"} {
			if got := live(t, when, series, j).cost; got < least*(1-1e-6) {
				t.Fatalf("%s: cost = %v is below the minimum of %v", when, got, least)
			}
		}
	})
}

// TestResidualIsNearTheOptimum checks that with whole hours of work and delay, the plan of residual equals the plan
// of a clairvoyant with restart costs of three minutes, so that it exceeds the optimum by at most these costs.
func TestResidualIsNearTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		series := drawDay(t)
		hours := func(least, most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Hour
		}
		j := sched.Job{
			ID: "j", Submitted: schedtest.Day.Add(hours(0, 10, "submitted")), Duration: hours(1, 14, "length"),
			AllowedDelay:  hours(0, 10, "delay"),
			Interruptible: true,
		}
		got, least := live(t, "residual", series, j), minInterruptible(series, &j)
		resumes := min(j.Duration, j.AllowedDelay).Hours()
		if most := least + resumes*180*900; got.cost > most*(1+1e-6) || got.cost < least*(1-1e-6) {
			t.Fatalf("cost = %v, want a value between %v and %v", got.cost, least, most)
		}
		if late := got.finish.Sub(j.Submitted.Add(j.AllowedDelay + j.Duration)); late > 0 {
			t.Fatalf("job finished %v late", late)
		}
	})
}

// TestRestartCostsAreMinded checks that higher restart costs result in fewer suspensions, and that no deadline is
// exceeded.
func TestRestartCostsAreMinded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	days := make([]*grid.Series, 200)
	for i := range days {
		values := make([]float64, 60)
		for k := range values {
			values[k] = 300 + 100*math.Sin(float64(k)/24*2*math.Pi) + 60*r.NormFloat64()
		}
		var err error
		if days[i], err = grid.NewSeries(schedtest.Day, time.Hour, values); err != nil {
			t.Fatal(err)
		}
	}
	last := math.MaxInt
	for _, cost := range []time.Duration{0, 5 * time.Minute, 20 * time.Minute, 2 * time.Hour} {
		suspensions := 0
		for i, series := range days {
			j := sched.Job{
				ID: "j", Submitted: schedtest.Day.Add(time.Duration(i) * 7 * time.Minute),
				Duration:     9*time.Hour + time.Duration(i)*time.Minute,
				AllowedDelay: 12 * time.Hour, Interruptible: true, RestartCost: cost,
			}
			l := live(t, "residual", series, j)
			suspensions += l.suspensions
			if deadline := j.Submitted.Add(j.AllowedDelay + j.Duration); l.finish.After(deadline) {
				t.Errorf("with a restart cost of %v, job %d finished %v late", cost, i, l.finish.Sub(deadline))
			}
		}
		if suspensions > last || cost == 0 && suspensions == 0 {
			t.Errorf("restart cost %v: %d suspensions, but %d with a lower cost", cost, suspensions, last)
		}
		last = suspensions
	}
}

// TestLengthsThatAreNotKnown checks that a job that is likely to finish soon is not delayed until a cheap period
// that it would hardly use.
func TestLengthsThatAreNotKnown(t *testing.T) {
	values := slices.Repeat([]float64{300, 310, 100}, 20)
	series, err := grid.NewSeries(schedtest.Day, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	brief := lives(t, time.Hour, 1, 0.9, 0)       // mostly two hours
	long := lives(t, time.Hour, 1, 1, 1, 1, 1, 0) // five to six hours
	s := &sched.Snapshot{Now: schedtest.Day, Sites: []*sched.Site{{Name: "s", Carbon: grid.Signal{Series: series}}}}
	for _, test := range []struct {
		when     string
		runtimes *sched.Runtimes
		until    time.Duration // duration of the hold; 0 means not held
	}{
		{"rolling", brief, 2 * time.Hour},
		{"residual", brief, 2 * time.Hour},
		{"residual", long, 0}, // two pauses are not worthwhile for the last hours
	} {
		s.Queue = []sched.Job{{
			ID: "j", Submitted: schedtest.Day, Duration: test.runtimes.Mean(), Runtimes: test.runtimes,
			AllowedDelay: 2 * time.Hour, Interruptible: true,
		}}
		strategy, err := strategy.New("energy+" + test.when)
		if err != nil {
			t.Fatal(err)
		}
		d := strategy.Plan(s)[0]
		if got := d.Window.Start.Sub(schedtest.Day); got != test.until {
			t.Errorf("%s: held for %v, want %v (%v)", test.when, got, test.until, d.Reason)
		}
	}
}

func lives(t testing.TB, step time.Duration, survival ...float64) *sched.Runtimes {
	t.Helper()
	r, err := sched.NewRuntimes(step, survival)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGAIAChoices checks the policies of GAIA with a signal that leads to different starts.
func TestGAIAChoices(t *testing.T) {
	//                     0    1    2   3    4    5    6
	values := []float64{400, 300, 390, 50, 500, 180, 120, 120, 120, 400}
	values = append(values, slices.Repeat([]float64{400}, 40)...)
	series, err := grid.NewSeries(schedtest.Day, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	for when, want := range map[string]time.Duration{
		"lowest-slot":   3 * time.Hour, // 50, regardless of the following hours
		"lowest-window": 6 * time.Hour, // 120 + 120
		"carbon-time":   2 * time.Hour, // (700 − 440)/(2 + 2) = 65, compared with 460/8 = 57.5 after six hours
	} {
		strategy, err := strategy.New("energy+" + when)
		if err != nil {
			t.Fatal(err)
		}
		d := strategy.Plan(&sched.Snapshot{
			Now: schedtest.Day, Sites: []*sched.Site{{Name: "s", Carbon: grid.Signal{Series: series}}},
			Queue: []sched.Job{{ID: "j", Submitted: schedtest.Day, Duration: 2 * time.Hour, AllowedDelay: 6 * time.Hour}},
		})[0]
		if got := d.Window.Start.Sub(schedtest.Day); got != want || !d.Again.IsZero() {
			t.Errorf("%s starts after %v with the next decision at %v, want %v and no further decision (%v)",
				when, got, d.Again, want, d.Reason)
		}
	}
}

// TestPriceIsCheapest checks that the start rule "price" only considers the price, regardless of weights.
func TestPriceIsCheapest(t *testing.T) {
	carbon := schedtest.Hourly(t, slices.Concat([]float64{1}, slices.Repeat([]float64{900}, 30))...)
	price := schedtest.Hourly(t, slices.Concat([]float64{9, 9, 9, 1}, slices.Repeat([]float64{9}, 27))...)
	s := &sched.Snapshot{
		Now: schedtest.Day, Sites: []*sched.Site{{Name: "s", Carbon: carbon, Price: price}},
		Queue: []sched.Job{{ID: "j", Submitted: schedtest.Day, Duration: time.Hour, AllowedDelay: 6 * time.Hour}},
	}
	strategy, err := strategy.New("carbon+price")
	if err != nil {
		t.Fatal(err)
	}
	if d := strategy.Plan(s)[0]; d.Window.Start.Sub(schedtest.Day) != 3*time.Hour || d.Reason.Money == 0 || d.Reason.Carbon != 0 {
		t.Errorf("job starts after %v, want 3 h (%v)", d.Window.Start.Sub(schedtest.Day), d.Reason)
	}
}

// TestOutlookOfSeveralSites checks that the outlook is for the site with the lowest cost over the day, or for the
// site of a running job.
func TestOutlookOfSeveralSites(t *testing.T) {
	flat := func(v float64) []float64 { return slices.Repeat([]float64{v}, 48) }
	valley := flat(900)
	for h := 2; h < 6; h++ {
		valley[h] = 500
	}
	steady := &sched.Site{Name: "steady", Carbon: schedtest.Hourly(t, flat(100)...)}
	changing := &sched.Site{Name: "changing", Carbon: schedtest.Hourly(t, valley...)}
	j := sched.Job{ID: "j", Submitted: schedtest.Day, Duration: 3 * time.Hour, AllowedDelay: 6 * time.Hour, Interruptible: true}
	s := &sched.Snapshot{Now: schedtest.Day, Sites: []*sched.Site{steady, changing}, Queue: []sched.Job{j}}
	strategy, err := strategy.New("energy+residual")
	if err != nil {
		t.Fatal(err)
	}
	if d := strategy.Plan(s)[0]; d.Held(schedtest.Day) {
		t.Errorf("job waits for the minimum of a site that is never cheaper: %v", d.Reason)
	}
	s.Now = schedtest.Day.Add(time.Hour)
	s.Queue[0].Running, s.Queue[0].Done = true, time.Hour
	s.Nodes = []*sched.Node{{Name: "n", Site: changing}}
	if d := strategy.Plan(s)[0]; !d.Held(s.Now) || d.Reason.Kind != sched.Suspended {
		t.Errorf("job continues at 900 before a minimum of 500: %v", d.Reason)
	}
}

func BenchmarkWhen(b *testing.B) {
	survival := make([]float64, 2601)
	for i := range survival {
		survival[i] = math.Exp(-float64(i) / 145) // a mean of about 7 h in steps of three minutes
	}
	runtimes := lives(b, 3*time.Minute, survival...)
	values := make([]float64, 120)
	for i := range values {
		values[i] = 300 + 100*math.Sin(2*math.Pi*float64(i)/24)
	}
	series, err := grid.NewSeries(schedtest.Day, time.Hour, values)
	if err != nil {
		b.Fatal(err)
	}
	_, whens := strategy.Names()
	for _, name := range whens {
		b.Run(name, func(b *testing.B) {
			strategy, err := strategy.New("energy+" + name)
			if err != nil {
				b.Fatal(err)
			}
			s := &sched.Snapshot{
				Now:   schedtest.Day.Add(5*time.Hour + 20*time.Minute),
				Sites: []*sched.Site{{Name: "s", Carbon: grid.Signal{Series: series}}},
				Queue: []sched.Job{{
					ID: "j", Submitted: schedtest.Day.Add(2 * time.Hour), Duration: runtimes.Mean(), Runtimes: runtimes,
					AllowedDelay:  24 * time.Hour,
					Interruptible: true, Running: name == "residual",
					Done: cmp.Or(map[string]time.Duration{"residual": time.Hour}[name], 0),
				}},
			}
			b.ReportAllocs()
			for b.Loop() {
				strategy.Plan(s)
			}
		})
	}
}

// TestSlack checks that slack is measured in time and not in work, so that it does not depend on the speed of the
// nodes.
func TestSlack(t *testing.T) {
	j := sched.Job{ID: "j", Submitted: schedtest.Day, Duration: 9 * time.Hour, AllowedDelay: time.Hour}
	for _, c := range []struct {
		done, worked, want time.Duration
	}{
		{0, 0, 0},
		{2 * time.Hour, 0, time.Hour}, // on nodes with speed 1
		{4 * time.Hour, 2 * time.Hour, time.Hour}, // on nodes with speed 2
		{time.Hour, 2 * time.Hour, time.Hour},     // on nodes with speed 0.5
		{4 * time.Hour, 90 * time.Minute, 30 * time.Minute},
	} {
		j.Done, j.Worked = c.done, c.worked
		if got := j.Slack(schedtest.Day.Add(2 * time.Hour)); got != c.want {
			t.Errorf("%v of work in %v: slack after two hours = %v, want %v", c.done, c.worked, got, c.want)
		}
	}
}

// TestResidualKeepsTimeToRestart checks that the slack reserves time for repeating work slowly when a job is
// resumed on a slow node.
func TestResidualKeepsTimeToRestart(t *testing.T) {
	valley := slices.Repeat([]float64{900}, 48)
	for h := 2; h < 6; h++ {
		valley[h] = 100
	}
	site := &sched.Site{Name: "s", Carbon: schedtest.Hourly(t, valley...)}
	s := &sched.Snapshot{Now: schedtest.Day.Add(time.Hour), Sites: []*sched.Site{site}, Queue: []sched.Job{{
		ID: "j", Submitted: schedtest.Day, Duration: 3 * time.Hour, AllowedDelay: 70 * time.Minute, RestartCost: 30 * time.Minute,
		Interruptible: true,
		Running:       true, Done: 30 * time.Minute, Worked: time.Hour,
	}}}
	strategy, err := strategy.New("energy+residual")
	if err != nil {
		t.Fatal(err)
	}
	for speed, latest := range map[float64]time.Duration{1: 40 * time.Minute, 0.5: 10 * time.Minute} {
		s.Nodes = []*sched.Node{{Name: "n", Site: site, Speed: speed}}
		if d := strategy.Plan(s)[0]; d.Held(s.Now) && d.Window.Start.After(s.Now.Add(latest)) {
			t.Errorf("at speed %v the job is suspended for %v, but its slack is %v", speed, d.Window.Start.Sub(s.Now),
				latest)
		}
	}
}

// TestWindowCountsExpectedPower checks that if waiting time has a weight, the expected power of a job determines
// whether it waits, and that the reason is based on that power.
func TestWindowCountsExpectedPower(t *testing.T) {
	valley := slices.Repeat([]float64{500}, 48)
	valley[3] = 100
	s := &sched.Snapshot{
		Now: schedtest.Day, Sites: []*sched.Site{{Name: "s", Carbon: schedtest.Hourly(t, valley...)}},
		// Running three hours later saves 3.2 g for one hour at the nominal 8 W. Three hours of waiting cost 6 g.
		Queue: []sched.Job{{
			ID: "j", Submitted: schedtest.Day, Duration: time.Hour, AllowedDelay: 6 * time.Hour,
			Request: sched.Resources{MilliCPU: 2000},
		}},
		Policy: sched.Policy{Weights: sched.Weights{Carbon: 1, Wait: 2}},
	}
	strategy, err := strategy.New("energy+window")
	if err != nil {
		t.Fatal(err)
	}
	plan := func() sched.Decision { return strategy.Plan(s)[0] }
	if d := plan(); d.Held(schedtest.Day) {
		t.Errorf("with 8 W: unexpected reason: %v", d.Reason)
	}
	j := &s.Queue[0]
	j.Expected, j.HasExpected = 40, true
	if d := plan(); !d.Held(schedtest.Day) || math.Abs(float64(d.Reason.Carbon)-0.04*400) > 1e-9 {
		t.Errorf("with 40 W: unexpected reason %v, saves %v", d.Reason, d.Reason.Carbon)
	}
	s.Policy.Weights.Wait = 0
	j.Expected = 0
	if d := plan(); !d.Held(schedtest.Day) {
		t.Errorf("with almost no power and no weight on time: unexpected reason: %v", d.Reason)
	}
	j.Expected = energy.Watts(math.NaN())
	if d := plan(); !d.Held(schedtest.Day) || math.Abs(float64(d.Reason.Carbon)-0.008*400) > 1e-9 {
		t.Errorf("with an invalid power: unexpected reason: %v", d.Reason)
	}
}

// TestWindowHeedsOpenings checks that the cheapest start within the openings is selected. An immediate start
// requires no opening.
func TestWindowHeedsOpenings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawRecorded(t)
		s.Policy = sched.Policy{}
		j := &s.Queue[0]
		j.Released, j.Limits, j.Runtimes, j.Scaling, j.Running, j.Interruptible = false, sched.Limits{}, nil, nil, false, false
		s.Queue = s.Queue[:1]
		strategy, err := strategy.New("carbon+window")
		if err != nil {
			t.Fatal(err)
		}
		d := strategy.Plan(s)[0]
		open := j.Openings
		j.Openings = nil
		free := strategy.Plan(s)[0]
		if len(open) == 0 || !free.Held(s.Now) {
			if d.Held(s.Now) != free.Held(s.Now) {
				t.Fatalf("openings %v change the window to %v from %v", open, d.Window, free.Window)
			}
			return
		}
		within := func(at time.Time) bool {
			return slices.ContainsFunc(open, func(w sched.Window) bool { return !at.Before(w.Start) && !at.After(w.End) })
		}
		if d.Held(s.Now) && !within(d.Window.Start) {
			t.Fatalf("held until %v, but the openings are %v", d.Window.Start, open)
		}
		var starts []time.Time
		for at := s.Now.Add(time.Minute); !at.After(j.LatestStart()); at = at.Add(10 * time.Minute) {
			starts = append(starts, at)
		}
		for _, w := range open {
			starts = append(starts, w.Start, w.End)
		}
		for _, at := range starts {
			saving, _, known := s.Saving(j, at)
			best := d.Reason.Saving
			if known && at.After(s.Now) && !at.After(j.LatestStart()) && within(at) && saving > best+1e-9 && saving > 1e-9 {
				t.Fatalf("start at %v saves %v, but %v with %v was selected", at, saving, d.Window.Start, best)
			}
		}
	})
}
