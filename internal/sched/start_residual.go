package sched

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// residual is the when "residual", for jobs that may be suspended and of which only a distribution of lengths is
// known. At the beginning of every slot it plans as if forecasts were certain, by dynamic programming over the slots
// of work and of pause to come, and runs the job unless a pause is expected to cost less. With x of the work done,
// running through slot k costs
//
//	z_k · ∫ S(y) dy   over y from x to x + 1 slot,
//
// that is the forecast times the work that is expected to be executed at all; going on after a pause costs z_k·β·S(x)
// more, for the work β that is then done once more. A job that has no delay left runs. What is left of it is planned
// on its residual life, given how long it has run.
//
// The state is how many slots were paused and worked, and whether the job runs. The last pause may be a part of a slot,
// after which the job must run. The plan is exact for a known length if pauses begin with slots.
//
// A job that may not be suspended is started as "rolling" does it.
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

// minRestart is what going on after a pause is taken to cost at least, in work. Forecasts are not as certain as the
// plan takes them, and a pause that hardly saves anything is not worth the trouble: on GAIA's trace this leaves well
// under half of the suspensions and costs about half a point of what is saved.
const minRestart = 3 * time.Minute

// pausePlan is the dynamic programme of one decision.
type pausePlan struct {
	life    lifetime
	slot    time.Duration
	restart float64   // seconds of work
	z       []float64 // price of every slot after the present one

	// Scratch, here so that a decision allocates nothing.
	prices      [256]float64
	work, again [maxRunSlots + 2]float64 // in a slot, and that of going on before it
	on, off     [maxRunSlots + 3]float64 // least cost from here, if the job runs and if it does not
}

// compare returns the expected cost of running and of pausing in what is left of the present slot, of this price, and
// after how many slots more a paused job would go on.
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
	if slack < rest { // runs before the slot ends
		left := rest - slack
		before := p.life.executed(done + left)
		pause = restart + price*(before-p.life.executed(done)) + p.life.costFrom(p.z, done+left, p.slot, p.slot)
		return run, pause, 0
	}
	_, pause, resume = p.solve(done, slack-rest)
	return run, pause, resume
}

// solve returns the least expected cost from the next slot on if the job runs until then and if it does not, and
// after how many slots it goes on in the latter case.
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
			p.on[i] = min(run, p.off[i]) // off: of one pause more
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

// lastPause fills in the costs where all whole pauses are used up and the rest of the slack is less than a slot.
func (p *pausePlan) lastPause(done, rest time.Duration, pauses, n int) (resume int) {
	// after is the cost of running on from the end of slot pauses+i, of which the last part was worked.
	after := 0.0
	p.on[n], p.off[n] = 0, 0
	worked, later := p.life.most, p.life.executed(done+time.Duration(n+1)*p.slot-rest)
	for i := n - 1; i >= 0; i-- {
		worked -= p.work[i] // until the slot begins
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
			resume++ // at the end of the slack
		}
	}
	return resume
}
