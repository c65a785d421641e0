package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// backfill serves the queue conservatively, like Slurm's sched/backfill. Jobs start in order of submission until
// one of them does not fit. At every interval, jobs behind it start as well if they do not use capacity reserved
// for the jobs before them, assuming that all jobs run until their time limits. The strategy chooses among the
// nodes with sufficient capacity.
type backfill struct {
	every   int64
	epilog  int64
	ticking bool            // an event for the next interval is pending
	jobs    []int32         // ready to start but without capacity, in order of submission
	ends    map[int32]int64 // per running job, the end of its time limit; per finished job, the end of its epilog
	held    map[int32]event // per held job, the event of its next decision
	pushed  map[int32]event // per job, the last event that was pushed
	room    sched.Room      // total over all nodes, including running and held jobs; used for jobs that may wait
}

// maxBackfilled is the maximum number of queued jobs to consider, like Slurm's bf_max_job_test.
const maxBackfilled = 500

// newBackfill returns nil if the scenario does not enable backfill.
func newBackfill(s *Scenario) *backfill {
	if s.Queue.Backfill == 0 {
		return nil
	}
	b := &backfill{
		every: int64(s.Queue.Backfill), epilog: int64(s.Queue.Epilog),
		ends: map[int32]int64{}, held: map[int32]event{}, pushed: map[int32]event{},
	}
	for i := range s.Nodes {
		b.room.MilliCPU += s.Nodes[i].Capacity.MilliCPU
	}
	return b
}

// openings returns the windows in which a job that may wait would fit, as kubenergy-slurm reports them to the
// strategy.
func (e *engine) openings(job int, j *sched.Job, now time.Time) []sched.Window {
	if e.backfill == nil || j.AllowedDelay <= 0 {
		return nil
	}
	within := *j
	within.AllowedDelay = e.scenario.Policy.AllowedDelay(j)
	return e.backfill.room.Openings(int64(job), &within, now)
}

// takes records the window in which a job runs or is planned to run. A job that may not wait is recorded as an
// open-ended reservation.
func (b *backfill) takes(job int, j *sched.Job, w sched.Window) {
	switch {
	case b == nil:
	case j.AllowedDelay <= 0:
		b.room.Stay(int64(job), j.Request.MilliCPU, w.Start)
	default:
		b.room.Take(int64(job), j.Request.MilliCPU, w)
	}
}

// holds records a planned start of a held job and the event of its next decision. It returns false if that event is
// already in the event queue.
func (b *backfill) holds(j *sched.Job, ev event, until time.Time) bool {
	if b == nil {
		return true
	}
	pushed := b.pushed[ev.job] == ev
	b.held[ev.job], b.pushed[ev.job] = ev, ev
	b.takes(int(ev.job), j, sched.Window{Start: until, End: until.Add(j.Duration)})
	return !pushed
}

// begins records that a job runs now, and the end of its time limit.
func (e *engine) begins(job int, j *sched.Job, now time.Time) {
	if b := e.backfill; b != nil {
		until := now.Add(limit(&e.scenario.Jobs[job]))
		b.ends[int32(job)] = e.since(until)
		b.takes(job, j, sched.Window{Start: now, End: until})
	}
}

// ends records that a job has ended. Its cores become free after the epilog.
func (e *engine) ends(job int, now time.Time) {
	if b := e.backfill; b != nil {
		b.room.Drop(int64(job))
		b.ends[int32(job)] = e.since(now) + b.epilog
		if b.epilog > 0 {
			e.events.push(event{at: b.ends[int32(job)], kind: power})
		}
	}
}

// limit returns the maximum run time of a job.
func limit(j *sched.Job) time.Duration { return max(j.TimeLimit, j.Duration) }

// serve adds the new jobs to the queue and starts the jobs that may start.
func (e *engine) serve(ctx context.Context, now time.Time, at int64, ticked bool) error {
	b := e.backfill
	vacant := b.vacant(at)
	for asked := true; asked; {
		for _, ev := range e.fresh {
			if err := e.lineUp(now, ev); err != nil {
				return err
			}
		}
		if ticked || len(e.fresh) > 0 || vacant {
			if err := e.startInOrder(ctx, now, at, ticked); err != nil {
				return err
			}
		}
		asked = b.room.Waits(e.queued(), now) && e.askHeld(at)
	}
	if b.ticking = b.ticking && !ticked; !b.ticking && len(b.jobs) > 0 {
		b.ticking = true
		e.events.push(event{at: (at/b.every + 1) * b.every, kind: tick})
	}
	return nil
}

// vacant removes jobs after their cores have become free, and reports whether there were any.
func (b *backfill) vacant(at int64) bool {
	n := len(b.ends)
	maps.DeleteFunc(b.ends, func(_ int32, end int64) bool { return end <= at })
	return len(b.ends) < n
}

// queued returns the number of millicores requested by queued jobs that may not wait.
func (e *engine) queued() (milliCPU int64) {
	for _, job := range e.backfill.jobs {
		if j := &e.scenario.Jobs[job]; j.AllowedDelay <= 0 {
			milliCPU += j.Request.MilliCPU
		}
	}
	return milliCPU
}

