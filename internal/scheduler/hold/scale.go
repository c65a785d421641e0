package hold

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// scales reports whether the number of pods of a running Job must change.
func (d *asked) scales(j *batchv1.Job) bool {
	return !d.held && d.Replicas > 0 && d.Replicas != policy.Parallelism(j)
}

// scale changes the number of pods of a Job.
func (p *pauser) scale(ctx context.Context, view *kube.View, j *batchv1.Job, d *asked, now time.Time) error {
	question := view.Question(now, d.job, d.settings)
	m := &d.work.Marks
	m.Scale(d.ran, now)
	if ok, err := p.patch(ctx, j, kube.ScalePatch(j, d.Replicas, m.State(j.UID))); !ok {
		return err
	}
	text := fmt.Sprintf("scaled from %d to %d replicas: %v", policy.Parallelism(j), d.Replicas, d.Reason)
	p.l.post(func() {
		p.l.queueEvent(p.l.jobs.object(j.UID, j.Namespace, j.Name), v1.EventTypeNormal, reasonScaled, text)
		p.l.record(record.Scale, j, now, d, ledger.Record{Message: text}, question)
	})
	return nil
}

// worked returns the work of a Job since it started or was scaled, including repeated work, given the runs of its pods,
// ordered by start. A Job without replicas is assumed to work as soon as one of its pods does.
func worked(m *policy.Marks, scaling *sched.Scaling, runs []sched.Window, now time.Time) (work time.Duration) {
	now = now.Truncate(time.Second) // the resolution of the state in annotations
	at := timeutil.Later(runs[0].Start, m.ScaledAt)
	if scaling == nil {
		return max(0, now.Sub(at))
	}
	for at.Before(now) {
		next, running := now, 0
		for _, r := range runs {
			if !r.Start.After(at) && r.End.After(at) {
				running++
			}
			for _, change := range [...]time.Time{r.Start, r.End} {
				if change.After(at) {
					next = timeutil.Earlier(next, change)
				}
			}
		}
		work += time.Duration(float64(next.Sub(at)) * scaling.Rate(running))
		at = next
	}
	return work.Truncate(time.Second)
}
