package oracle_test

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
)

// withRestarts is like [oracle.Interruptible], but each resume costs j.RestartCost of repeated work, which consumes
// power and slack. The first start is free.
//
// It returns the minimum over all schedules that start, suspend and resume j at submission plus multiples of step,
// and over all runs without interruptions at any start. Schedules that suspend at other times may be better; the
// difference decreases with the step. If all times of j and c are multiples of the step and resumes are free, the
// result equals Interruptible.
//
// The state of the dynamic program consists of the steps that j has run and paused, the number of resumes, and
// whether it is running.
func withRestarts(c *grid.Series, j *sched.Job, step time.Duration) float64 {
	slack := j.LatestStart().Sub(j.Submitted)
	_, best := oracle.NonPreemptive(c, j)
	p := restarts{c: c, from: j.Submitted, length: j.Duration, slack: slack, cost: max(0, j.RestartCost), step: step}
	return min(best, p.solve())
}

type restarts struct {
	c                         *grid.Series
	from                      time.Time
	length, slack, cost, step time.Duration

	pauses int // maximum number
}

// layer contains the minimum remaining cost by pauses and resumes, for a given number of steps run.
type layer struct{ on, off []float64 }

func (p *restarts) solve() float64 {
	p.pauses = int(p.slack / p.step)
	width := (p.pauses + 1) * (p.pauses + 1) // there are at most as many resumes as pauses
	resumes := p.pauses
	if p.cost > 0 {
		resumes = min(resumes, int(p.slack/p.cost))
	}
	most := int((p.length+time.Duration(resumes)*p.cost)/p.step) + 1
	next := layer{make([]float64, width), make([]float64, width)}
	here := layer{make([]float64, width), make([]float64, width)}
	for ran := most; ran >= 0; ran-- {
		for paused := p.pauses; paused >= 0; paused-- {
			for resumed := min(paused, resumes); resumed >= 0; resumed-- {
				p.fill(&here, &next, ran, paused, resumed)
			}
		}
		here, next = next, here
	}
	return next.off[0]
}

// fill computes the minimum cost from one state on, after the given numbers of run steps, pauses and resumes.
func (p *restarts) fill(here, next *layer, ran, paused, resumed int) {
	at := p.at(paused, resumed)
	left := p.length + time.Duration(resumed)*p.cost - time.Duration(ran)*p.step
	if left <= 0 {
		here.on[at], here.off[at] = 0, 0
		return
	}
	pause := math.Inf(1)
	if p.allowed(paused+1, resumed) {
		pause = here.off[p.at(paused+1, resumed)]
	}
	here.on[at] = min(p.run(next, left, ran, paused, resumed), pause)
	here.off[at] = pause
	switch {
	case ran == 0:
		here.off[at] = min(pause, p.run(next, left, ran, paused, resumed))
	case p.allowed(paused, resumed+1):
		here.off[at] = min(pause, p.run(next, left+p.cost, ran, paused, resumed+1))
	}
}

// run returns the cost of running for one more step, or for the remaining time, and of the following states.
func (p *restarts) run(next *layer, left time.Duration, ran, paused, resumed int) float64 {
	from := p.from.Add(time.Duration(ran+paused) * p.step)
	cost := p.c.Integral(from, from.Add(min(left, p.step)))
	if left > p.step {
		cost += next.on[p.at(paused, resumed)]
	}
	return cost
}

// allowed reports whether a job with the given numbers of pauses and resumes can still finish in time.
func (p *restarts) allowed(paused, resumed int) bool {
	return resumed <= paused && paused <= p.pauses &&
		time.Duration(paused)*p.step+time.Duration(resumed)*p.cost <= p.slack
}

func (p *restarts) at(paused, resumed int) int { return paused*(p.pauses+1) + resumed }
