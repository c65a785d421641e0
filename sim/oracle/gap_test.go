package oracle_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim/oracle"
	"github.com/kubenergy/kubenergy/workload"
)

// Weeks of GAIA's trace of 100,000 jobs on limited cores: what bounds the least carbon from below and from above. The
// number of cores is that of which the week would use a share on average, if it was spread evenly.
func TestGapOnWeeksOfPAI(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("minutes: set KUBENERGY_LONG=1")
	}
	shared := filepath.FromSlash("../../../shared/data")
	trace := filepath.Join(shared, "workload", "gaia", "pai-100k.csv.gz")
	if _, err := os.Stat(trace); err != nil {
		t.Skipf("the trace of GAIA is not here: %v", err)
	}
	for _, zone := range []string{"DE", "CISO"} {
		path := filepath.Join(shared, "carbon", "mix_weather", zone+"_lifecycle_emissions.csv.gz")
		signal, _, err := grid.ReadCSV(path, grid.CSVOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lastYear := signal.Series.End().Add(-8760 * time.Hour)
		all, err := workload.Load(trace, "gaia", lastYear)
		if err != nil {
			t.Fatal(err)
		}
		for _, hour := range []int{1008, 4032, 6720} {
			jobs := weekOf(all.Jobs, lastYear.Add(time.Duration(hour)*time.Hour))
			for _, utilisation := range []float64{0.5, 0.75} {
				gap(t, zone, hour, utilisation, signal.Series, jobs)
			}
		}
	}
}

// weekOf returns the jobs that are submitted within seven days.
func weekOf(all []sched.Job, from time.Time) (jobs []sched.Job) {
	for i := range all {
		if j := all[i]; !j.Submitted.Before(from) && j.Submitted.Before(from.AddDate(0, 0, 7)) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// gap prints one row: the bounds, and what they leave of the share that can be saved.
func gap(t *testing.T, zone string, hour int, utilisation float64, c *grid.Series, jobs []sched.Job) {
	t.Helper()
	work, widest, now := 0.0, 0.0, 0.0
	for i := range jobs {
		j := &jobs[i]
		cores := float64(j.Request.MilliCPU) / 1000
		work += cores * j.Duration.Hours()
		widest = max(widest, cores)
		now += cores * c.Integral(j.Submitted, j.Submitted.Add(j.Duration))
	}
	cores := max(widest, work/168/utilisation)
	began := time.Now()
	p, err := oracle.NewCapacity(c, cores, jobs)
	if err != nil {
		t.Fatal(err)
	}
	flow, err := p.Fluid()
	if errors.Is(err, oracle.ErrOverfull) {
		t.Logf("%-4s h %4d: %4d jobs on %3.0f cores (%.0f %% used): %v", zone, hour, len(jobs), cores,
			100*work/168/cores, err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	known := 0.0
	upper, err := p.Schedule(flow.Prices, 300, 1)
	if err == nil {
		known = upper.Cost
	}
	lower, prices, errBound := p.Bound(flow, known, 100)
	if errBound != nil {
		t.Fatal(errBound)
	}
	if again, err := p.Schedule(prices, 1000, 2); err == nil && (upper == nil || again.Cost < upper.Cost) {
		upper = again
	}
	if dual := p.Dual(flow.Prices); !near(dual, flow.Cost) {
		t.Errorf("%s h %d: the flow costs %v, its dual is %v", zone, hour, flow.Cost, dual)
	}
	if upper == nil {
		t.Logf("%-4s h %4d: %4d jobs on %3.0f cores (%.0f %% used): fluid %.2f %%, Lagrangian %.2f %% below "+
			"uncapacitated FIFO; no schedule found in time: %v",
			zone, hour, len(jobs), cores, 100*work/168/cores, 100*(1-flow.Cost/now), 100*(1-lower/now), err)
		return
	}
	if lower > upper.Cost || flow.Cost > lower {
		t.Errorf("%s h %d: fluid %v, Lagrangian %v, schedule %v: want them in this order", zone, hour, flow.Cost, lower,
			upper.Cost)
	}
	t.Logf("%-4s h %4d: %4d jobs on %3.0f cores (%.0f %% used): saves at most %.2f %% (fluid) or %.2f %% "+
		"(Lagrangian), at least %.2f %%; gap %.2f %%; %v",
		zone, hour, len(jobs), cores, 100*work/168/cores, 100*(1-flow.Cost/now), 100*(1-lower/now),
		100*(1-upper.Cost/now),
		100*(upper.Cost-lower)/lower, time.Since(began).Round(time.Second))
}
