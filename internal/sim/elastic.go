package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// elastic contains the state of a run with elastic jobs if the strategy chooses their numbers of replicas.
type elastic struct {
	scales bool
	// assured is set if there is always capacity for all replicas of all jobs, or if the strategy can provide it;
	// see gives.
	assured bool
}

func newElastic(s *Scenario, strategy strategy.Strategy, sure, replans bool) elastic {
	scaler, ok := strategy.(interface{ Scales() bool })
	if !ok || !scaler.Scales() || !slices.ContainsFunc(s.Jobs, func(j sched.Job) bool { return j.Scaling != nil }) {
		return elastic{}
	}
	// The duration of work on another machine is only known if all machines have the same speed.
	if slices.ContainsFunc(s.Nodes, func(n sched.Node) bool { return n.Speed != 0 && n.Speed != 1 }) {
		return elastic{}
	}
	// It is uncertain whether the remainder of a job of unknown length fits into its remaining time, and whether a
	// queued job starts in time.
	return elastic{scales: true, assured: sure && s.roomForAll() || replans && s.gives()}
}

// gives reports whether a strategy that replans all running jobs can always give any job its maximum number of
// replicas: there is a single machine, and all jobs can be suspended at no cost.
func (s *Scenario) gives() bool {
	return len(s.Nodes) == 1 && s.Queue == QueueRules{} && !slices.ContainsFunc(s.Jobs, func(j sched.Job) bool {
		if j.Scaling != nil {
			j = j.On(j.Scaling.Most())
		}
		return !j.Even() || !j.Request.Within(s.Nodes[0].Capacity)
	})
}

// roomForAll reports whether every node has the capacity for all jobs that may run at the same time, at their
// maximum sizes.
func (s *Scenario) roomForAll() bool {
	most := s.Peak(func(j *sched.Job) (sched.Job, time.Duration) {
		sized := *j
		if j.Scaling != nil {
			sized = j.On(j.Scaling.Most())
		}
		return sized, j.Duration + j.RestartCost // includes a restart at the latest resume
	})
	return !slices.ContainsFunc(s.Nodes, func(n sched.Node) bool { return !most.Within(n.Capacity) })
}

// Peak returns the maximum of each resource that jobs may request at the same time. sized returns the job with the
// resources to count and the length to count after its latest start. Each job counts from its submission on.
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

// catchUp returns the time that a job can save by running its remaining work on the maximum number of replicas, or
// 0 if the capacity for them is not assured.
func (e *elastic) catchUp(j *sched.Job, done time.Duration) time.Duration {
	if !e.assured || j.Scaling == nil || !j.Interruptible {
		return 0
	}
	left := j.Duration - done
	return left - time.Duration(math.Ceil(float64(left)/j.Scaling.Rate(j.Scaling.Most())))
}

// checkScaling returns an error if the scaling of a job is invalid.
func checkScaling(j *sched.Job) error {
	if j.Scaling == nil {
		return nil
	}
	if err := j.Scaling.Validate(); err != nil {
		return err
	}
	if j.On(j.Scaling.Least).Request != j.Request {
		return fmt.Errorf("request is not a multiple of its %d replicas", j.Scaling.Least)
	}
	return nil
}

// setReplicas sets the number of replicas for the next run of a job.
func (e *engine) setReplicas(job, replicas int) error {
	s := e.scenario.Jobs[job].Scaling
	if replicas == 0 && e.elastic.scales && s != nil && e.scenario.Jobs[job].Interruptible {
		replicas = s.Least // a strategy that plans a whole queue may omit the number
	}
	switch {
	case replicas == 0:
	case e.tasks == nil || s == nil || replicas < s.Least || replicas > s.Most():
		return fmt.Errorf("strategy runs job %s on an invalid number of replicas: %d", e.scenario.Jobs[job].ID,
			replicas)
	}
	if e.tasks != nil {
		e.tasks.of[job].replicas = replicas
	}
	return nil
}

// sized returns a job with its current request.
func (e *engine) sized(job int) *sched.Job {
	j := &e.scenario.Jobs[job]
	if e.tasks == nil || e.tasks.of[job].replicas == 0 {
		return j
	}
	return new(j.On(e.tasks.of[job].replicas))
}

// rate returns the throughput of the current run, relative to the minimum number of replicas.
func (k *task) rate(j *sched.Job) float64 {
	if k.replicas == 0 {
		return 1
	}
	return j.Scaling.Rate(k.replicas)
}

// sooner converts a duration on the minimum number of replicas to the duration on the current number.
func (k *task) sooner(j *sched.Job, d time.Duration) time.Duration {
	if rate := k.rate(j); rate != 1 {
		return time.Duration(math.Ceil(float64(d) / rate))
	}
	return d
}

// more converts a duration on the current number of replicas to the duration on the minimum number.
func (k *task) more(j *sched.Job, d time.Duration) time.Duration {
	if rate := k.rate(j); rate != 1 {
		return time.Duration(float64(d) * rate)
	}
	return d
}

// gained returns the additional time that a run of length d would have taken on the minimum number of replicas.
func (k *task) gained(j *sched.Job, d time.Duration) time.Duration { return k.more(j, d) - d }

// resize changes the number of replicas of a running job on its node. This is not a restart: no work is repeated
// and the node stays awake.
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
		return fmt.Errorf("strategy runs job %s on %d replicas, but they do not fit on node %q", j.ID, replicas, n.Name)
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
	e.ahead.left(n, job)
	e.ahead.begins(n, job, &sized, now.Add(e.tasks.runtime(n, j, job)))
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