// askHeld schedules new decisions for all held jobs because the queue they yielded to is empty. It reports whether
// there are any held jobs.
func (e *engine) askHeld(at int64) bool {
	b := e.backfill
	e.fresh = e.fresh[:0]
	for job := range b.held {
		b.held[job] = event{at: at, kind: again, job: job}
		e.fresh = append(e.fresh, b.held[job])
	}
	slices.SortFunc(e.fresh, func(a, b event) int { return e.inOrder(a.job, b.job) })
	return len(e.fresh) > 0
}

// lineUp adds a job to the queue unless the strategy holds it.
func (e *engine) lineUp(now time.Time, ev event) error {
	job, b := int(ev.job), e.backfill
	if ev.kind != arrival {
		if b.held[ev.job] != ev {
			return nil // a newer event replaced this one
		}
		delete(b.held, ev.job)
		e.held--
	}
	final := e.final(now, job, ev.kind == release)
	e.feasible = e.feasible[:0] // the start time does not depend on a node
	if d := e.plan(now, job, final); d.Held(now) {
		return e.hold(now, job, d, final)
	}
	e.letGo(now, job)
	b.room.Drop(int64(job))
	e.lacksRoom(job)
	if !e.fitsSomewhere(job) {
		return nil // it would block all jobs behind it
	}
	if e.scenario.Jobs[job].AllowedDelay <= 0 {
		b.takes(job, &e.scenario.Jobs[job], sched.Window{Start: now})
	}
	k, _ := slices.BinarySearchFunc(b.jobs, ev.job, e.inOrder)
	b.jobs = slices.Insert(b.jobs, k, ev.job)
	return nil
}

// inOrder compares jobs by submission time.
func (e *engine) inOrder(a, b int32) int {
	return cmp.Or(e.scenario.Jobs[a].Submitted.Compare(e.scenario.Jobs[b].Submitted), cmp.Compare(a, b))
}

// startInOrder starts the jobs before the first one that does not fit. If behind is set, it also starts jobs behind
// it.
func (e *engine) startInOrder(ctx context.Context, now time.Time, at int64, behind bool) error {
	b := e.backfill
	free := e.profiles(at)
	var left []int32
	for k, job := range b.jobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if k >= maxBackfilled || len(left) > 0 && !behind {
			left = append(left, b.jobs[k:]...)
			break
		}
		j := &e.scenario.Jobs[job]
		first, where := e.finds(now, at, j, free)
		if len(e.feasible) == 0 {
			left = append(left, job)
		} else {
			d := e.plan(now, int(job), true)
			if d.Node == "" {
				return fmt.Errorf("strategy did not place job %s although it fits: %s", j.ID, d.Reason.String())
			}
			if err := e.place(now, int(job), d); err != nil {
				return err
			}
			where = e.byName[d.Node]
		}
		free[where] = free[where].less(e.sized(int(job)).Request, first, first+int64(limit(j)))
	}
	b.jobs = left
	return nil
}

// finds returns the earliest time at which a job fits, and the node. It sets e.feasible to the nodes on which the
// job fits now.
func (e *engine) finds(now time.Time, at int64, j *sched.Job, free []profile) (first int64, where int) {
	first = math.MaxInt64
	e.feasible = e.feasible[:0]
	for i := range free {
		if !j.Fits(&e.scenario.Nodes[i]) {
			continue
		}
		start := free[i].earliest(j.Request, int64(limit(j)))
		if start <= at {
			e.consider(now, i)
		}
		if start < first {
			first, where = start, i
		}
	}
	return first, where
}

// profile is the free capacity of a node over time. Each level applies until the next one.
type profile []level

type level struct {
	at   int64
	free sched.Resources
}

// profiles returns the free capacity of each node from now on, assuming that all running jobs use their full time
// limits.
func (e *engine) profiles(at int64) []profile {
	all := make([]profile, len(e.nodes))
	for i := range e.nodes {
		all[i] = profile{{at, e.scenario.Nodes[i].Capacity}}
		if m := e.machines; m != nil && m.of[i] >= 0 && !e.nodes[i].Awake { // Slurm wakes it on allocation
			boots := at + int64(m.snapshot.Machines[m.of[i]].BootTime())
			all[i] = all[i].less(e.scenario.Nodes[i].Capacity, at, boots)
		}
	}
	for job, end := range e.backfill.ends { // in any order
		all[e.on[job]] = all[e.on[job]].less(e.sized(int(job)).Request, at, end)
	}
	return all
}

// less returns p reduced by the resources of a job between two times.
func (p profile) less(r sched.Resources, from, to int64) profile {
	p = p.split(from).split(to)
	for k := range p {
		if p[k].at >= from && p[k].at < to {
			p[k].free = p[k].free.Sub(r)
		}
	}
	return p
}

// split adds a level that starts at the given time, if there is none.
func (p profile) split(at int64) profile {
	k, found := slices.BinarySearchFunc(p, at, func(l level, at int64) int { return cmp.Compare(l.at, at) })
	if found {
		return p
	}
	return slices.Insert(p, k, level{at, p[k-1].free})
}

// earliest returns the earliest time from which r is free for the given length. The node's capacity must be at
// least r.
func (p profile) earliest(r sched.Resources, length int64) int64 {
	start := p[0].at
	for k := range p {
		if k > 0 && p[k].at >= start+length {
			break
		}
		if !r.Within(p[k].free) && k+1 < len(p) {
			start = p[k+1].at
		}
	}
	return start
}
