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

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
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
// Job must finish by a given time or if the next run of its CronJob c is due before that, see [LatestRun]. run is nil
// if the Job is not controlled by a CronJob, and c is nil if the CronJob is unknown. The deadline is never before the
// creation time. It is used by both the hold loop and the controller.
func Deadline(job *sched.Job, run *Run, c *batchv1.CronJob) (time.Time, error) {
	latest := job.LatestStart()
	if run == nil || c == nil {
		return latest, nil
	}
	end, err := LatestRun(c, run.Scheduled, job.Unfinished())
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

// tickMargin is the minimum time between the latest start of a run, or its expected end if runs must not overlap, and
// the next tick of its CronJob.
const tickMargin = 10 * time.Second

// LatestRun returns the latest start of a CronJob's run. If runs may overlap (concurrency policy Allow), this is before
// the next tick, so that at most one run waits. Otherwise the run must also be expected to finish before the next tick:
// with Replace, the CronJob controller deletes an unfinished run at the next tick, even if it is held, and with Forbid,
// it skips the next run. LatestRun returns the zero time if the schedule has no further tick.
func LatestRun(c *batchv1.CronJob, scheduled time.Time, duration time.Duration) (time.Time, error) {
	tick, err := NextTick(c, scheduled)
	if err != nil || tick.IsZero() {
		return time.Time{}, err
	}
	if c.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent {
		duration = 0
	}
	return tick.Add(-duration - tickMargin), nil
}

// NextTick returns the next time of the schedule after the given time, or the zero time if there is none. It interprets
// schedules like the CronJob controller. The default time zone is the zone of that controller, which is the offset of
// the scheduled time in a Job's annotation.
func NextTick(c *batchv1.CronJob, after time.Time) (time.Time, error) {
	text := c.Spec.Schedule
	if zone := c.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		text = "TZ=" + *zone + " " + text
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule: %w", err)
	}
	return schedule.Next(after), nil
}

// NextRun returns the Job that a CronJob would create at the given time.
func NextRun(c *batchv1.CronJob, now time.Time) *batchv1.Job {
	template := c.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	job.Namespace, job.Name, job.CreationTimestamp = c.Namespace, c.Name, metav1.NewTime(now)
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, batchv1.SchemeGroupVersion.WithKind(
		"CronJob"))}
	return job
}

// maxTicks limits the ticks that waitingRuns considers. It exceeds the number of minutes in a day.
const maxTicks = 1500

// waitingRuns returns the maximum number of runs that would wait at the same time after a given time if each run waited
// for the whole delay, and the shortest period between two ticks. It returns 0 if the schedule is invalid.
func waitingRuns(c *batchv1.CronJob, after time.Time, delay time.Duration) (runs int, period time.Duration) {
	var ticks []time.Time
	first := 0 // oldest run that still waits
	for n := range maxTicks {
		tick, err := NextTick(c, after)
		if err != nil || tick.IsZero() {
			break
		}
		if n == 1 || n > 1 && tick.Sub(after) < period {
			period = tick.Sub(after)
		}
		for ticks, after = append(ticks, tick), tick; first < n && !ticks[first].Add(delay).After(tick); {
			first++
		}
		runs = max(runs, n+1-first)
	}
	return runs, period
}

// FindRuns returns a finding if runs of a CronJob may overlap, and the allowed delay of run, one of its Jobs, exceeds
// the period of the CronJob. Without the limit of [LatestRun], several runs would then wait and start together. c is
// nil if the CronJob is unknown.
func FindRuns(view *View, c *batchv1.CronJob, run *batchv1.Job) []policy.Finding {
	work, err := policy.ReadJob(run)
	_, never := policy.NeverHeldJob(run)
	job, settings := view.Settle(&work)
	if c == nil || c.Spec.ConcurrencyPolicy != batchv1.AllowConcurrent || err != nil || never || !settings.Ours ||
		settings.Mode == v1alpha1.ModeOff {
		return nil
	}
	runs, period := waitingRuns(c, work.Submitted, job.AllowedDelay)
	if runs < 2 {
		return nil
	}
	return []policy.Finding{{
		Said: fmt.Sprintf("the allowed delay of %v exceeds the period of the CronJob, so %d runs would wait at once; "+
			"each run is only held until the next one is due", job.AllowedDelay, runs),
		Mend:    fmt.Sprintf("reduce the delay to at most %v, or run the CronJob less often", period),
		Reduced: true,
	}}
}
