// Package benchmark measures how fast a machine does classes of work, and what it draws meanwhile: the knowledge base
// by which schedulers choose among unlike machines.
//
// A work is repeated until the mean of its time, and that of the power where a meter tells it, are known well enough;
// all works are measured several times in turn, and what these runs agree on is a figure. Rates are by the CPU time
// that the work took, not by the clock: on a machine that others use too, they are what it does when it is alone. How
// much of the CPUs the work got, and how much others used, is told beside it.
package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Within is how close figures must be: half of the interval of 95 % around a mean, as a share of it, and the distance
// between the highest and the lowest of several runs.
const Within = 0.03

// Rules say how long to measure.
type Rules struct {
	Runs    int           // of each work
	AtLeast time.Duration // that a run takes
	Rep     time.Duration // that one repetition is to take
	Least   int           // repetitions of a run
	Most    int           // of them, after which the run is not judged
}

// DefaultRules suit a machine whose meter can be read at any time.
func DefaultRules() Rules {
	return Rules{Runs: 5, AtLeast: 5 * time.Second, Rep: time.Second, Least: 5, Most: 30}
}

// A Mean is that of the repetitions of a run.
type Mean struct {
	Value float64 `json:"value"`
	Half  float64 `json:"half"` // of the t interval of 95 %, as a share of the value
	Count int     `json:"count"`
}

// meanOf needs two samples to know how well it knows their mean.
func meanOf(samples []float64) *Mean {
	if len(samples) == 0 {
		return nil
	}
	m := &Mean{Count: len(samples)}
	var deviation float64
	m.Value, deviation = stat.MeanStdDev(samples, nil)
	if n := float64(m.Count); n > 1 && m.Value != 0 {
		t := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975)
		m.Half = t * deviation / math.Sqrt(n) / math.Abs(m.Value)
	}
	return m
}

func (m *Mean) narrow() bool { return m == nil || m.Half <= Within }

// A Run is one work, repeated.
type Run struct {
	Work  string    `json:"work"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	Rate  *Mean     `json:"rate,omitempty"`  // nil: nothing is done
	Watts *Mean     `json:"watts,omitempty"` // of the node; nil: not known
	// Got is the share that the work got of the CPUs it asked for, and Others the share of all CPUs that others used.
	Got    float64 `json:"got"`
	Others float64 `json:"others"`
}

// Result is what was measured on one machine.
type Result struct {
	Node    string         `json:"node"`
	CPUs    int            `json:"cpus"`
	Source  string         `json:"source"` // of the watts; "": there is none
	Quality energy.Quality `json:"quality"`
	Runs    []Run          `json:"runs"`
}

// Machine is what the works run on.
type Machine struct {
	CPUs int
	// Power returns the mean power of the node since it was called last; false: not known.
	Power func() (energy.Watts, bool)
}

// Measure runs works in turn, so that what changes slowly, as the room's temperature, meets all of them. notify hears
// of each run.
func (m *Machine) Measure(ctx context.Context, works []string, rules Rules, notify func(Run)) (runs []Run, err error) {
	if slices.Contains(works, GPU) { // whose program or driver may be missing: better told before minutes of others
		looking, end := context.WithCancel(ctx)
		defer end()
		do, err := loadGPU(looking)
		if err == nil {
			_, _, err = do(1)
		}
		if end(); err != nil {
			return nil, fmt.Errorf("running %s: %w", GPU, err)
		}
	}
	for range rules.Runs {
		for _, name := range works {
			r, err := m.run(ctx, name, rules)
			if err != nil {
				return nil, fmt.Errorf("running %s: %w", name, err)
			}
			notify(r)
			runs = append(runs, r)
		}
	}
	return runs, nil
}

func (m *Machine) run(ctx context.Context, name string, rules Rules) (r Run, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	do, err := m.load(ctx, name, rules.Rep)
	if err != nil {
		return r, err
	}
	rounds := 1 // of a repetition; finding how many warms up
	for took := time.Duration(0); took < rules.Rep/2; {
		if _, took, err = do(rounds); err != nil {
			return r, err
		}
		if took < rules.Rep/2 {
			rounds = int(float64(rounds) * min(8, max(2, rules.Rep.Seconds()/took.Seconds())))
		}
	}
	var rates, watts []float64
	var asked, got time.Duration
	m.Power() // since now
	r = Run{Work: name, Start: time.Now()}
	usage := ReadUsage()
	narrow := func() bool { return meanOf(rates).narrow() && meanOf(watts).narrow() }
	for len(rates) < rules.Most && (len(rates) < rules.Least || time.Since(r.Start) < rules.AtLeast || !narrow()) {
		began := time.Now()
		done, took, err := do(rounds)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return r, err
		}
		asked, got = asked+time.Since(began), got+took
		rates = append(rates, done/took.Seconds())
		if drawn, ok := m.Power(); ok {
			watts = append(watts, float64(drawn))
		}
	}
	r.Others = usage.Others()
	r.End, r.Watts, r.Got = time.Now(), meanOf(watts), got.Seconds()/asked.Seconds()
	if rate := meanOf(rates); rate.Value > 0 {
		r.Rate = rate
	}
	return r, nil
}
