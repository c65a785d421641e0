package shifting

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

func longRun() bool { return os.Getenv("KUBENERGY_LONG") == "1" }

// issued returns the hourly forecasts of a model for one year. They are cached in the directory KUBENERGY_CACHE if
// it is set, because computing them takes much longer than using them.
func issued(t testing.TB, zone, model string, truth *grid.Series, jobs []trace) foresight {
	t.Helper()
	if model == "perfect" {
		return perfect(truth)
	}
	from := truth.End().Add(-year)
	o := forecast.Issuance{History: truth, Model: model, From: from, Until: from}
	for _, j := range submitted(jobs, from.Add(lastOffset*time.Hour), true, 0) {
		if end := j.Submitted.Add(j.AllowedDelay + 2*j.Duration); end.After(o.Until) {
			o.Until = end // same horizon as kubenergy compare
		}
	}
	if o.Until.After(truth.End()) {
		o.Until = truth.End()
	}
	if model == forecast.WithWeather {
		w, err := forecast.ReadWeather(filepath.Join(shared, "carbon", "mix_weather", zone+"_weather_forecast.csv.gz"))
		if err != nil {
			t.Fatal(err)
		}
		o.Weather = w
	}
	folder := cmp.Or(os.Getenv("KUBENERGY_CACHE"), t.TempDir())
	f, err := forecast.IssueCached(context.Background(), folder, o)
	if err != nil {
		t.Fatal(err)
	}
	return f.At
}

// plays configures replays of one policy with several starts on several grids.
type plays struct {
	zones   []string
	hours   []int // starts of the trace in hours of the year
	model   string
	when    string
	learner func([]trace) predict.Learner
	restart time.Duration
	ahead   map[string]foresight // forecasts of model by zone
}

// savings are the savings of a policy and of the optimum of its family, relative to the emissions without shifting.
type savings struct{ policy, optimum float64 }

// results contains the results of all plays.
type results struct {
	zones       []string
	saved       [][]savings // by zone and start
	wait, late  time.Duration
	suspensions int
	jobs        int
}

func (p *plays) play(t testing.TB) *results {
	t.Helper()
	strategy, err := strategy.New("round-robin+" + p.when)
	if err != nil {
		t.Fatal(err)
	}
	jobs := readTrace(t)
	r := &results{zones: p.zones, saved: make([][]savings, len(p.zones))}
	outcomes := make([][]outcome, len(p.zones))
	var wg sync.WaitGroup
	for z, zone := range p.zones {
		truth := readGrid(t, zone)
		ahead, ok := p.ahead[zone]
		if !ok {
			ahead = issued(t, zone, p.model, truth, jobs)
			p.ahead[zone] = ahead
		}
		r.saved[z], outcomes[z] = make([]savings, len(p.hours)), make([]outcome, len(p.hours))
		wg.Go(func() {
			for i, h := range p.hours {
				all := submitted(jobs, truth.End().Add(-year+time.Duration(h)*time.Hour), strategy.Interrupts(),
					p.restart)
				best := optimaOf(truth, all)
				o := replay(t, strategy, truth, ahead, all, p.learner(jobs))
				optimum := best.start
				if strategy.Interrupts() {
					optimum = best.interruptible
				}
				r.saved[z][i] = savings{
					(best.unshifted - o.carbon) / best.unshifted, (best.unshifted - optimum) / best.unshifted,
				}
				outcomes[z][i] = o
			}
		})
	}
	wg.Wait()
	for _, zone := range outcomes {
		for _, o := range zone {
			r.wait += o.wait
			r.suspensions += o.suspensions
			r.late = max(r.late, o.late)
			r.jobs += len(jobs)
		}
	}
	return r
}

// eta returns the ratio of the mean savings of the given starts, or of all starts if none are given.
func (r *results) eta(starts ...int) float64 {
	var policy, optimum float64
	for _, zone := range r.saved {
		if len(starts) == 0 {
			for _, s := range zone {
				policy, optimum = policy+s.policy, optimum+s.optimum
			}
		}
		for _, i := range starts {
			policy, optimum = policy+zone[i].policy, optimum+zone[i].optimum
		}
	}
	return policy / optimum
}

// ofZones returns eta for each zone.
func (r *results) ofZones() (etas []float64) {
	for z := range r.saved {
		one := results{saved: r.saved[z : z+1]}
		etas = append(etas, one.eta())
	}
	return etas
}

// interval returns the 95 % bootstrap confidence interval of eta. The same starts are drawn for every zone.
func (r *results) interval() (low, high float64) {
	const draws = 2000
	random := rand.New(rand.NewPCG(6, 6))
	n := len(r.saved[0])
	all := make([]float64, draws)
	for i := range all {
		starts := make([]int, n)
		for k := range starts {
			starts[k] = random.IntN(n)
		}
		all[i] = r.eta(starts...)
	}
	slices.Sort(all)
	return all[draws/40], all[draws-1-draws/40]
}

// String formats the results on one line.
func (r *results) String() string {
	low, high := r.interval()
	var text strings.Builder
	fmt.Fprintf(&text, "η %.3f [%.3f, %.3f]", r.eta(), low, high)
	mean := 0.0
	etas := r.ofZones()
	for z, eta := range etas {
		mean += eta / float64(len(etas))
		fmt.Fprintf(&text, " %s %.3f", r.zones[z], eta)
	}
	fmt.Fprintf(&text, "; mean of ratios %.3f, mean wait %.2f h, suspensions per job %.3f", mean,
		r.wait.Hours()/float64(r.jobs), float64(r.suspensions)/float64(r.jobs))
	return text.String()
}
