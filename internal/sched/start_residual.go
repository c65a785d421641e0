package sched

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// residual implements the start rule "residual" for interruptible jobs with a known distribution of lengths. At the
// start of every slot it assumes that the forecast is exact, computes a plan by dynamic programming over the future
// slots of work and pause, and runs the job unless a pause has a lower expected cost. With completed work x,
// running through slot k costs
//
//	z_k · ∫ S(y) dy   over y from x to x + 1 slot,
//
// which is the forecast multiplied by the expected work in the slot. Resuming after a pause costs an additional
// z_k·β·S(x), where β is the work to be repeated. A job without remaining delay runs. The remaining work is planned
// with the residual lifetime of the job, given its run time so far.
//
// The state consists of the number of slots paused and worked, and whether the job is running. The last pause may
// be part of a slot, and the job must run after it. For a job of known length, the plan is exact if pauses start at
// the beginning of slots.
//
// A job that is not interruptible is started as with "rolling".
func residual(s *Snapshot, j *Job, o Outlook) (Window, Reason, time.Time) {
	if !j.Interruptible {
		return rolling(s, j, o)
	}
	restart := max(j.RestartCost, minRestart)
	latest := s.latest(j)
	slack := latest.Sub(s.Now)
	next, slot := o.slots()
	p := pausePlan{life: j.lifetime(slot), slot: slot, restart: restart.Seconds()}
	n := len(p.life.work(p.work[:0], j.Done, slot))
	p.z = o.prices(p.prices[:0], next, slot, int(slack/slot)+n+3)
	run, pause, resume := p.compare(j, slack, next.Sub(s.Now), o.Over(s.Now, next)/next.Sub(s.Now).Seconds())
	if saved := run - pause; saved <= max(Tolerance, s.Policy.MinSaving)*math.Abs(run) {
		w, r := atOnce(s, j, NothingToSave)
		return w, r, next
	}
	start := timeutil.Earlier(next.Add(time.Duration(resume)*slot), latest)
	return j.Window(start), o.later(s, j, start, run, pause), timeutil.Earlier(next, latest)
}

// minRestart is the minimum cost of resuming after a pause, as work. Forecasts are less certain than the plan
// assumes, and a pause with a very small saving is not worthwhile. On the trace of GAIA, this value removes more
// than half of the suspensions and reduces the saving by about half a percentage point.
const minRestart = 3 * time.Minute

// pausePlan is the dynamic program of one decision.
type pausePlan struct {
	life    lifetime
	slot    time.Duration
	restart float64   // seconds of work
	z       []float64 // price of every slot after the current one

	// Buffers, stored here so that a decision does not allocate.
	prices      [256]float64
	work, again [maxRunSlots + 2]float64 // expected work in a slot, and repeated work if the job resumes before it
	on, off     [maxRunSlots + 3]float64 // minimum cost from here on if the job is running, and if it is not
}

// compare returns the expected cost of running and of pausing for the rest of the current slot, given the price of
// this slot, and the number of further slots after which a paused job would resume.
func (p *pausePlan) compare(j *Job, slack, rest time.Duration, price float64) (run, pause float64, resume int) {
	done := j.Done
	runs := price * (p.life.executed(done+rest) - p.life.executed(done))
	restart := 0.0
	if done > 0 {
		restart = price * p.restart * p.life.longer(done)
	}
	run, _, _ = p.solve(done+rest, slack)
	run += runs
	if !j.Running {
		run += restart
	}
	if slack < rest { // resumes before the slot ends
		left := rest - slack
		before := p.life.executed(done + left)
		pause = restart + price*(before-p.life.executed(done)) + p.life.costFrom(p.z, done+left, p.slot, p.slot)
		return run, pause, 0
	}
	_, pause, resume = p.solve(done, slack-rest)
	return run, pause, resume
}

// solve returns the minimum expected cost from the next slot on if the job runs until then and if it does not, and
// the number of slots after which it resumes in the latter case.
func (p *pausePlan) solve(done, slack time.Duration) (on, off float64, resume int) {
	n := len(p.life.work(p.work[:0], done, p.slot))
	pauses := int(slack / p.slot)
	for i := range n {
		p.again[i] = 0
		if x := done + time.Duration(i)*p.slot; x > 0 {
			p.again[i] = p.restart * p.life.longer(x)
		}
	}
	resume = p.lastPause(done, slack-time.Duration(pauses)*p.slot, pauses, n)
	for m := pauses - 1; m >= 0; m-- {
		p.on[n], p.off[n] = 0, 0
		for i := n - 1; i >= 0; i-- {
			z := p.z[m+i]
			run := z*p.work[i] + p.on[i+1]
			p.on[i] = min(run, p.off[i]) // off contains the cost of one more pause
			if run += z * p.again[i]; run <= p.off[i] {
				p.off[i] = run
				if i == 0 {
					resume = m
				}
			}
		}
	}
	return p.on[0], p.off[0], resume
}

// lastPause computes the costs after all whole pauses have been used and less than one slot of slack remains.
func (p *pausePlan) lastPause(done, rest time.Duration, pauses, n int) (resume int) {
	// after is the cost of continuing from the end of slot pauses+i, if the job worked in the last part of that
	// slot.
	after := 0.0
	p.on[n], p.off[n] = 0, 0
	worked, later := p.life.most, p.life.executed(done+time.Duration(n+1)*p.slot-rest)
	for i := n - 1; i >= 0; i-- {
		worked -= p.work[i] // until the start of the slot
		ended := p.life.executed(done + time.Duration(i+1)*p.slot - rest)
		z := p.z[pauses+i]
		after += p.z[pauses+i+1] * (later - ended)
		later = ended
		last := z*(ended-worked+p.again[i]) + after
		run := z*p.work[i] + p.on[i+1]
		p.on[i] = min(run, last)
		run += z * p.again[i]
		p.off[i] = min(run, last)
		if resume = pauses; last < run {
			resume++ // resumes at the end of the slack
		}
	}
	return resume
}
