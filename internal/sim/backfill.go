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

// backfill serves the queue as Slurm's sched/backfill does, conservatively: jobs start in order of submission until one
// has no room; at every interval, those behind it start as well that need no room which a job before them is going to
// get, if all run until their time limits. The strategy says which of the nodes with room a job gets.
type backfill struct {
	every   int64
	epilog  int64
	ticking bool            // the next interval's event is to come
	jobs    []int32         // that may start and have no room yet, in order of submission
	ends    map[int32]int64 // of what runs: when its time limit ends; of what has ended: when its epilog does
	held    map[int32]event // by job: the event at which it is asked next
	pushed  map[int32]event // by job: the event that was pushed last
	room    sched.Room      // of all nodes together, with what runs and what is held: jobs that may wait go by it
}

// maxBackfilled is how many jobs of the queue are looked at, as bf_max_job_test of Slurm has it.
const maxBackfilled = 500

// newBackfill returns nil where the scenario does not ask for it.
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

// openings returns when a job that may wait finds room, as kubenergy-slurm tells the strategy.
func (e *engine) openings(job int, j *sched.Job, now time.Time) []sched.Window {
	if e.backfill == nil || j.AllowedDelay <= 0 {
		return nil
	}
	within := *j
	if most := e.scenario.Policy.MaxDelay; most > 0 {
		within.AllowedDelay = min(within.AllowedDelay, most)
	}
	return e.backfill.room.Openings(int64(job), &within, now)
}

// takes notes when a job runs, or is to run. One that does not wait is not known to be the last.
func (b *backfill) takes(job int, j *sched.Job, w sched.Window) {
	switch {
	case b == nil:
	case j.AllowedDelay <= 0:
		b.room.Stay(int64(job), j.Request.MilliCPU, w.Start)
	default:
		b.room.Take(int64(job), j.Request.MilliCPU, w)
	}
}

// holds notes when a job is to run that is held, and at which event it is asked again. It reports whether that is to be
// pushed: it may have been.
func (b *backfill) holds(j *sched.Job, ev event, until time.Time) bool {
	if b == nil {
		return true
	}
	pushed := b.pushed[ev.job] == ev
	b.held[ev.job], b.pushed[ev.job] = ev, ev
	b.takes(int(ev.job), j, sched.Window{Start: until, End: until.Add(j.Duration)})
	return !pushed
}

// begins notes that a job runs now, and until when it may.
func (e *engine) begins(job int, j *sched.Job, now time.Time) {
	if b := e.backfill; b != nil {
		until := now.Add(limit(&e.scenario.Jobs[job]))
		b.ends[int32(job)] = e.since(until)
		b.takes(job, j, sched.Window{Start: now, End: until})
	}
}

// ends notes that a job runs no more. Its cores are free after the epilog.
func (e *engine) ends(job int, now time.Time) {
	if b := e.backfill; b != nil {
		b.room.Drop(int64(job))
		b.ends[int32(job)] = e.since(now) + b.epilog
		if b.epilog > 0 {
			e.events.push(event{at: b.ends[int32(job)], kind: power})
		}
	}
}

// limit is how long a job may run.
func limit(j *sched.Job) time.Duration { return max(j.TimeLimit, j.Duration) }

// serve puts what is new at an instant into the queue, and starts what may start.
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

// vacant forgets the jobs whose cores have become free, and reports whether there are any.
func (b *backfill) vacant(at int64) bool {
	n := len(b.ends)
	maps.DeleteFunc(b.ends, func(_ int32, end int64) bool { return end <= at })
	return len(b.ends) < n
}

// queued returns how many cores are waited for by jobs that do not ask to wait.
func (e *engine) queued() (milliCPU int64) {
	for _, job := range e.backfill.jobs {
		if j := &e.scenario.Jobs[job]; j.AllowedDelay <= 0 {
			milliCPU += j.Request.MilliCPU
		}
	}
	return milliCPU
}

// askHeld has all that is held asked again, since the queue which it let pass is no more. It reports whether there is
// any.
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

// lineUp puts a job that waits for no better time into the queue.
func (e *engine) lineUp(now time.Time, ev event) error {
	job, b := int(ev.job), e.backfill
	if ev.kind != arrival {
		if b.held[ev.job] != ev {
			return nil // it was asked since
		}
		delete(b.held, ev.job)
		e.held--
	}
	final := e.final(now, job, ev.kind == release)
	e.feasible = e.feasible[:0] // when it starts depends on no node
	if d := e.plan(now, job, final); d.Held(now) {
		return e.hold(now, job, d, final)
	}
	e.letGo(now, job)
	b.room.Drop(int64(job))
	e.lacksRoom(job)
	if !e.fitsSomewhere(job) {
		return nil // it would keep all behind it from running
	}
	if e.scenario.Jobs[job].AllowedDelay <= 0 {
		b.takes(job, &e.scenario.Jobs[job], sched.Window{Start: now})
	}
	k, _ := slices.BinarySearchFunc(b.jobs, ev.job, e.inOrder)
	b.jobs = slices.Insert(b.jobs, k, ev.job)
	return nil
}

// inOrder compares jobs by their submission.
func (e *engine) inOrder(a, b int32) int {
	return cmp.Or(e.scenario.Jobs[a].Submitted.Compare(e.scenario.Jobs[b].Submitted), cmp.Compare(a, b))
}

// startInOrder starts jobs that have room: those before the first that has none, or also those behind it.
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
				return fmt.Errorf("strategy places job %s nowhere, though there is room: %s", j.ID, d.Reason.String())
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

// finds returns when a job finds room first, and on which node; those that have room now are e.feasible.
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

// profile is what is free of a node, from each level's instant until that of the next.
type profile []level

type level struct {
	at   int64
	free sched.Resources
}

// profiles returns what is free of each node from now on, if all that runs does so until its time limit.
func (e *engine) profiles(at int64) []profile {
	all := make([]profile, len(e.nodes))
	for i := range e.nodes {
		all[i] = profile{{at, e.scenario.Nodes[i].Capacity}}
		if m := e.machines; m != nil && m.of[i] >= 0 && !e.nodes[i].Awake { // Slurm wakes a node that it gives work
			boots := at + int64(m.snapshot.Machines[m.of[i]].BootTime())
			all[i] = all[i].less(e.scenario.Nodes[i].Capacity, at, boots)
		}
	}
	for job, end := range e.backfill.ends { // in any order: what is taken adds up
		all[e.on[job]] = all[e.on[job]].less(e.sized(int(job)).Request, at, end)
	}
	return all
}

// less returns p without what a job takes from one instant to another.
func (p profile) less(r sched.Resources, from, to int64) profile {
	p = p.split(from).split(to)
	for k := range p {
		if p[k].at >= from && p[k].at < to {
			p[k].free = p[k].free.Sub(r)
		}
	}
	return p
}

// split makes an instant one at which what is free may change.
func (p profile) split(at int64) profile {
	k, found := slices.BinarySearchFunc(p, at, func(l level, at int64) int { return cmp.Compare(l.at, at) })
	if found {
		return p
	}
	return slices.Insert(p, k, level{at, p[k-1].free})
}

// earliest returns when so much is free for so long, of a node that has so much.
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
