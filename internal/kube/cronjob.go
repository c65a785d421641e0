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

// RunOf returns the run that an object is; nil if no CronJob controls it.
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

// Deadline returns the latest start of a Job: its creation plus the allowed delay, or earlier if the Job must finish by
// some time or before the next tick of its CronJob c. run is nil if no CronJob controls the Job; c is nil if it is not
// known. The deadline is never before the creation. The hold loop and the controller release by the same one.
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

// ReadDeadline is [Deadline] of a Job in a namespace. It reads the CronJob of a run from the API server.
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

// tickMargin stays between the expected end of a held run and the next tick of its CronJob.
const tickMargin = 10 * time.Second

// LatestRun returns the latest start of a CronJob's run such that it ends before the next tick: under Replace the
// CronJob controller deletes a run that is not finished then, held or not, and under Forbid it skips the next one. It
// returns the zero time where runs may overlap.
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

// NextTick reads a schedule as the CronJob controller does. Without a time zone that is the controller's own, and the
// time at which it says that a run was scheduled carries its offset.
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
