package sched

import (
	"cmp"
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
		if !(next >= 0) || next > gain*(1+Tolerance) {
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

// On returns j as it is on so many replicas: with their request. Its Duration stays the work that it is, in time on
// the least number of them. 0 replicas are as many as j asks for by itself.
func (j *Job) On(replicas int) Job {
	sized := *j
	if j.Scaling == nil || replicas == 0 {
		return sized
	}
	scaled := func(all int64) int64 { return all / int64(j.Scaling.Least) * int64(replicas) }
	sized.Request = Resources{
		MilliCPU: scaled(j.Request.MilliCPU), Memory: scaled(j.Request.Memory),
		GPU: scaled(j.Request.GPU),
	}
	return sized
}

// Placed returns j as it is placed and priced on so many replicas: what is left of it, for as long as that takes on
// them.
func (j *Job) Placed(replicas int) Job {
	sized := j.On(replicas)
	if j.Scaling != nil && replicas > 0 {
		sized.Duration = time.Duration(float64(j.Remaining()) / j.Scaling.Rate(replicas))
		sized.Done, sized.Runtimes = 0, nil
	}
	return sized
}

// Room returns on how many replicas j can run on some of the nodes that are offered, at most; 0: there are none.
func (s *Snapshot) Room(j *Job) int {
	for most := j.Scaling.Most(); most >= j.Scaling.Least; most-- {
		sized := j.On(most)
		if slices.ContainsFunc(s.Nodes, func(n *Node) bool { return sized.Request.Within(n.Free) }) {
			return most
		}
	}
	return 0
}

// Rigid is how a job scales that runs on what it asks for.
var Rigid = &Scaling{Least: 1, Throughput: []float64{1}}

// Even reports whether a job may be suspended at no cost, and gets as much done with each of its replicas.
func (j *Job) Even() bool {
	if !j.Interruptible || j.RestartCost > 0 {
		return false
	}
	return j.Scaling == nil || j.Fastest()*float64(j.Scaling.Least) > float64(j.Scaling.Most())*(1-Tolerance)
}

// Fastest is how many times as fast as on what it asks for a job may run.
func (j *Job) Fastest() float64 {
	scaling := cmp.Or(j.Scaling, Rigid)
	return scaling.Rate(scaling.Most())
}

// SpeedRelied is how many times as fast as on what it asks for an even job counts on running, to be done in time.
func (j *Job) SpeedRelied() float64 {
	if j.RoomAssured && j.Even() {
		return j.Fastest()
	}
	return 1
}

// LatestInPieces returns until when a job that may be suspended may rest.
func (s *Snapshot) LatestInPieces(j *Job) time.Time {
	if j.SpeedRelied() == 1 {
		return s.latest(j)
	}
	work, until, _ := s.promise(j, j.left())
	return until.Add(-time.Duration(float64(work) / j.SpeedRelied()))
}
