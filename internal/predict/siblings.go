package predict

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// What [Siblings] takes for granted: how far apart jobs are submitted that still belong together, how many siblings
// the mean of the shape weighs as, and how many jobs of the shape the mean of all shapes does.
const (
	siblingNearness  = 120. // seconds
	siblingShrinkage = 2
	shapeShrinkage   = 5

	// Siblings of less weight than this are not looked at: 4.6 times the nearness away.
	minWeight = 0.01
)

// Siblings learns one expected length for every job from those of the same shape of request that were submitted
// shortly before or after it. Work comes in groups, and the tasks of a group are alike: once the first of them have
// ended, or have run for long without ending, it is known of the others that wait. Weighted by nearness,
//
//	d = (Σ w·ran + k·m) / (Σ w·ended + k),   w = e^(−|difference of submissions| / nearness)
//
// over all siblings that have begun to run: ran is the time that one has run so far or ran in all, ended is 1 if it has
// ended, and m is what [Mean] says of the shape.
type Siblings struct {
	shapes *Mean
	kin    map[sched.Resources]*kin
}

// kin are the jobs of one shape that have begun to run, in order of submission.
type kin struct {
	ended   []sibling
	running []sibling // as of the last Refresh
}

type sibling struct {
	submitted int64 // seconds of Unix time
	id        string
	ran       float64 // seconds
}

func (s sibling) compare(o sibling) int {
	return cmp.Or(cmp.Compare(s.submitted, o.submitted), cmp.Compare(s.id, o.id))
}

// NewSiblings returns a learner that has not seen any job.
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

// Refresh implements [Learner]. It takes time in proportion to the jobs that run.
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
		if one.submitted != last { // many come in the same second
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
