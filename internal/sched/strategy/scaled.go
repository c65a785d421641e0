package strategy

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// chooses reports whether g selects the number of replicas of j while it runs.
func (g *Greedy) chooses(j *sched.Job) bool {
	return g.startRule.Scale != nil && j.Scaling != nil && j.Interruptible
}

// scaled applies g's rule to an elastic job. It returns the window, the reason, the time of the next decision and
// the number of replicas.
func (g *Greedy) scaled(s *sched.Snapshot, j *sched.Job) (
	w sched.Window, r sched.Reason, again time.Time, replicas int,
) {
	if !j.Running {
		if w, r, held := s.Closed(j); held {
			return w, r, w.Start, 0
		}
	}
	return g.startRule.Scale(s, j, max(s.Room(j), j.Scaling.Least))
}

// decideScaled decides on the number of replicas of a job from now on, and on its node.
func (g *Greedy) decideScaled(s *sched.Snapshot, j *sched.Job) (sched.Decision, *sched.Node) {
	window, reason, again, replicas := g.scaled(s, j)
	d := sched.Decision{Job: j.ID, Window: window, Again: again, Reason: reason}
	if d.Held(s.Now) {
		return d, nil
	}
	d.Replicas = replicas
	sized := j.Placed(replicas)
	if j.Running { // a running job stays on its node
		return d, nil
	}
	able := *s
	able.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n *sched.Node) bool {
		return !sized.Request.Within(n.Free)
	})
	best, ok := g.place(&able, &sized, &d)
	if ok && best == nil {
		d.Reason.Kind = sched.NoRoom
	}
	return d, best
}
