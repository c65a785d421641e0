package predict

import (
	"cmp"
	"container/heap"
	"iter"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Quantiler is a learner that says within which time a job ends with a given probability.
type Quantiler interface {
	Learner
	Quantile(j *sched.Job, p float64) time.Duration
}

// Score is how well run times were predicted.
type Score struct {
	Jobs     int
	Pinball  []float64 // mean loss at each quantile that was asked for, in seconds
	Coverage []float64 // share of jobs that ended within it
	Error    float64   // mean absolute error in seconds; of the median, where there is one
	Accuracy float64   // mean of the smaller of predicted and true run time, divided by the larger; likewise
}

// MeanPinball returns the mean loss over all quantiles.
func (s *Score) MeanPinball() float64 {
	sum := 0.0
	for _, v := range s.Pinball {
		sum += v
	}
	return sum / float64(max(1, len(s.Pinball)))
}

// Backtest asks a learner at the submission of every job what it expects, when it has seen those that had ended by
// then, and scores that against what the job ran. Jobs stand in order of submission, and run from then on: how long
// they waited in the system that they come from is not known here. The first of them, warm, are not scored. What a
// learner expects without a distribution counts as every quantile.
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

// asSubmitted returns j as it was when it was submitted: without its length.
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

// quantileOf returns the time within which a share p of jobs ends.
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

// endings are jobs that run, the one that ends first before all others.
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
