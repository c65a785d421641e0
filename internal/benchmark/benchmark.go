// Package benchmark measures the performance of a machine for several classes of work, and its power meanwhile. The
// results are the knowledge base used by schedulers to choose among heterogeneous machines.
//
// A benchmark is repeated until the confidence intervals of the mean time and, if a meter is available, of the mean
// power are narrow enough. All benchmarks are run several times in turn, and a figure is accepted if the runs
// agree. Rates are based on the CPU time used rather than on elapsed time, so that other processes on the machine
// do not affect them. The result also includes the fraction of CPU time that the benchmark received and the
// fraction used by other processes.
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

// Within is the required relative accuracy of figures. It applies to half of the 95 % confidence interval of a mean
// and to the difference between the highest and the lowest run.
const Within = 0.03

// Rules specifies the duration of a measurement.
type Rules struct {
	Runs    int           // number of runs of each benchmark
	AtLeast time.Duration // minimum duration of a run
	Rep     time.Duration // target duration of one repetition
	Least   int           // minimum number of repetitions of a run
	Most    int           // maximum number of repetitions of a run
}

// DefaultRules returns rules for a machine with a meter that can be read at any time.
func DefaultRules() Rules {
	return Rules{Runs: 5, AtLeast: 5 * time.Second, Rep: time.Second, Least: 5, Most: 30}
}

// A Mean is the mean over the repetitions of a run.
type Mean struct {
	Value float64 `json:"value"`
	Half  float64 `json:"half"` // half of the 95 % t interval, relative to the value
	Count int     `json:"count"`
}

// meanOf returns the mean of samples, or nil without samples. The interval requires at least two samples.
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

// A Run is the result of repeating one benchmark.
type Run struct {
	Work  string    `json:"work"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	Rate  *Mean     `json:"rate,omitempty"`  // nil if no work is done
	Watts *Mean     `json:"watts,omitempty"` // of the node; nil if unknown
	// Got is the received fraction of the requested CPU time, and Others is the fraction of all CPUs used by other
	// processes.
	Got    float64 `json:"got"`
	Others float64 `json:"others"`
}

// Result contains the measurements of one machine.
type Result struct {
	Node    string         `json:"node"`
	CPUs    int            `json:"cpus"`
	Source  string         `json:"source"` // source of the power values; empty without a meter
	Quality energy.Quality `json:"quality"`
	Runs    []Run          `json:"runs"`
}

// Machine is the machine under test.
type Machine struct {
	CPUs int
	// Power returns the mean power of the node since the previous call, and false if it is unknown.
	Power func() (energy.Watts, bool)
}

// Measure runs the benchmarks in turn, so that slow changes, e.g. of the room temperature, affect all of them. It
// calls notify after each run.
func (m *Machine) Measure(ctx context.Context, works []string, rules Rules, notify func(Run)) (runs []Run, err error) {
	if slices.Contains(works, GPU) { // fail early if the program or the driver is missing
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
	rounds := 1 // per repetition; determining the number also serves as warm-up
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
	m.Power() // start of the measured interval
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
