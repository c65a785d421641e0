package predict_test

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func shaped(id string, after time.Duration, cores int64) *sched.Job {
	return &sched.Job{
		ID: id, Submitted: noon.Add(after), Request: sched.Resources{MilliCPU: 1000 * cores}, Duration: 77 * time.Hour,
	}
}

// observed is a job with an observed run time.
type observed struct {
	job   *sched.Job
	ran   time.Duration
	ended bool
}

func unfinished(all []observed) iter.Seq2[*sched.Job, time.Duration] {
	return func(yield func(*sched.Job, time.Duration) bool) {
		for _, o := range all {
			if !o.ended && !yield(o.job, o.ran) {
				return
			}
		}
	}
}

// TestSiblingsAreTheFormula compares the estimate with the formula for all pairs of jobs, independent of the order
// of observations and of the Duration of the job.
func TestSiblingsAreTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nearness, k = 2 * time.Minute, 2
		var all []observed
		for i := range rapid.IntRange(0, 30).Draw(t, "jobs") {
			j := shaped(strconv.Itoa(i), time.Duration(rapid.IntRange(0, 1000).Draw(t, "submitted"))*time.Second,
				rapid.Int64Range(1, 3).Draw(t, "shape"))
			all = append(all, observed{
				j, time.Duration(rapid.IntRange(0, 5000).Draw(t, "ran")) * time.Second, rapid.Bool().Draw(t, "ended"),
			})
		}
		s := predict.NewSiblings()
		for _, o := range rapid.Permutation(all).Draw(t, "order") {
			if o.ended {
				s.Ended(o.job, o.ran)
			}
		}
		s.Refresh(noon, unfinished(nil))
		s.Refresh(noon, unfinished(rapid.Permutation(all).Draw(t, "order of running jobs")))
		job := shaped("new", time.Duration(rapid.IntRange(0, 1000).Draw(t, "at"))*time.Second, 1)
		var shape, every, near [2]float64 // seconds, and number of finished jobs
		for _, o := range all {
			ended := 0.0
			if o.ended {
				ended = 1
			}
			every[0], every[1] = every[0]+o.ran.Seconds(), every[1]+ended
			if o.job.Request != job.Request {
				continue
			}
			shape[0], shape[1] = shape[0]+o.ran.Seconds(), shape[1]+ended
			apart := math.Abs(o.job.Submitted.Sub(job.Submitted).Seconds())
			if w := math.Exp(-apart / nearness.Seconds()); apart <= math.Ceil(nearness.Seconds()*math.Log(100)) {
				near[0], near[1] = near[0]+w*o.ran.Seconds(), near[1]+w*ended
			}
		}
		mean := (every[0] + 5*300) / (every[1] + 5)
		mean = (shape[0] + 5*mean) / (shape[1] + 5)
		want := (near[0] + k*mean) / (near[1] + k)
		s.Expect(job)
		if got := job.Duration.Seconds(); math.Abs(got-want) > 1e-6*want {
			t.Fatalf("expected run time = %v s, want %v s", got, want)
		}
	})
}

// TestSiblingsKnowTheGroup checks that the estimate follows the group of a job and that older jobs of the same
// shape have little weight.
func TestSiblingsKnowTheGroup(t *testing.T) {
	s := predict.NewSiblings()
	for i := range 50 {
		s.Ended(shaped(fmt.Sprint("old", i), -time.Duration(i)*time.Hour, 1), time.Minute)
	}
	going := []observed{
		{job: shaped("a", 0, 1), ran: 3 * time.Hour},
		{job: shaped("b", time.Second, 1), ran: 2 * time.Hour},
		{job: shaped("c", time.Second, 1), ran: 2 * time.Hour},
	}
	s.Refresh(noon.Add(3*time.Hour), unfinished(going))
	in, out := shaped("in", 5*time.Second, 1), shaped("out", 10*time.Hour, 1)
	s.Expect(in)
	s.Expect(out)
	if in.Duration < 2*time.Hour || out.Duration > 30*time.Minute {
		t.Errorf("expected run time in the group = %v, outside of it = %v", in.Duration, out.Duration)
	}
	if s.Every() != 0 || in.Runtimes != nil {
		t.Error("Siblings must refresh on every event and predict a single number")
	}
}
