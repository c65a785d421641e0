package sim

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// tasks tracks the progress of jobs under a strategy that interrupts them. A nil *tasks means that the strategy
// does not interrupt jobs, so each job runs to completion.
type tasks struct {
	start time.Time
	of    []task
	own   sched.Node // node of the running job to decide on, without that job
}

// task is the progress of a job. Work is measured as its duration on a node of speed 1. The time actually taken is
// recorded separately, because it does not consume slack.
type task struct {
	running bool
	idle    bool          // held or suspended by a decision
	since   int64         // start of the current run, or of the idle time
	finish  int64         // planned end of the current run
	asked   int64         // time of the next decision while it runs; 0 if none
	done    time.Duration // work before the current run
	took    time.Duration // time taken for that work
	rework  time.Duration // work to be repeated in the current run

	replicas int // of the current run; 0 for the number in the request
}

func newTasks(s *Scenario, strategy strategy.Strategy) *tasks {
	interrupter, ok := strategy.(interface{ Interrupts() bool })
	if !ok || !interrupter.Interrupts() ||
		!slices.ContainsFunc(s.Jobs, func(j sched.Job) bool { return j.Interruptible }) {
		return nil
	}
	return &tasks{start: s.Start, of: make([]task, len(s.Jobs))}
}

// idle records that a decision keeps a job from running.
func (t *tasks) idle(job int, now time.Time) {
	if t == nil {
		return
	}
	if k := &t.of[job]; !k.idle {
		k.idle, k.since = true, int64(now.Sub(t.start))
	}
}

// letGo records that decisions no longer keep a job from running.
func (t *tasks) letGo(job int, now time.Time, out *Outcome) {
	if t == nil {
		return
	}
	if k := &t.of[job]; k.idle {
		k.idle = false
		out.Delayed += now.Sub(t.start) - time.Duration(k.since)
	}
}

// runtime returns the duration of the next run of a job on n unless it is suspended.
func (t *tasks) runtime(n *sched.Node, j *sched.Job, job int) time.Duration {
	if t == nil || t.of[job].done == 0 && t.of[job].rework == 0 && t.of[job].replicas == 0 {
		return n.Runtime(j)
	}
	left := *j
	left.Duration += t.of[job].rework - t.of[job].done
	return t.of[job].sooner(j, n.Runtime(&left))
}

// ends reports whether the current run of a job ends now. It returns false if the job was suspended
// after its completion event was created.
func (t *tasks) ends(job int, at int64) bool { return t.of[job].running && t.of[job].finish == at }

// progress is the progress of a job in its current run. Times are scaled to the minimum number of replicas.
type progress struct {
	useful, rework time.Duration // work
	took, redone   time.Duration // time spent on useful and on repeated work
}

// worked returns the progress of a running job since the start of its current run.
func (e *engine) worked(now time.Time, job int) (p progress) {
	k := &e.tasks.of[job]
	ran := k.more(&e.scenario.Jobs[job], time.Duration(e.since(now)-k.since))
	speed := e.nodes[e.on[job]].Speed
	if speed == 0 || speed == 1 {
		p.rework = min(ran, k.rework)
		p.useful = ran - p.rework
		p.took, p.redone = p.useful, p.rework
		return p
	}
	all := time.Duration(float64(ran) * speed)
	p.rework, p.redone = all, ran
	if all > k.rework {
		p.rework, p.redone = k.rework, min(ran, time.Duration(float64(k.rework)/speed))
	}
	p.useful, p.took = all-p.rework, ran-p.redone
	return p
}

// done returns the useful work that a job has done, and the time taken for it.
func (e *engine) done(now time.Time, job int) (work, took time.Duration) {
	if e.tasks == nil {
		return 0, 0
	}
	k := &e.tasks.of[job]
	if !k.running {
		return k.done, k.took
	}
	p := e.worked(now, job)
	return min(k.done+p.useful, e.scenario.Jobs[job].Duration), k.took + p.took
}

