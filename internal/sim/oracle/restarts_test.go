package oracle_test

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
)

// withRestarts is [oracle.Interruptible] where each resume, though not the first start, costs j.RestartCost: work that is done
// once more, which takes power and is taken from the time that j may be kept waiting.
//
// It is the least over all schedules that start, suspend and resume j at submission plus multiples of step, and over
// all runs without a break, whenever they start. A schedule that is free to suspend at other moments may be better,
// by less the finer the step is; with a step of which everything is a multiple, j and c alike, and no cost, it is
// Interruptible.
//
// The dynamic programme is over the steps that j has run, the steps that it has paused, how often it was resumed, and
// whether it runs.
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

	pauses int // at most
}

// layer is the least cost of what is left, by pauses and resumes so far, of a job that has run for so many steps.
type layer struct{ on, off []float64 }

func (p *restarts) solve() float64 {
	p.pauses = int(p.slack / p.step)
	width := (p.pauses + 1) * (p.pauses + 1) // there are no more resumes than pauses
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

// fill finds the least cost from one state on: ran steps of work, so many pauses and resumes.
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

// run is the cost of running for one more step, or for what is left, and of what follows.
func (p *restarts) run(next *layer, left time.Duration, ran, paused, resumed int) float64 {
	from := p.from.Add(time.Duration(ran+paused) * p.step)
	cost := p.c.Integral(from, from.Add(min(left, p.step)))
	if left > p.step {
		cost += next.on[p.at(paused, resumed)]
	}
	return cost
}

// allowed reports whether a job that has paused and was resumed so often can still finish in time.
func (p *restarts) allowed(paused, resumed int) bool {
	return resumed <= paused && paused <= p.pauses &&
		time.Duration(paused)*p.step+time.Duration(resumed)*p.cost <= p.slack
}

func (p *restarts) at(paused, resumed int) int { return paused*(p.pauses+1) + resumed }
