package predict

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Parameters of [Siblings]: the decay of the weight with the difference of submissions, the number of siblings with
// the same weight as the mean of the shape, and the number of jobs of the shape with the same weight as the mean of
// all shapes.
const (
	siblingNearness  = 120. // in seconds
	siblingShrinkage = 2
	shapeShrinkage   = 5

	// minWeight is the minimum weight of a sibling. It corresponds to a distance of 4.6 times the nearness.
	minWeight = 0.01
)

// Siblings estimates the run time of a job from jobs of the same shape that were submitted shortly before or after
// it. Work is often submitted in groups of similar tasks. Once the first tasks of a group have finished or have run
// for a long time, this is used for the waiting ones. Siblings are weighted by the difference of submissions,
//
//	d = (Σ w·ran + k·m) / (Σ w·ended + k),   w = e^(−|difference of submissions| / nearness)
//
// over all siblings that have started. The elapsed or total run time of a sibling is ran, ended is 1 for finished
// siblings, and m is the estimate of [Mean] for the shape.
type Siblings struct {
	shapes *Mean
	kin    map[sched.Resources]*kin
}

// kin contains the started jobs of one shape, ordered by submission.
type kin struct {
	ended   []sibling
	running []sibling // as of the last Refresh
}

type sibling struct {
	submitted int64 // in seconds of Unix time
	id        string
	ran       float64 // in seconds
}

func (s sibling) compare(o sibling) int {
	return cmp.Or(cmp.Compare(s.submitted, o.submitted), cmp.Compare(s.id, o.id))
}

// NewSiblings returns a learner without observations.
func NewSiblings() *Siblings {
	return &Siblings{shapes: newMean(shapeShrinkage), kin: map[sched.Resources]*kin{}}
}

// Every implements [Learner].
func (s *Siblings) Every() time.Duration { return 0 }

// Ended implements [Learner].
func (s *Siblings) Ended(j *sched.Job, ran time.Duration) {
	s.shapes.Ended(j, ran)
	k := of(s.kin, j.Request)
	one := siblingOf(j, ran)
	at, _ := slices.BinarySearchFunc(k.ended, one, sibling.compare)
	k.ended = slices.Insert(k.ended, at, one)
}

// Refresh implements [Learner]. Its time is proportional to the number of running jobs.
func (s *Siblings) Refresh(now time.Time, unfinished iter.Seq2[*sched.Job, time.Duration]) {
	s.shapes.Refresh(now, unfinished)
	for _, k := range s.kin {
		k.running = k.running[:0]
	}
	for j, ran := range unfinished {
		if ran > 0 {
			k := of(s.kin, j.Request)
			k.running = append(k.running, siblingOf(j, ran))
		}
	}
	for _, k := range s.kin {
		slices.SortFunc(k.running, sibling.compare)
	}
}

// Expect implements [Learner].
func (s *Siblings) Expect(j *sched.Job) {
	s.shapes.Expect(j)
	k, ok := s.kin[j.Request]
	if !ok {
		return
	}
	ended, weight := weigh(k.ended, j)
	running, _ := weigh(k.running, j)
	seconds := (ended + running + siblingShrinkage*j.Duration.Seconds()) / (weight + siblingShrinkage)
	j.Duration = time.Duration(seconds * float64(time.Second))
}

// weigh returns the weighted run times of the siblings that are near enough, and the sum of their weights.
func weigh(all []sibling, j *sched.Job) (ran, weight float64) {
	at := j.Submitted.Unix()
	reach := int64(math.Ceil(siblingNearness * -math.Log(minWeight)))
	first, _ := slices.BinarySearchFunc(all, at-reach, func(one sibling, t int64) int {
		return cmp.Compare(one.submitted, t)
	})
	last, w := int64(math.MinInt64), 0.0
	for _, one := range all[first:] {
		if one.submitted > at+reach {
			break
		}
		if one.submitted != last { // many siblings share one submission time
			last = one.submitted
			w = math.Exp(-math.Abs(float64(last-at)) / siblingNearness)
		}
		ran += w * one.ran
		weight += w
	}
	return ran, weight
}

func siblingOf(j *sched.Job, ran time.Duration) sibling {
	return sibling{submitted: j.Submitted.Unix(), id: j.ID, ran: ran.Seconds()}
}
