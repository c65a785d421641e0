package predict

import (
	"iter"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// baseline is the common part of learners that predict a single number from finished jobs. For an unknown owner or
// queue, they predict the mean of all jobs.
type baseline struct {
	key func(*sched.Job) string
	all exposure
}

func newBaseline(key func(*sched.Job) string) baseline { return baseline{key: key} }

func (*baseline) Every() time.Duration { return time.Hour }

// Refresh implements [Learner]. Unfinished jobs are ignored.
func (*baseline) Refresh(time.Time, iter.Seq2[*sched.Job, time.Duration]) {}

func (b *baseline) ended(ran time.Duration) {
	b.all.ended++
	b.all.seconds += ran.Seconds()
}

func (b *baseline) mean() time.Duration {
	return fromSeconds(b.all.mean(meanPriorJobs, meanPriorLength))
}

func byOwner(j *sched.Job) string { return j.Owner }
func byQueue(j *sched.Job) string { return j.Queue }

// LastTwo predicts the mean of the last two run times of the same owner (Tsafrir, Etsion and Feitelson,
// "Backfilling using system-generated predictions rather than user runtime estimates"). It is hard to improve with
// a single number.
type LastTwo struct {
	baseline
	last map[string][2]time.Duration
}

// NewLastTwo returns a learner without observations.
func NewLastTwo() *LastTwo {
	return &LastTwo{baseline: newBaseline(byOwner), last: map[string][2]time.Duration{}}
}

// Ended implements [Learner].
func (l *LastTwo) Ended(j *sched.Job, ran time.Duration) {
	l.ended(ran)
	last, ok := l.last[l.key(j)]
	if !ok {
		last[0] = ran // a single observation counts twice
	}
	l.last[l.key(j)] = [2]time.Duration{ran, last[0]}
}

// Expect implements [Learner].
func (l *LastTwo) Expect(j *sched.Job) {
	last, ok := l.last[l.key(j)]
	if !ok {
		j.Duration = l.mean()
		return
	}
	j.Duration = last[0]/2 + last[1]/2
}

// Moving predicts the exponential moving average of the run times of the same owner.
type Moving struct {
	baseline
	weight float64
	means  map[string]float64
}

// NewMoving returns a learner without observations. The latest job has the given weight, between 0 and 1.
func NewMoving(weight float64) *Moving {
	return &Moving{baseline: newBaseline(byOwner), weight: weight, means: map[string]float64{}}
}

// Ended implements [Learner].
func (m *Moving) Ended(j *sched.Job, ran time.Duration) {
	m.ended(ran)
	key := m.key(j)
	mean, ok := m.means[key]
	if !ok {
		mean = ran.Seconds()
	}
	m.means[key] = mean + m.weight*(ran.Seconds()-mean)
}

// Expect implements [Learner].
func (m *Moving) Expect(j *sched.Job) {
	if mean, ok := m.means[m.key(j)]; ok {
		j.Duration = fromSeconds(mean)
		return
	}
	j.Duration = m.mean()
}

// Average predicts the mean of all run times, or of the run times in the same queue.
type Average struct {
	baseline
	of map[string]*exposure
}

// NewAverage returns a learner that predicts the mean of all jobs.
func NewAverage() *Average {
	return &Average{baseline: newBaseline(func(*sched.Job) string { return "" }), of: map[string]*exposure{}}
}

// NewQueueAverage returns a learner that predicts the mean of the job's queue.
func NewQueueAverage() *Average {
	return &Average{baseline: newBaseline(byQueue), of: map[string]*exposure{}}
}

// Ended implements [Learner].
func (a *Average) Ended(j *sched.Job, ran time.Duration) {
	a.ended(ran)
	e := a.of[a.key(j)]
	if e == nil {
		e = &exposure{}
		a.of[a.key(j)] = e
	}
	e.ended++
	e.seconds += ran.Seconds()
}

// Expect implements [Learner].
func (a *Average) Expect(j *sched.Job) {
	if e := a.of[a.key(j)]; e != nil {
		j.Duration = fromSeconds(e.mean(0, 0))
		return
	}
	j.Duration = a.mean()
}
