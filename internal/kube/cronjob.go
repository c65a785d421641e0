package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Run identifies a Job as a run of a CronJob in its namespace.
type Run struct {
	CronJob   string
	Scheduled time.Time
}

// RunOf returns the run that an object represents, or nil if it is not controlled by a CronJob.
func RunOf(o metav1.Object) *Run {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "CronJob" {
		return nil
	}
	scheduled, err := time.Parse(time.RFC3339, o.GetAnnotations()[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil || scheduled.IsZero() {
		scheduled = o.GetCreationTimestamp().Time
	}
	return &Run{CronJob: owner.Name, Scheduled: scheduled}
}

// Deadline returns the latest start of a Job. This is its creation time plus the allowed delay, or earlier if the
// Job must finish by a given time or before the next tick of its CronJob c. run is nil if the Job is not controlled
// by a CronJob, and c is nil if the CronJob is unknown. The deadline is never before the creation time. It is used
// by both the hold loop and the controller.
func Deadline(job *sched.Job, run *Run, c *batchv1.CronJob) (time.Time, error) {
	latest := job.LatestStart()
	if run == nil || c == nil {
		return latest, nil
	}
	end, err := LatestRun(c, run.Scheduled, job.Duration)
	if err != nil || end.IsZero() {
		return latest, err
	}
	return timeutil.Later(timeutil.Earlier(latest, end), job.Submitted), nil
}

// ReadDeadline is like [Deadline], but reads the CronJob of the run from the API server.
func ReadDeadline(ctx context.Context, client kubernetes.Interface, namespace string, job *sched.Job, run *Run,
) (latest time.Time, err error) {
	if run == nil {
		return job.LatestStart(), nil
	}
	c, err := client.BatchV1().CronJobs(namespace).Get(ctx, run.CronJob, metav1.GetOptions{})
	if err == nil {
		latest, err = Deadline(job, run, c)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading CronJob %s/%s: %w", namespace, run.CronJob, err)
	}
	return latest, nil
}

// tickMargin is the minimum time between the expected end of a held run and the next tick of its CronJob.
const tickMargin = 10 * time.Second

// LatestRun returns the latest start of a CronJob's run that lets it finish before the next tick. With the
// concurrency policy Replace, the CronJob controller deletes an unfinished run at the next tick, even if it is
// held. With Forbid, it skips the next run. LatestRun returns the zero time if runs may overlap.
func LatestRun(c *batchv1.CronJob, scheduled time.Time, duration time.Duration) (time.Time, error) {
	if c.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent {
		return time.Time{}, nil
	}
	tick, err := NextTick(c, scheduled)
	if err != nil {
		return time.Time{}, err
	}
	return tick.Add(-duration - tickMargin), nil
}

// NextTick returns the next time of the schedule after the given time. It interprets schedules like the CronJob
// controller. The default time zone is the zone of that controller, which is the offset of the scheduled time in a
// Job's annotation.
func NextTick(c *batchv1.CronJob, after time.Time) (time.Time, error) {
	text := c.Spec.Schedule
	if zone := c.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		text = "TZ=" + *zone + " " + text
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule: %w", err)
	}
	tick := schedule.Next(after)
	if tick.IsZero() {
		return time.Time{}, fmt.Errorf("schedule %q has no next tick", text)
	}
	return tick, nil
}
