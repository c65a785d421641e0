package predict

import (
	"iter"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// What [Mean] takes for granted before it has seen any job: so many of this length.
const (
	meanPriorJobs   = 5
	meanPriorLength = 300 // seconds
)

// meanShrinkage is how many jobs of its own shape outweigh the mean of all shapes.
const meanShrinkage = 2

// Mean learns one expected length for every shape of request, in which the jobs that run count for the time that they
// have run so far:
//
//	d = (Σ ended + Σ elapsed + k·g) / (number ended + k),   g = (Σ all + 5·300 s) / (number of all + 5)
//
// where g is likewise of all shapes. Without a distribution it is no ground to wait on, but one to order a queue by.
type Mean struct {
	k      float64
	shapes map[sched.Resources]*exposure
	all    exposure
}

// exposure is how long jobs ran, and how many of them have ended.
type exposure struct {
	ended   int64
	seconds float64 // of those that ended
	elapsed float64 // seconds of those that run
}

// NewMean returns a learner that has not seen any job.
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

// Refresh implements [Learner]. It takes time in proportion to the jobs that run, not to those that wait or have ended.
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
	j.Duration = time.Duration(seconds * float64(time.Second))
}

// mean returns the mean length, with a prior that weighs as much as n jobs.
func (e *exposure) mean(n, prior float64) float64 {
	return (e.seconds + e.elapsed + n*prior) / (float64(e.ended) + n)
}
