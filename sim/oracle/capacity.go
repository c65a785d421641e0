package oracle

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// ErrOverfull is what is wrong with jobs that cannot all be done in time on the cores that there are.
var ErrOverfull = errors.New("the jobs cannot all be done in time")

// Capacity is a trace on so many cores, at one place: jobs are in each other's way, and nothing else of a machine
// counts. All costs are in value·seconds of the intensity times cores.
//
// An elastic job takes as many cores as its largest number of replicas does, and gets as much done with each.
//
// Time is divided into the steps of the intensity. It is immutable once made.
type Capacity struct {
	cores float64
	jobs  []sched.Job
	start time.Time
	step  time.Duration
	value []float64 // by step; the last one of the series goes on where it ends
	wants [][]want  // by job
}

// want is how much of a step a job could use, in core-seconds.
type want struct {
	step int
	most float64
}

// NewCapacity prepares the jobs for the oracles of so many cores. Their lengths are taken as they are; the delay that
// each allows is kept to. Only the steps of c that a job may run in are looked at.
func NewCapacity(c *grid.Series, cores float64, jobs []sched.Job) (*Capacity, error) {
	if len(jobs) == 0 {
		return nil, errors.New("there are no jobs")
	}
	p := &Capacity{cores: cores, jobs: jobs, step: c.Step(), wants: make([][]want, len(jobs))}
	first, last := jobs[0].Submitted, jobs[0].Submitted
	for i := range jobs {
		j := &jobs[i]
		if width(j) > cores {
			return nil, fmt.Errorf("job %s asks for %v cores, there are %v: %w", j.ID, width(j), cores, ErrOverfull)
		}
		first = grid.Earlier(first, j.Submitted)
		last = grid.Later(last, deadline(j))
	}
	if first.Before(c.Start()) {
		return nil, fmt.Errorf("the first job comes at %s, before the intensity begins", first.Format(time.RFC3339))
	}
	p.start = c.Start().Add(first.Sub(c.Start()) / p.step * p.step)
	steps := int((last.Sub(p.start) + p.step - 1) / p.step)
	p.value = make([]float64, steps)
	for k := range p.value {
		p.value[k] = c.At(p.at(k))
	}
	for i := range jobs {
		p.wants[i] = p.overlap(&jobs[i], jobs[i].Submitted, deadline(&jobs[i]), nil)
	}
	return p, nil
}

// width is how many cores a job takes.
func width(j *sched.Job) float64 { return float64(j.Request.MilliCPU) / 1000 }

// deadline is when a job ends at the latest.
func deadline(j *sched.Job) time.Time { return j.LatestStart().Add(j.Duration) }

// work is what a job asks for in all, in core-seconds.
func work(j *sched.Job) float64 { return width(j) * j.Duration.Seconds() }

func (p *Capacity) at(step int) time.Time { return p.start.Add(time.Duration(step) * p.step) }

// room is what a step offers, in core-seconds.
func (p *Capacity) room() float64 { return p.cores * p.step.Seconds() }

// overlap appends what j takes of each step if it runs from one instant to another.
func (p *Capacity) overlap(j *sched.Job, from, to time.Time, dst []want) []want {
	cores := width(j)
	if j.Scaling != nil {
		cores *= float64(j.Scaling.Most()) / float64(j.Scaling.Least)
	}
	for k := int(from.Sub(p.start) / p.step); k < len(p.value) && p.at(k).Before(to); k++ {
		begin, end := p.at(k), p.at(k+1)
		begin = grid.Later(begin, from)
		end = grid.Earlier(end, to)
		dst = append(dst, want{k, cores * end.Sub(begin).Seconds()})
	}
	return dst
}

// Fluid returns the least cost of a fluid schedule: in every step a job uses up to all of the cores that it asks for,
// any part of them, for any part of the time, see [sched.Fluid]. No schedule that starts jobs in one piece, or suspends
// them, on the same cores and in time costs less, since each of them is a fluid one too.
func (p *Capacity) Fluid() (cost float64, err error) {
	f := sched.NewFluid(p.value, slices.Repeat([]float64{p.room()}, len(p.value)))
	total, left := 0.0, 0.0
	for i := range p.jobs {
		total += work(&p.jobs[i])
		f.Add(work(&p.jobs[i]))
		for _, w := range p.wants[i] {
			f.Allow(w.step, w.most)
		}
	}
	f.Solve(func() bool { return false })
	for k, load := range f.Load {
		cost += load * p.value[k]
	}
	for _, work := range f.Left {
		left += work
	}
	if left > 1e-9*total {
		return 0, fmt.Errorf("%.4g of %.4g core-hours find no room: %w", left/3600, total/3600, ErrOverfull)
	}
	return cost, nil
}
