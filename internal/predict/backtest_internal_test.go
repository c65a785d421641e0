package predict

import (
	"cmp"
	"container/heap"
	"iter"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Quantiler is a learner that returns quantiles of the run time.
type Quantiler interface {
	Learner
	Quantile(j *sched.Job, p float64) time.Duration
}

// Score contains the accuracy of run-time predictions.
type Score struct {
	Jobs     int
	Pinball  []float64 // mean loss per requested quantile, in seconds
	Coverage []float64 // fraction of jobs that finished within the quantile
	Error    float64   // mean absolute error in seconds, relative to the median if available
	Accuracy float64   // mean ratio of the smaller to the larger of predicted and true run time
}

// MeanPinball returns the mean loss over all quantiles.
func (s *Score) MeanPinball() float64 {
	sum := 0.0
	for _, v := range s.Pinball {
		sum += v
	}
	return sum / float64(max(1, len(s.Pinball)))
}

// Backtest evaluates the predictions of a learner. At the submission of every job, the learner has observed the
// jobs that have finished by then, and its prediction is compared with the true run time. Jobs must be ordered by
// submission, and are assumed to run immediately, because their waiting times are unknown. The first warm jobs are
// not scored. A prediction without a distribution is used for every quantile.
func Backtest(jobs []sched.Job, l Learner, quantiles []float64, warm int) Score {
	s := Score{Pinball: make([]float64, len(quantiles)), Coverage: make([]float64, len(quantiles))}
	running := &endings{jobs: jobs}
	var refreshed time.Time
	for i := range jobs {
		now := jobs[i].Submitted
		for len(running.order) > 0 && !running.end(0).After(now) {
			j := &jobs[running.order[0]]
			heap.Pop(running)
			l.Ended(asSubmitted(j), j.Duration)
		}
		if every := l.Every(); every == 0 || i == 0 || now.Sub(refreshed) >= every {
			l.Refresh(now, running.unfinished(now))
			refreshed = now
		}
		if i >= warm {
			s.add(l, &jobs[i], quantiles)
		}
		heap.Push(running, i)
	}
	n := float64(max(1, s.Jobs))
	for k := range quantiles {
		s.Pinball[k] /= n
		s.Coverage[k] /= n
	}
	s.Error /= n
	s.Accuracy /= n
	return s
}

// asSubmitted returns j as of its submission, without its run time.
func asSubmitted(j *sched.Job) *sched.Job {
	c := *j
	c.Duration, c.Runtimes = 0, nil
	return &c
}

func (s *Score) add(l Learner, j *sched.Job, quantiles []float64) {
	expected := asSubmitted(j)
	l.Expect(expected)
	quantile := func(p float64) float64 {
		switch q, ok := l.(Quantiler); {
		case ok:
			return q.Quantile(expected, p).Seconds()
		case expected.Runtimes != nil:
			return quantileOf(expected.Runtimes, p).Seconds()
		}
		return expected.Duration.Seconds()
	}
	s.Jobs++
	truth, middle := j.Duration.Seconds(), quantile(0.5)
	s.Error += math.Abs(truth - middle)
	if larger := max(truth, middle); larger > 0 {
		s.Accuracy += min(truth, middle) / larger
	}
	for k, p := range quantiles {
		q := quantile(p)
		if truth <= q {
			s.Coverage[k]++
		}
		s.Pinball[k] += max(p*(truth-q), (p-1)*(truth-q))
	}
}

// quantileOf returns the time within which a fraction p of the jobs finishes.
func quantileOf(r *sched.Runtimes, p float64) time.Duration {
	low, high := time.Duration(0), time.Duration(survivalBins)*survivalStep
	for high-low > time.Second {
		if mid := low + (high-low)/2; 1-r.Longer(mid) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// endings is a heap of running jobs, ordered by their end.
type endings struct {
	jobs  []sched.Job
	order []int
}

func (e *endings) end(i int) time.Time {
	j := &e.jobs[e.order[i]]
	return j.Submitted.Add(j.Duration)
}

func (e *endings) Len() int { return len(e.order) }
func (e *endings) Less(a, b int) bool {
	return cmp.Or(e.end(a).Compare(e.end(b)), cmp.Compare(e.order[a], e.order[b])) < 0
}
func (e *endings) Swap(a, b int) { e.order[a], e.order[b] = e.order[b], e.order[a] }
func (e *endings) Push(x any)    { e.order = append(e.order, x.(int)) }
func (e *endings) Pop() any {
	last := e.order[len(e.order)-1]
	e.order = e.order[:len(e.order)-1]
	return last
}

func (e *endings) unfinished(now time.Time) iter.Seq2[*sched.Job, time.Duration] {
	return func(yield func(*sched.Job, time.Duration) bool) {
		for _, i := range e.order {
			if !yield(asSubmitted(&e.jobs[i]), now.Sub(e.jobs[i].Submitted)) {
				return
			}
		}
	}
}
