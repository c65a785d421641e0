package kube

import (
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestAbsent verifies that a program is considered running if one of its pods is ready, regardless of Leases, or if
// a process outside of its Deployment holds its Lease.
func TestAbsent(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	lease := func(name, holder string, age time.Duration) runtime.Object {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: name},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: new(int32(20)),
				RenewTime: new(metav1.NewMicroTime(now.Add(-age))),
			},
		}
	}
	pod := func(program string, ready v1.ConditionStatus, deleted *metav1.Time) runtime.Object {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ours", Name: "p", Labels: map[string]string{labelName: program}, DeletionTimestamp: deleted,
			},
			Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}},
		}
	}
	stopping := &metav1.Time{Time: now}
	const ended, nobody = "no pod of kubenergy-scheduler is ready", "its Lease is not held"
	for name, c := range map[string]struct {
		objects []runtime.Object
		refused string
		want    string
		fails   bool
	}{
		"nothing":                    {nil, "", ended, false},
		"a ready pod":                {[]runtime.Object{pod(Scheduler, v1.ConditionTrue, nil)}, "", "", false},
		"a pod that is not ready":    {[]runtime.Object{pod(Scheduler, v1.ConditionFalse, nil)}, "", ended, false},
		"a terminating pod":          {[]runtime.Object{pod(Scheduler, v1.ConditionTrue, stopping)}, "", ended, false},
		"a pod of another program":   {[]runtime.Object{pod("x", v1.ConditionTrue, nil)}, "", ended, false},
		"a Lease of a deleted pod":   {[]runtime.Object{lease(HoldLease, Scheduler+"-1_x", 0)}, "", ended, false},
		"a process elsewhere":        {[]runtime.Object{lease(HoldLease, "machine_x", 0)}, "", "", false},
		"a process of the scheduler": {[]runtime.Object{lease(Scheduler, "machine_x", 0)}, "", "", false},
		"an expired Lease":           {[]runtime.Object{lease(HoldLease, "machine_x", time.Minute)}, "", ended, false},
		"a released Lease":           {[]runtime.Object{lease(HoldLease, "", 0)}, "", ended, false},
		"no permission on pods":      {[]runtime.Object{lease(HoldLease, Scheduler+"-1_x", 0)}, "pods", "", false},
		"neither pods nor a Lease":   {nil, "pods", nobody, false},
		"no permission on Leases":    {nil, "leases", "", true},
		"a ready pod without Leases": {[]runtime.Object{pod(Scheduler, v1.ConditionTrue, nil)}, "leases", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(c.objects...)
			client.PrependReactor("*", c.refused, func(clienttesting.Action) (bool, runtime.Object, error) {
				return c.refused != "", nil, errors.New("forbidden")
			})
			why, err := Absent(t.Context(), client, "ours", Scheduler, now)
			if why != c.want || (err != nil) != c.fails {
				t.Errorf("%q, %v; want %q", why, err, c.want)
			}
		})
	}
}

// TestDeadline verifies that Jobs without a CronJob, or with an unknown one, only have their own deadline, and that
// no deadline is before the creation of its Job.
func TestDeadline(t *testing.T) {
	created := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	run, hourly := &Run{"c", created}, "0 * * * *"
	for _, c := range []struct {
		delay, duration, want time.Duration
		run                   *Run
		schedule              string
		concurrency           batchv1.ConcurrencyPolicy
		fails                 bool
	}{
		{delay: time.Hour, want: time.Hour},
		{delay: time.Hour, want: time.Hour, run: run},
		{
			delay: 9 * time.Hour, duration: time.Minute, want: time.Hour - tickMargin, run: run, schedule: hourly,
			concurrency: batchv1.AllowConcurrent,
		},
		{delay: time.Minute, want: time.Minute, run: run, schedule: hourly, concurrency: batchv1.AllowConcurrent},
		{ // a schedule without ticks, for runs that users create
			delay: 9 * time.Hour, want: 9 * time.Hour, run: run, schedule: "0 0 31 2 *",
			concurrency: batchv1.AllowConcurrent,
		},
		{
			delay: 9 * time.Hour, duration: time.Minute, want: 59*time.Minute - tickMargin, run: run, schedule: hourly,
			concurrency: batchv1.ForbidConcurrent,
		},
		{delay: time.Minute, want: time.Minute, run: run, schedule: hourly, concurrency: batchv1.ForbidConcurrent},
		{delay: 9 * time.Hour, duration: 2 * time.Hour, run: run, schedule: hourly, concurrency: batchv1.ReplaceConcurrent},
		{delay: time.Hour, run: run, schedule: "never", concurrency: batchv1.ForbidConcurrent, fails: true},
	} {
		var cron *batchv1.CronJob
		if c.schedule != "" {
			cron = &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: c.schedule, ConcurrencyPolicy: c.concurrency}}
		}
		job := &sched.Job{Submitted: created, AllowedDelay: c.delay, Duration: c.duration}
		got, err := Deadline(job, c.run, cron)
		if (err != nil) != c.fails || err == nil && got.Sub(created) != c.want {
			t.Errorf("%+v: %v, %v", c, got.Sub(created), err)
		}
	}
}

func TestWaitingRuns(t *testing.T) {
	after := time.Date(2026, 6, 1, 20, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		schedule      string
		delay, period time.Duration
		want          int
	}{
		{"*/10 * * * *", 6 * time.Hour, 10 * time.Minute, 36},
		{"*/10 9-17 * * *", 6 * time.Hour, 10 * time.Minute, 36}, // not before tomorrow
		{"*/10 * * * *", 11 * time.Minute, 10 * time.Minute, 2},
		{"*/10 * * * *", 10 * time.Minute, 10 * time.Minute, 1},
		{"0,5 * * * *", 6 * time.Minute, 5 * time.Minute, 2},
		{"* * * * *", 24 * time.Hour, time.Minute, 1440},
		{"0 22 * * *", 8 * time.Hour, 24 * time.Hour, 1},
		{"TZ=Asia/Kolkata 0 22 * * *", 30 * time.Hour, 24 * time.Hour, 2},
		{"@hourly", 2 * time.Hour, time.Hour, 2},
		{"0 0 31 2 *", 6 * time.Hour, 0, 0},
		{"whenever", 6 * time.Hour, 0, 0},
	} {
		job := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: c.schedule}}
		if runs, period := waitingRuns(job, after, c.delay); runs != c.want || period != c.period {
			t.Errorf("%s with %v: got %d runs, period %v; want %d, %v", c.schedule, c.delay, runs, period, c.want, c.period)
		}
	}
}
