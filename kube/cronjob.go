package kube

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

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
