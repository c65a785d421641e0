package sched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Scaling describes an elastic job: the range of replicas, and the throughput for each number of replicas. The
// number may change while the job runs. In simulations, all replicas run on the same node.
type Scaling struct {
	Least int `json:"least"` // minimum number of replicas; Request and Duration refer to it

	// Throughput is the work done per unit of time on Least replicas, on one more, and so on, relative to Least
	// replicas. The first value is 1. The gain of each further replica must not exceed the gain of the previous
	// one, nor the mean gain of the first Least replicas.
	Throughput []float64 `json:"throughput"`
}

// Most returns the maximum number of replicas.
func (s *Scaling) Most() int { return s.Least + len(s.Throughput) - 1 }

// Rate returns the throughput on the given number of replicas. It is 0 below the minimum.
func (s *Scaling) Rate(replicas int) float64 {
	if replicas < s.Least {
		return 0
	}
	return s.Throughput[min(replicas, s.Most())-s.Least]
}

// Validate returns an error if s is invalid.
func (s *Scaling) Validate() error {
	if s.Least < 1 || len(s.Throughput) == 0 || s.Throughput[0] != 1 {
		return errors.New("elastic job: want at least one replica, and throughputs that start with 1")
	}
	gain := 1 / float64(s.Least)
	for i := 1; i < len(s.Throughput); i++ {
		next := s.Throughput[i] - s.Throughput[i-1]
		if !(next >= 0) || next > gain*(1+Tolerance) {
			return fmt.Errorf(
				"elastic job: replica %d adds a throughput of %v after %v: want non-negative gains that do not rise",
				s.Least+i, next, gain)
		}
		gain = next
	}
	return nil
}

// Amdahl returns the scaling of a job between the given numbers of replicas if the fraction parallel of its work,
// from 0 to 1, is distributed over all replicas and the rest is sequential.
func Amdahl(least, most int, parallel float64) *Scaling {
	s := &Scaling{Least: least}
	took := func(n int) float64 { return 1 - parallel + parallel/float64(n) }
	for n := least; n <= most; n++ {
		s.Throughput = append(s.Throughput, took(least)/took(n))
	}
	return s
}

// On returns j with the request of the given number of replicas. Its Duration is unchanged, because it is given for
// the minimum number of replicas. 0 replicas, or a job that is not elastic, leave the request unchanged.
func (j *Job) On(replicas int) Job {
	sized := *j
	if j.Scaling == nil || replicas == 0 {
		return sized
	}
	scaled := func(all int64) int64 { return all / int64(j.Scaling.Least) * int64(replicas) }
	sized.Request = Resources{
		MilliCPU: scaled(j.Request.MilliCPU), Memory: scaled(j.Request.Memory),
		GPU: scaled(j.Request.GPU), MilliGPU: scaled(j.Request.MilliGPU),
	}
	return sized
}

// Placed returns j for placement on the given number of replicas: with their request, and with the remaining run
// time on them as its Duration.
func (j *Job) Placed(replicas int) Job {
	sized := j.On(replicas)
	if j.Scaling != nil && replicas > 0 {
		sized.Duration = time.Duration(float64(j.Remaining()) / j.Scaling.Rate(replicas))
		sized.Done, sized.Runtimes = 0, nil
	}
	return sized
}

// Room returns the maximum number of replicas that fit on one of the offered nodes, or 0 if there is none. A snapshot
// without nodes, as in decisions about starts in a cluster, does not limit the number.
func (s *Snapshot) Room(j *Job) int {
	if len(s.Nodes) == 0 {
		return j.Scaling.Most()
	}
	for most := j.Scaling.Most(); most >= j.Scaling.Least; most-- {
		sized := j.On(most)
		if slices.ContainsFunc(s.Nodes, func(n *Node) bool { return sized.Request.Within(n.Free) }) {
			return most
		}
	}
	return 0
}

// Rigid is the scaling of a job with a fixed number of replicas.
var Rigid = &Scaling{Least: 1, Throughput: []float64{1}}

// Even reports whether j can be suspended without cost and its throughput is proportional to its replicas.
func (j *Job) Even() bool {
	if !j.Interruptible || j.RestartCost > 0 {
		return false
	}
	return j.Scaling == nil || j.Fastest()*float64(j.Scaling.Least) > float64(j.Scaling.Most())*(1-Tolerance)
}

// Fastest returns the maximum throughput of j relative to its own request.
func (j *Job) Fastest() float64 {
	scaling := cmp.Or(j.Scaling, Rigid)
	return scaling.Rate(scaling.Most())
}

// SpeedRelied returns the throughput, relative to its own request, that j relies on to finish in time. It is above
// 1 only for an even job with assured capacity.
func (j *Job) SpeedRelied() float64 {
	if j.RoomAssured && j.Even() {
		return j.Fastest()
	}
	return 1
}

// LatestInPieces returns the time until which an interruptible job may pause.
func (s *Snapshot) LatestInPieces(j *Job) time.Time {
	if j.SpeedRelied() == 1 {
		return s.latest(j)
	}
	work, until, _ := s.promise(j, j.left())
	return until.Add(-time.Duration(float64(work) / j.SpeedRelied()))
}
