package sim

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// tasks follow the jobs of a strategy that interrupts them. A nil *tasks is of one that does not: a job that began
// runs to its end.
type tasks struct {
	start time.Time
	of    []task
	own   sched.Node // that of a running job which is asked about, without it
}

// task is how far a job has come. Work is counted as the time that it takes on a node of speed 1; how long it really
// took is told apart, since that is what uses up no slack.
type task struct {
	running bool
	idle    bool          // held or suspended by a decision, since
	since   int64         // when its present run began, or since when it is idle
	finish  int64         // when its present run ends by itself
	asked   int64         // when it is to be asked next while it runs; 0: not
	done    time.Duration // work before its present run
	took    time.Duration // time in which that was done
	rework  time.Duration // work of its present run that is done once more

	replicas int // of its present run; 0: as many as it asks for
}

func newTasks(s *Scenario, strategy strategy.Strategy) *tasks {
	interrupter, ok := strategy.(interface{ Interrupts() bool })
	if !ok || !interrupter.Interrupts() ||
		!slices.ContainsFunc(s.Jobs, func(j sched.Job) bool { return j.Interruptible }) {
		return nil
	}
	return &tasks{start: s.Start, of: make([]task, len(s.Jobs))}
}

// idle notes that a decision keeps a job from running.
func (t *tasks) idle(job int, now time.Time) {
	if t == nil {
		return
	}
	if k := &t.of[job]; !k.idle {
		k.idle, k.since = true, int64(now.Sub(t.start))
	}
}

// letGo notes that no decision keeps a job from running any more.
func (t *tasks) letGo(job int, now time.Time, out *Outcome) {
	if t == nil {
		return
	}
	if k := &t.of[job]; k.idle {
		k.idle = false
		out.Delayed += now.Sub(t.start) - time.Duration(k.since)
	}
}

// runtime returns how long a job is going to run on n unless it is suspended.
func (t *tasks) runtime(n *sched.Node, j *sched.Job, job int) time.Duration {
	if t == nil || t.of[job].done == 0 && t.of[job].rework == 0 && t.of[job].replicas == 0 {
		return n.Runtime(j)
	}
	left := *j
	left.Duration += t.of[job].rework - t.of[job].done
	return t.of[job].sooner(j, n.Runtime(&left))
}

// ends reports whether a job ends at this instant: it runs, and was not suspended since that was foreseen.
func (t *tasks) ends(job int, at int64) bool { return t.of[job].running && t.of[job].finish == at }

// progress is what a job has done in its present run. Times are those that it would have taken on the least replicas.
type progress struct {
	useful, rework time.Duration // work
	took, redone   time.Duration // time in which each of them was done
}

// worked returns what a running job has done since its present run began.
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

// done returns how much useful work a job has done, and how long that took.
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

// slack returns how much longer a job may be kept from working.
func (e *engine) slack(now time.Time, job int) time.Duration {
	j := &e.scenario.Jobs[job]
	done, took := e.done(now, job)
	return max(0, j.AllowedDelay-(now.Sub(j.Submitted)-took)+e.elastic.catchUp(j, done))
}

// runs notes that a job has just begun to run, and when it is to be asked next.
func (e *engine) runs(now time.Time, job int, d *sched.Decision) error {
	if e.tasks == nil {
		return nil
	}
	k := &e.tasks.of[job]
	k.running, k.idle, k.asked = true, false, 0
	k.since, k.finish = e.since(now), e.since(e.result.Outcomes[job].Finish)
	return e.askNext(now, job, d)
}

// askNext has a running job asked about again when the decision says.
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

// check asks about a running job: it goes on, or is suspended.
func (e *engine) check(now time.Time, ev event) error {
	job := int(ev.job)
	k := &e.tasks.of[job]
	if !k.running || k.asked != ev.at {
		return nil // it was suspended or ended since
	}
	k.asked = 0
	final := e.slack(now, job) <= 0
	if final && k.replicas == 0 {
		return nil // it goes on to its end
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

// suspend takes a running job from its node before its end.
func (e *engine) suspend(now time.Time, job int) error {
	e.result.Outcomes[job].Suspensions++
	e.endRun(now, job)
	k := &e.tasks.of[job]
	k.running, k.rework = false, e.scenario.Jobs[job].RestartCost
	return e.end(now, job)
}

// lastRun books the run with which a job has ended.
func (e *engine) lastRun(now time.Time, job int) {
	e.endRun(now, job)
	k := &e.tasks.of[job]
	k.running, k.done = false, e.scenario.Jobs[job].Duration
}

// endRun books the present run of a job, until now.
func (e *engine) endRun(now time.Time, job int) {
	k, out := &e.tasks.of[job], &e.result.Outcomes[job]
	p := e.worked(now, job)
	w := sched.Window{Start: e.scenario.Start.Add(time.Duration(k.since)), End: now}
	e.ran(job, w)
	if out.Suspensions > 0 || k.replicas > 0 { // else its start and finish say it
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