// slack returns the remaining time by which a job may be delayed.
func (e *engine) slack(now time.Time, job int) time.Duration {
	j := &e.scenario.Jobs[job]
	done, took := e.done(now, job)
	return max(0, j.AllowedDelay-(now.Sub(j.Submitted)-took)+e.elastic.catchUp(j, done))
}

// runs records that a job has just started to run, and schedules its next decision.
func (e *engine) runs(now time.Time, job int, d *sched.Decision) error {
	if e.tasks == nil {
		return nil
	}
	k := &e.tasks.of[job]
	k.running, k.idle, k.asked = true, false, 0
	k.since, k.finish = e.since(now), e.since(e.result.Outcomes[job].Finish)
	return e.askNext(now, job, d)
}

// askNext schedules the next decision on a running job according to the current decision.
func (e *engine) askNext(now time.Time, job int, d *sched.Decision) error {
	j := &e.scenario.Jobs[job]
	if d.Again.IsZero() || !j.Interruptible {
		return nil
	}
	if err := checkAgain(now, j, d); err != nil {
		return err
	}
	k := &e.tasks.of[job]
	if e.batch != nil && e.batch.replans {
		e.planAgain(now, d.Again)
		return nil
	}
	if at := e.since(d.Again); at < k.finish {
		k.asked = at
		e.events.push(event{at: at, kind: check, job: int32(job)})
	}
	return nil
}

// check makes a decision on a running job: it continues or is suspended.
func (e *engine) check(now time.Time, ev event) error {
	job := int(ev.job)
	k := &e.tasks.of[job]
	if !k.running || k.asked != ev.at {
		return nil // it was suspended or has ended in the meantime
	}
	k.asked = 0
	final := e.slack(now, job) <= 0
	if final && k.replicas == 0 {
		return nil // it runs to completion
	}
	i := int(e.on[job])
	e.meters.read(i, &e.nodes[i], now)
	e.tasks.own = e.nodes[i]
	e.tasks.own.Free = e.tasks.own.Free.Add(e.sized(job).Request)
	e.tasks.own.Jobs--
	e.feasible = append(e.feasible[:0], &e.tasks.own)
	d := e.plan(now, job, final)
	if !d.Held(now) {
		if err := e.resize(now, job, d.Replicas); err != nil {
			return err
		}
		return e.askNext(now, job, d)
	}
	if err := e.suspend(now, job); err != nil {
		return err
	}
	return e.hold(now, job, d, final)
}

// suspend removes a running job from its node before its completion.
func (e *engine) suspend(now time.Time, job int) error {
	e.result.Outcomes[job].Suspensions++
	e.endRun(now, job)
	k := &e.tasks.of[job]
	k.running, k.rework = false, e.scenario.Jobs[job].RestartCost
	return e.end(now, job)
}

// lastRun records the last run of a completed job.
func (e *engine) lastRun(now time.Time, job int) {
	e.endRun(now, job)
	k := &e.tasks.of[job]
	k.running, k.done = false, e.scenario.Jobs[job].Duration
}

// endRun records the current run of a job until now.
func (e *engine) endRun(now time.Time, job int) {
	k, out := &e.tasks.of[job], &e.result.Outcomes[job]
	p := e.worked(now, job)
	w := sched.Window{Start: e.scenario.Start.Add(time.Duration(k.since)), End: now}
	e.ran(job, w)
	if out.Suspensions > 0 || k.replicas > 0 { // otherwise its start and finish are sufficient
		out.Runs = append(out.Runs, w)
	}
	if k.replicas > 0 {
		out.Replicas = append(out.Replicas, k.replicas)
		out.Delayed -= k.gained(&e.scenario.Jobs[job], w.End.Sub(w.Start))
	}
	k.done = min(k.done+p.useful, e.scenario.Jobs[job].Duration)
	k.took += p.took
	k.rework -= p.rework
	out.Lost += p.rework
	out.Redone = p.redone
	out.Delayed += p.redone
}
