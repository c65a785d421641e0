package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// elastic is what a run knows of jobs whose replicas the strategy chooses.
type elastic struct {
	scales bool
	// there is room for all replicas of all jobs, whenever they may run, or the strategy can make it: see gives
	assured bool
}

func newElastic(s *Scenario, strategy strategy.Strategy, sure, replans bool) elastic {
	scaler, ok := strategy.(interface{ Scales() bool })
	if !ok || !scaler.Scales() || !slices.ContainsFunc(s.Jobs, func(j sched.Job) bool { return j.Scaling != nil }) {
		return elastic{}
	}
	// How long what is done on some replicas takes on others is only known between machines that are equally fast.
	if slices.ContainsFunc(s.Nodes, func(n sched.Node) bool { return n.Speed != 0 && n.Speed != 1 }) {
		return elastic{}
	}
	// It is uncertain whether the rest of a job of unknown length fits into the rest of its time, and whether a job
	// that waits for its turn in a queue begins in time.
	return elastic{scales: true, assured: sure && s.roomForAll() || replans && s.gives()}
}

// gives reports whether a strategy that decides anew on all that runs can give any job as many replicas as it may have:
// all run on one machine, and can be moved aside at no cost.
func (s *Scenario) gives() bool {
	return len(s.Nodes) == 1 && s.Queue == QueueRules{} && !slices.ContainsFunc(s.Jobs, func(j sched.Job) bool {
		if j.Scaling != nil {
			j = j.On(j.Scaling.Most())
		}
		return !j.Even() || !j.Request.Within(s.Nodes[0].Capacity)
	})
}

// roomForAll reports whether every node has room for all jobs at their largest that may run at one time.
func (s *Scenario) roomForAll() bool {
	most := s.Peak(func(j *sched.Job) (sched.Job, time.Duration) {
		sized := *j
		if j.Scaling != nil {
			sized = j.On(j.Scaling.Most())
		}
		return sized, j.Duration + j.RestartCost // one that is resumed at the last moment takes a restart longer
	})
	return !slices.ContainsFunc(s.Nodes, func(n sched.Node) bool { return !most.Within(n.Capacity) })
}

// Peak returns the most of each resource that jobs may want at one time: as sized makes them, each of them from its
// submission until the length that sized returns after its latest start.
func (s *Scenario) Peak(sized func(*sched.Job) (sched.Job, time.Duration)) (most sched.Resources) {
	type change struct {
		at time.Time
		by sched.Resources
	}
	var none, used sched.Resources
	changes := make([]change, 0, 2*len(s.Jobs))
	for i := range s.Jobs {
		j, length := sized(&s.Jobs[i])
		changes = append(changes, change{j.Submitted, j.Request},
			change{j.LatestStart().Add(length), none.Sub(j.Request)})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	for k, c := range changes {
		used = used.Add(c.by)
		if k+1 == len(changes) || !changes[k+1].at.Equal(c.at) {
			most = most.Max(used)
		}
	}
	return most
}

// catchUp returns how much sooner than on its least replicas a job can be done with what is left, if it is sure to
// have room for more.
func (e *elastic) catchUp(j *sched.Job, done time.Duration) time.Duration {
	if !e.assured || j.Scaling == nil || !j.Interruptible {
		return 0
	}
	left := j.Duration - done
	return left - time.Duration(math.Ceil(float64(left)/j.Scaling.Rate(j.Scaling.Most())))
}

// checkScaling finds what is wrong with how a job scales.
func checkScaling(j *sched.Job) error {
	if j.Scaling == nil {
		return nil
	}
	if err := j.Scaling.Validate(); err != nil {
		return err
	}
	if j.On(j.Scaling.Least).Request != j.Request {
		return fmt.Errorf("what it asks for is not a whole multiple of its %d replicas", j.Scaling.Least)
	}
	return nil
}

// setReplicas notes on how many replicas a job is about to run.
func (e *engine) setReplicas(job, replicas int) error {
	s := e.scenario.Jobs[job].Scaling
	if replicas == 0 && e.elastic.scales && s != nil && e.scenario.Jobs[job].Interruptible {
		replicas = s.Least // by a where that matches a whole queue
	}
	switch {
	case replicas == 0:
	case e.tasks == nil || s == nil || replicas < s.Least || replicas > s.Most():
		return fmt.Errorf("strategy runs job %s on %d replicas, which it cannot", e.scenario.Jobs[job].ID, replicas)
	}
	if e.tasks != nil {
		e.tasks.of[job].replicas = replicas
	}
	return nil
}

// sized returns a job with what it asks for as it runs now.
func (e *engine) sized(job int) *sched.Job {
	j := &e.scenario.Jobs[job]
	if e.tasks == nil || e.tasks.of[job].replicas == 0 {
		return j
	}
	return new(j.On(e.tasks.of[job].replicas))
}

// rate is the throughput of the present run, relative to that on the least replicas.
func (k *task) rate(j *sched.Job) float64 {
	if k.replicas == 0 {
		return 1
	}
	return j.Scaling.Rate(k.replicas)
}

// sooner returns how long work takes that takes so long on the least replicas.
func (k *task) sooner(j *sched.Job, d time.Duration) time.Duration {
	if rate := k.rate(j); rate != 1 {
		return time.Duration(math.Ceil(float64(d) / rate))
	}
	return d
}

// more returns how long what is done in a time takes on the least replicas.
func (k *task) more(j *sched.Job, d time.Duration) time.Duration {
	if rate := k.rate(j); rate != 1 {
		return time.Duration(float64(d) * rate)
	}
	return d
}

// gained is how much longer a run would have taken on the least replicas.
func (k *task) gained(j *sched.Job, d time.Duration) time.Duration { return k.more(j, d) - d }

// resize has a running job go on, on another number of replicas, on the node where it is. That is not a restart:
// nothing is done once more, and the node stays awake.
func (e *engine) resize(now time.Time, job, replicas int) error {
	k, i, j := &e.tasks.of[job], int(e.on[job]), &e.scenario.Jobs[job]
	if replicas == k.replicas {
		return nil
	}
	n := &e.nodes[i]
	sized := j.On(replicas)
	before := e.sized(job).Request
	room := n.Free.Add(before)
	if !sized.Request.Within(room) {
		return fmt.Errorf("strategy runs job %s on %d replicas, for which node %q has no room", j.ID, replicas, n.Name)
	}
	if err := e.account.bookUntil(i, n, now); err != nil {
		return err
	}
	e.endRun(now, job)
	e.meters.end(i, job, now)
	smaller := !before.Within(sized.Request)
	e.candidates.change(i, func(n *sched.Node) { n.Free, n.Jobs = room, n.Jobs-1 })
	if err := e.setReplicas(job, replicas); err != nil {
		return err
	}
	e.meters.place(i, n, job, &sized, now)
	e.candidates.change(i, func(n *sched.Node) { *n = n.Place(sized.Request) })
	e.meters.changed(i, n)
	if smaller {
		e.freed = append(e.freed, i)
	}
	k.since = e.since(now)
	out := &e.result.Outcomes[job]
	out.Finish = now.Add(e.tasks.runtime(n, j, job))
	k.finish = e.since(out.Finish)
	e.events.push(event{at: k.finish, kind: completion, job: int32(job)})
	return nil
}
