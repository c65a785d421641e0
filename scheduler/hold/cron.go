package hold

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// tickMargin stays between the expected end of a held run and the next tick of its CronJob.
const tickMargin = 10 * time.Second

// cronRun is which run of which CronJob a Job is.
type cronRun struct {
	cronJob   string
	scheduled time.Time
}

// cronLatest returns the latest start of a CronJob's run such that it ends before the next tick: under Replace the
// CronJob controller deletes a run that is not finished then, held or not, and under Forbid it skips the next one. It
// returns the zero time where runs may overlap.
func cronLatest(ctx context.Context, client kubernetes.Interface, namespace string, run *cronRun,
	duration time.Duration,
) (time.Time, error) {
	c, err := client.BatchV1().CronJobs(namespace).Get(ctx, run.cronJob, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("reading CronJob %s/%s: %w", namespace, run.cronJob, err)
	}
	if c.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent {
		return time.Time{}, nil
	}
	tick, err := nextTick(c, run.scheduled)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading CronJob %s/%s: %w", namespace, run.cronJob, err)
	}
	return tick.Add(-duration - tickMargin), nil
}

// nextTick reads a schedule as the CronJob controller does. Without a time zone that is the controller's own, and the
// time at which it says that the run was scheduled carries its offset.
func nextTick(c *batchv1.CronJob, scheduled time.Time) (time.Time, error) {
	text := c.Spec.Schedule
	if zone := c.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		text = "TZ=" + *zone + " " + text
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule: %w", err)
	}
	tick := schedule.Next(scheduled)
	if tick.IsZero() {
		return time.Time{}, fmt.Errorf("schedule %q has no next tick", text)
	}
	return tick, nil
}
