package oracle

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// ErrOverfull is returned if the jobs cannot all be completed in time on the given cores.
var ErrOverfull = errors.New("not all jobs can be completed in time")

// Fluid returns the minimum cost of a fluid schedule of jobs on the given cores at one site, in value·seconds of c
// times cores. In every step of c, a job uses any fraction of its requested cores for any fraction of the time; see
// [mincost.Fluid]. An elastic job uses up to the cores of its maximum number of replicas, all with the same
// efficiency. The given durations and allowed delays are respected.
//
// No schedule that runs jobs with or without suspensions on the same cores and in time costs less, because each of
// them is also a fluid schedule. After the end of c, its last value applies.
func Fluid(c *grid.Series, cores float64, jobs []sched.Job) (cost float64, err error) {
	if len(jobs) == 0 {
		return 0, errors.New("there are no jobs")
	}
	first, last := jobs[0].Submitted, jobs[0].Submitted
	for i := range jobs {
		j := &jobs[i]
		if width(j) > cores {
			return 0, fmt.Errorf("job %s requests %v of %v cores: %w", j.ID, width(j), cores, ErrOverfull)
		}
		first = timeutil.Earlier(first, j.Submitted)
		last = timeutil.Later(last, deadline(j))
	}
	if first.Before(c.Start()) {
		return 0, fmt.Errorf("the first job is submitted at %s, before the start of the intensity",
			first.Format(time.RFC3339))
	}
	step := c.Step()
	start := c.Start().Add(first.Sub(c.Start()) / step * step)
	at := func(k int) time.Time { return start.Add(time.Duration(k) * step) }
	values := make([]float64, (last.Sub(start)+step-1)/step)
	for k := range values {
		values[k] = c.At(at(k))
	}
	f := mincost.NewFluid(values, slices.Repeat([]float64{cores * step.Seconds()}, len(values)))
	total, left := 0.0, 0.0
	for i := range jobs {
		j := &jobs[i]
		work, widest := width(j)*j.Duration.Seconds(), width(j)
		if j.Scaling != nil {
			widest *= float64(j.Scaling.Most()) / float64(j.Scaling.Least)
		}
		total += work
		f.Add(work)
		for k := int(j.Submitted.Sub(start) / step); k < len(values) && at(k).Before(deadline(j)); k++ {
			from, to := timeutil.Later(at(k), j.Submitted), timeutil.Earlier(at(k+1), deadline(j))
			f.Allow(k, widest*to.Sub(from).Seconds())
		}
	}
	f.Solve(func() bool { return false })
	for k, load := range f.Load {
		cost += load * values[k]
	}
	for _, work := range f.Left {
		left += work
	}
	if left > 1e-9*total {
		return 0, fmt.Errorf("%.4g of %.4g core-hours do not fit: %w", left/3600, total/3600, ErrOverfull)
	}
	return cost, nil
}

// width returns the number of cores requested by a job.
func width(j *sched.Job) float64 { return float64(j.Request.MilliCPU) / 1000 }

// deadline returns the latest completion of a job.
func deadline(j *sched.Job) time.Time { return j.LatestStart().Add(j.Duration) }
