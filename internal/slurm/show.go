package slurm

import (
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Held is a job that waits for a BeginTime set by the driver, or a pending or running job that is not delayed because
// of the mode. The latter has no Begin and no Reason.
type Held struct {
	Namespace, Name, User    string
	Running                  bool
	Marks                    map[string]string // annotations in its comment
	Submitted, Begin, Latest time.Time
	Reason                   string
	Request                  sched.Resources
	Duration                 time.Duration // expected duration
}

// hold adds a waiting job to the list passed to Show.
func (l *look) hold(j *Job, e *entry, job *sched.Job) {
	begin := j.Eligible.time()
	if n := len(l.calls); n > 0 && l.calls[n-1].job == j {
		begin = l.calls[n-1].begin
	}
	l.show(j, job, begin, e.Reason)
}

func (l *look) show(j *Job, job *sched.Job, begin time.Time, reason string) {
	l.held = append(l.held, Held{
		Namespace: namespaceOf(j.Account), Name: j.name(), User: j.User, Running: j.State.has("RUNNING"),
		Marks: marksOf(j.Comment), Submitted: job.Submitted, Begin: begin, Latest: job.LatestStart(), Reason: reason,
		Request: job.Request, Duration: job.Duration,
	})
}

// shadow adds the jobs that are not delayed because of the mode to the list passed to Show. Jobs may have started
// between two passes.
func (l *look) shadow() {
	for i := range l.jobs {
		j := &l.jobs[i]
		if marksOf(j.Comment) == nil || !j.State.has("PENDING") && !j.State.has("RUNNING") {
			continue
		}
		job, s, err := l.question(j)
		if err == nil && s.Ours && (s.Mode == v1alpha1.ModeShadow || s.Mode == v1alpha1.ModeAdvise) {
			l.show(j, &job, time.Time{}, "")
		}
	}
}
