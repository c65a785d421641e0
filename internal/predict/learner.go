package predict

import (
	"iter"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// PowerLearner predicts the power of jobs, without idle power, from measurements of previous jobs. It is not safe
// for concurrent use.
type PowerLearner interface {
	// Measured records the mean power of j over an interval that ends at the given time.
	Measured(j *sched.Job, drew energy.Watts, over time.Duration, end time.Time)
	// Expect sets Expected and HasExpected of j if a prediction exists.
	Expect(j *sched.Job)
}

// Learner predicts the run time of jobs from observations of previous jobs. It has no access to the run time of
// unfinished jobs. It is not safe for concurrent use; every simulation has its own learner.
type Learner interface {
	// Refresh updates the elapsed run times of unfinished jobs, without the time in which they were suspended. Jobs
	// that have not started may be omitted.
	Refresh(now time.Time, unfinished iter.Seq2[*sched.Job, time.Duration])
	// Every returns the interval between calls of Refresh; 0 means on every arrival or end of a job.
	Every() time.Duration
	// Ended records the run time of a finished job.
	Ended(j *sched.Job, ran time.Duration)
	// Expect sets the Duration of j, and its Runtimes if a distribution is known.
	Expect(j *sched.Job)
}
