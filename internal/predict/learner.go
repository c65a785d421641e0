package predict

import (
	"iter"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// PowerLearner says what jobs draw, idle power left out, from what was measured of others before. It is not safe for
// use by several goroutines.
type PowerLearner interface {
	// Measured takes notice of what j drew on average over a time that ends at an instant.
	Measured(j *sched.Job, drew energy.Watts, over time.Duration, end time.Time)
	// Expect fills in what j is expected to draw, where anything is known: Expected and HasExpected.
	Expect(j *sched.Job)
}

// Learner says how long jobs run, from what has been seen of others before. It never sees the length of a job that
// has not ended. It is not safe for use by several goroutines: every simulation has its own.
type Learner interface {
	// Refresh takes notice of the jobs that have not ended: how long each has run so far, without the time in which
	// it was suspended. Jobs that have not begun to run say nothing and may be left out.
	Refresh(now time.Time, unfinished iter.Seq2[*sched.Job, time.Duration])
	// Every says how often Refresh is wanted; 0: whenever a job arrives or ends.
	Every() time.Duration
	// Ended takes notice of a job that has ended, and of how long it ran.
	Ended(j *sched.Job, ran time.Duration)
	// Expect fills in what is known of j: Duration, and Runtimes where a distribution is known.
	Expect(j *sched.Job)
}
