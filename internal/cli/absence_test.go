package cli

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/explain"
)

const systemPods = "/api/v1/namespaces/kubenergy-system/pods"

// scaled sets up a scheduler that was just scaled to 0 or killed, so that its Leases are still fresh.
func scaled(t *testing.T, a *apiServer) {
	for _, name := range []string{cmdutil.SchedulerName, cmdutil.HoldLease} {
		l := lease(name, 3*time.Second)
		l.Spec.HolderIdentity = new("kubenergy-scheduler-6c5-x2_a-b")
		a.add(t, leasePath, l)
	}
}

func programPod(program, name string, ready v1.ConditionStatus) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": program}},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
		},
	}
}

// unplanned returns a held Job without annotations of a scheduler.
func unplanned(name string) *batchv1.Job {
	j := workJob(name)
	for _, key := range []string{
		v1alpha1.AnnotationHeldUntil, v1alpha1.AnnotationLatestStart, v1alpha1.AnnotationHeldReason,
	} {
		delete(j.Annotations, key)
	}
	return j
}

// Every command immediately reports that no scheduler runs and how held Jobs are released.
func TestNoSchedulerRuns(t *testing.T) {
	const why = "no scheduler is running (no pod of kubenergy-scheduler is ready)"
	for name, c := range map[string]struct {
		prepare          func(*testing.T, *apiServer)
		absent, released bool
	}{
		"scaled to 0": {scaled, true, true},
		"crashing": {func(t *testing.T, a *apiServer) {
			scaled(t, a)
			a.add(t, systemPods, programPod(cmdutil.SchedulerName, "kubenergy-scheduler-6c5-x2", v1.ConditionFalse))
		}, true, true},
		"neither runs": {func(t *testing.T, a *apiServer) {
			scaled(t, a)
			a.delete(systemPods + "/controller")
		}, true, false},
		"a standby is ready": {func(t *testing.T, a *apiServer) {
			scaled(t, a)
			a.add(t, systemPods, programPod(cmdutil.SchedulerName, "kubenergy-scheduler-6c5-x3", v1.ConditionTrue))
		}, false, true},
		"a process elsewhere": {func(t *testing.T, a *apiServer) {
			a.add(t, leasePath, lease(cmdutil.HoldLease, 3*time.Second))
		}, false, true},
		"no rights on Leases": {func(t *testing.T, a *apiServer) {
			scaled(t, a)
			a.refused["get leases"] = true
		}, false, true},
		"no rights on pods": {func(t *testing.T, a *apiServer) {
			scaled(t, a)
			a.refused["list pods"] = true
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := twoSites(t)
			a.add(t, systemPods, programPod(cmdutil.ControllerName, "controller", v1.ConditionTrue))
			a.add(t, jobsIn("ns"), unplanned("new"))
			c.prepare(t, a)
			x := explained(t, a, "job/new")
			if x.State != explain.StateHeld || strings.Contains(x.Sentence, why) != c.absent ||
				x.LatestStart == nil || !x.LatestStart.Equal(testNow.Add(7*time.Hour)) {
				t.Errorf("explain printed %s, latest start %v", x.Sentence, x.LatestStart)
			}
			_, stdout, stderr := a.run(t, "held", "-n", "ns")
			if strings.Contains(stderr, why) != c.absent || strings.Contains(stdout, "no scheduler is running") != c.absent ||
				!strings.Contains(stdout, "7 h") {
				t.Errorf("held printed %s%s", stdout, stderr)
			}
			code, stdout, stderr := a.run(t, "run-now", "job", "new", "-n", "ns")
			if (code == 0) != c.released || strings.Contains(stdout+stderr, why) != c.absent {
				t.Errorf("run-now exited with %d, %s%s", code, stdout, stderr)
			}
			if x := explained(t, a, "job/new"); x.Decision != nil || !strings.Contains(x.Sentence, "about to start") ||
				strings.Contains(x.Sentence, "within seconds") != (c.absent && c.released) {
				t.Errorf("explain printed %s after run-now, decision %+v", x.Sentence, x.Decision)
			}
			if a.add(t, podPath, markedPod("train")); c.absent {
				if code, _, stderr := a.run(t, "run-now", "pod", "train", "-n", "ns"); code != 1 ||
					!strings.Contains(stderr, "which is not running (no pod of kubenergy-scheduler is ready)") {
					t.Errorf("run-now of a pod exited with %d, %s", code, stderr)
				}
			}
		})
	}
}

// A run of a CronJob must finish before the next one.
func TestExplainTheRunOfACronJob(t *testing.T) {
	a := twoSites(t)
	c := nightlyCron(func(c *batchv1.CronJob) {
		c.Spec.Schedule, c.Spec.ConcurrencyPolicy = "0 */6 * * *", batchv1.ForbidConcurrent
	})
	a.add(t, cronJobPath, c)
	run := unplanned("run")
	run.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: c.Name, Controller: new(true),
	}}
	a.add(t, jobsIn("ns"), run)
	x := explained(t, a, "job/run")
	tick := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	if x.LatestStart == nil || !x.LatestStart.Before(tick) {
		t.Errorf("latest start is %v, next run is %v", x.LatestStart, tick)
	}
	a.refused["get cronjobs"] = true
	if x := explained(t, a, "job/run"); x.LatestStart == nil || !x.LatestStart.Equal(testNow.Add(7*time.Hour)) {
		t.Errorf("latest start is %v without permission to get CronJobs", x.LatestStart)
	}
}

// Doctor immediately detects that the holder of a Lease no longer exists.
func TestDoctorSeesThatTheHolderIsGone(t *testing.T) {
	a := healthy(t)
	a.add(t, systemPods, programPod(cmdutil.ControllerName, "controller", v1.ConditionTrue))
	scaled(t, a)
	code, stdout, _ := a.run(t, "doctor")
	for _, want := range []string{
		"Lease kubenergy-hold is held by kubenergy-scheduler-6c5-x2_a-b, a pod that no longer exists",
		"Jobs are suspended on creation, but no scheduler is running (no pod of kubenergy-scheduler is ready), so the " +
			"controller releases them at their latest start",
		"no scheduler serves pods with schedulerName",
	} {
		if code != 1 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, want %q:\n%s", code, want, stdout)
		}
	}
}
