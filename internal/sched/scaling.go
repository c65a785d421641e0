package sched

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Scaling says that a job may run on more or fewer replicas, what that gives, and that it may be told anew as it
// goes. All of them run on one node.
type Scaling struct {
	Least int `json:"least"` // replicas: what the job's Request and Duration are for

	// Throughput is how much is done per time on Least replicas, on one more, and so on, relative to that on Least:
	// it begins with 1. The gain of each replica must not exceed that of the one before, nor the average of the first
	// ones.
	Throughput []float64 `json:"throughput"`
}

// Most returns the largest number of replicas.
func (s *Scaling) Most() int { return s.Least + len(s.Throughput) - 1 }

// Rate returns the throughput on so many replicas, 0 on none.
func (s *Scaling) Rate(replicas int) float64 {
	if replicas < s.Least {
		return 0
	}
	return s.Throughput[min(replicas, s.Most())-s.Least]
}

// Validate says what is wrong with s.
func (s *Scaling) Validate() error {
	if s.Least < 1 || len(s.Throughput) == 0 || s.Throughput[0] != 1 {
		return errors.New("elastic job: want one replica at least, and throughputs that begin with 1")
	}
	gain := 1 / float64(s.Least)
	for i := 1; i < len(s.Throughput); i++ {
		next := s.Throughput[i] - s.Throughput[i-1]
		if !(next >= 0) || next > gain*(1+tolerance) {
			return fmt.Errorf(
				"elastic job: replica %d gains %v, the one before %v: want gains that do not rise, and none below 0",
				s.Least+i, next, gain)
		}
		gain = next
	}
	return nil
}

// Amdahl returns the scaling of a job from a least to a largest number of replicas, if so much of its work, 0 to 1,
// can be shared among any number of them and the rest is done by one.
func Amdahl(least, most int, parallel float64) *Scaling {
	s := &Scaling{Least: least}
	took := func(n int) float64 { return 1 - parallel + parallel/float64(n) }
	for n := least; n <= most; n++ {
		s.Throughput = append(s.Throughput, took(least)/took(n))
	}
	return s
}

// chooses reports whether it is g that says on how many replicas j runs, anew as it goes.
func (g *Greedy) chooses(j *Job) bool {
	return g.when.scale != nil && j.Scaling != nil && j.Interruptible
}

// On returns j as it is on so many replicas: with their request. Its Duration stays the work that it is, in time on
// the least number of them. 0 replicas are as many as j asks for by itself.
func (j *Job) On(replicas int) Job {
	sized := *j
	if j.Scaling == nil || replicas == 0 {
		return sized
	}
	of := func(all int64) int64 { return all / int64(j.Scaling.Least) * int64(replicas) }
	sized.Request = Resources{MilliCPU: of(j.Request.MilliCPU), Memory: of(j.Request.Memory), GPU: of(j.Request.GPU)}
	return sized
}

// placed returns j as it is placed and priced on so many replicas: what is left of it, for as long as that takes on
// them.
func (j *Job) placed(replicas int) Job {
	sized := j.On(replicas)
	if j.Scaling != nil && replicas > 0 {
		sized.Duration = time.Duration(float64(j.remaining()) / j.Scaling.Rate(replicas))
		sized.Done, sized.Runtimes = 0, nil
	}
	return sized
}

// room returns on how many replicas j can run on some of the nodes that are offered, at most; 0: there are none.
func (s *Snapshot) room(j *Job) int {
	for most := j.Scaling.Most(); most >= j.Scaling.Least; most-- {
		sized := j.On(most)
		if slices.ContainsFunc(s.Nodes, func(n *Node) bool { return sized.Request.Within(n.Free) }) {
			return most
		}
	}
	return 0
}

// scaled asks g's rule about an elastic job: from when on it runs, when to ask again, and on how many replicas.
func (g *Greedy) scaled(s *Snapshot, j *Job) (w Window, r Reason, again time.Time, replicas int) {
	if !j.Running {
		if w, r, held := s.closed(j); held {
			return w, r, w.Start, 0
		}
	}
	return g.when.scale(s, j, max(s.room(j), j.Scaling.Least))
}

// decideScaled decides on how many replicas a job runs from now on, and where.
func (g *Greedy) decideScaled(s *Snapshot, j *Job) (Decision, *Node) {
	window, reason, again, replicas := g.scaled(s, j)
	d := Decision{Job: j.ID, Window: window, Again: again, Reason: reason}
	if d.Held(s.Now) {
		return d, nil
	}
	d.Replicas = replicas
	sized := j.placed(replicas)
	if j.Running { // what runs stays where it is
		return d, nil
	}
	able := *s
	able.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n *Node) bool { return !sized.Request.Within(n.Free) })
	best, ok := g.place(&able, &sized, &d)
	if ok && best == nil {
		d.Reason.Kind = NoRoom
	}
	return d, best
}
