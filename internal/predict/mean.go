package predict

import (
	"iter"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Prior of [Mean]: the number of assumed jobs and their run time.
const (
	meanPriorJobs   = 5
	meanPriorLength = 300 // in seconds
)

// meanShrinkage is the number of jobs of a shape with the same weight as the mean of all shapes.
const meanShrinkage = 2

// Mean estimates one expected run time per shape of request, including the elapsed run times of running jobs:
//
//	d = (Σ ended + Σ elapsed + k·g) / (number ended + k),   g = (Σ all + 5·300 s) / (number of all + 5)
//
// where g is the same for all shapes. The result has no distribution, so it cannot be used to delay jobs, but to
// order a queue.
type Mean struct {
	k      float64
	shapes map[sched.Resources]*exposure
	all    exposure
}

// exposure is the sum of run times and the number of finished jobs.
type exposure struct {
	ended   int64
	seconds float64 // run time of finished jobs
	elapsed float64 // elapsed run time of running jobs, in seconds
}

// NewMean returns a learner without observations.
func NewMean() *Mean { return newMean(meanShrinkage) }

func newMean(shrinkage float64) *Mean {
	return &Mean{k: shrinkage, shapes: map[sched.Resources]*exposure{}}
}

// Every implements [Learner].
func (m *Mean) Every() time.Duration { return 0 }

// Ended implements [Learner].
func (m *Mean) Ended(j *sched.Job, ran time.Duration) {
	for _, e := range [...]*exposure{of(m.shapes, j.Request), &m.all} {
		e.ended++
		e.seconds += ran.Seconds()
	}
}

// Refresh implements [Learner]. Its time is proportional to the number of running jobs.
func (m *Mean) Refresh(_ time.Time, unfinished iter.Seq2[*sched.Job, time.Duration]) {
	for _, e := range m.shapes {
		e.elapsed = 0
	}
	m.all.elapsed = 0
	for j, ran := range unfinished {
		if ran <= 0 {
			continue
		}
		of(m.shapes, j.Request).elapsed += ran.Seconds()
		m.all.elapsed += ran.Seconds()
	}
}

// Expect implements [Learner].
func (m *Mean) Expect(j *sched.Job) {
	seconds := m.all.mean(meanPriorJobs, meanPriorLength)
	if e, ok := m.shapes[j.Request]; ok {
		seconds = e.mean(m.k, seconds)
	}
	j.Duration = fromSeconds(seconds)
}

// mean returns the mean run time, with a prior that has the weight of n jobs.
func (e *exposure) mean(n, prior float64) float64 {
	return (e.seconds + e.elapsed + n*prior) / (float64(e.ended) + n)
}
