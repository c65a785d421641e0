package hold

import (
	"context"
	"fmt"
	"slices"
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

// scale changes the number of pods of a Job. ok is false without an error if the Job was changed concurrently.
func (p *pauser) scale(ctx context.Context, view *kube.View, j *batchv1.Job, d *asked, now time.Time) (ok bool,
	err error,
) {
	question := view.Question(now, d.job, d.settings)
	m := &d.work.Marks
	m.Scale(d.ran, now)
	if ok, err = p.patch(ctx, j, kube.ScalePatch(j, d.Replicas, m.State(j.UID))); !ok {
		return false, err
	}
	text := fmt.Sprintf("scaled from %d to %d replicas: %v", policy.Parallelism(j), d.Replicas, d.Reason)
	p.l.post(func() {
		p.l.queueEvent(p.l.jobs.object(j.UID, j.Namespace, j.Name), v1.EventTypeNormal, reasonScaled, text)
		p.l.record(record.Scale, j, now, d, ledger.Record{Message: text}, question)
	})
	return true, nil
}

// worked returns the work of a Job since it started or was scaled, including repeated work, given the runs of its pods,
// ordered by start. A Job without replicas is assumed to work as soon as one of its pods does.
func worked(m *policy.Marks, scaling *sched.Scaling, runs []sched.Window, now time.Time) (work time.Duration) {
	now = now.Truncate(time.Second) // the resolution of the state in annotations
	at := timeutil.Later(runs[0].Start, m.ScaledAt)
	if scaling == nil {
		return max(0, now.Sub(at))
	}
	type change struct {
		at time.Time
		by int
	}
	changes := []change{{now, 0}}
	running := 0
	for _, r := range runs {
		if !r.End.After(at) || !r.Start.Before(now) {
			continue
		}
		if changes = append(changes, change{timeutil.Later(r.Start, at), 1}); r.End.Before(now) {
			changes = append(changes, change{r.End, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	for _, c := range changes {
		work += time.Duration(float64(c.at.Sub(at)) * scaling.Rate(running))
		at, running = c.at, running+c.by
	}
	return work.Truncate(time.Second)
}
