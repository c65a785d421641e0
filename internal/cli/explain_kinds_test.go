package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/explain"
)

const (
	cronJobPath = "/apis/batch/v1/namespaces/ns/cronjobs"
	eventPath   = "/api/v1/namespaces/ns/events"
	budgetPath  = "/apis/kubenergy.io/v1alpha1/namespaces/ns/energybudgets"
)

// nightlyCron returns a CronJob that runs at 10:00 each day. Its Jobs run for 2 hours and may wait for 8.
func nightlyCron(change func(*batchv1.CronJob)) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: created("nightly", testNow.Add(-48*time.Hour))}
	c.Spec.Schedule, c.Spec.ConcurrencyPolicy = "0 10 * * *", batchv1.AllowConcurrent
	c.Spec.JobTemplate.Annotations = map[string]string{
		v1alpha1.AnnotationAllowedDelay: "8h", v1alpha1.AnnotationExpectedDuration: "2h",
	}
	c.Spec.JobTemplate.Spec.Template.Spec = podSpec()
	if change != nil {
		change(c)
	}
	return c
}

func TestExplainACronJob(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*batchv1.CronJob)
		state       string
		description string
		decided     bool
	}{
		"may wait": {nil, explain.StateScheduled, "The next Job is created at 10:00 UTC (in 1 h) and may be held until " +
			"18:00 UTC (in 9 h).", true},
		"may not overlap": {func(c *batchv1.CronJob) {
			c.Spec.Schedule, c.Spec.ConcurrencyPolicy = "0 */4 * * *", batchv1.ForbidConcurrent
		}, explain.StateScheduled, "created at 12:00 UTC (in 3 h) and may be held until 13:59 UTC (in 5 h).", true},
		"fills its time": {func(c *batchv1.CronJob) {
			c.Spec.Schedule, c.Spec.ConcurrencyPolicy = "0 * * * *", batchv1.ReplaceConcurrent
		}, explain.StateScheduled, "will not be held: the next one leaves no time to wait (concurrencyPolicy Replace).", true},
		"several would wait": {func(c *batchv1.CronJob) {
			c.Spec.Schedule = "*/10 * * * *"
		}, explain.StateScheduled, "created at 09:10 UTC (in 10 min) and may be held until 09:19 UTC", true},
		"suspended": {func(c *batchv1.CronJob) { c.Spec.Suspend = new(true) }, explain.StateSuspended, "creates no Jobs", true},
		"of nonsense": {
			func(c *batchv1.CronJob) { c.Spec.Schedule = "at ten" }, explain.StateSuspended,
			"The schedule is invalid", true,
		},
		"without a delay": {
			func(c *batchv1.CronJob) { c.Spec.JobTemplate.Annotations = nil }, explain.StateScheduled,
			"will not be held: no delay is allowed.", true,
		},
		"with a wrong delay": {func(c *batchv1.CronJob) {
			c.Spec.JobTemplate.Annotations[v1alpha1.AnnotationAllowedDelay] = "2d"
		}, explain.StateScheduled, "will not be held: its annotations are invalid.", true},
		"in another time zone": {
			func(c *batchv1.CronJob) { c.Spec.TimeZone = new("America/New_York") }, explain.StateScheduled,
			"The next Job is created at 15:00 UTC (in 6 h)", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := twoSites(t)
			a.add(t, cronJobPath, nightlyCron(c.change))
			x := explained(t, a, "cronjob", "nightly")
			if x.State != c.state || !strings.Contains(x.Sentence, c.description) {
				t.Errorf("got %s: %s; want %s and %q", x.State, x.Sentence, c.state, c.description)
			}
			if (x.Decision != nil) != c.decided || x.Placement == nil {
				t.Errorf("unexpected decision %+v or placement %+v", x.Decision, x.Placement)
			}
		})
	}
	a := twoSites(t)
	a.add(t, cronJobPath, nightlyCron(nil))
	code, stdout, stderr := a.run(t, "explain", "cj/nightly", "-n", "ns")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	golden(t, "explain_cronjob.golden", stdout)
	a.refused["list all namespaces"], a.refused["get namespaces"] = true, true
	if x := explained(t, a, "cronjob", "nightly"); !strings.Contains(x.Sentence, "it is unknown whether it may be held") {
		t.Errorf("unexpected sentence without permission to read namespaces: %q", x.Sentence)
	}
}

// The warning about several runs that would wait names their number and a delay that avoids it. CronJobs with runs that
// must not overlap have no warning.
func TestSeveralRunsWouldWait(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*batchv1.CronJob)
		want   string
	}{
		"every ten minutes": {func(*batchv1.CronJob) {}, "the allowed delay of 8 h exceeds the period of the CronJob, so 48 " +
			"runs would wait at once; each run is only held until the next one is due: reduce the delay to at most 10 min, " +
			"or run the CronJob less often"},
		"Forbid":  {func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent }, ""},
		"daily":   {func(c *batchv1.CronJob) { c.Spec.Schedule = "0 22 * * *" }, ""},
		"skipped": {func(c *batchv1.CronJob) { c.Spec.JobTemplate.Annotations[v1alpha1.AnnotationSkip] = "true" }, ""},
	} {
		a := twoSites(t)
		a.add(t, cronJobPath, nightlyCron(func(cron *batchv1.CronJob) {
			cron.Spec.Schedule = "*/10 * * * *"
			c.change(cron)
		}))
		_, explanation, _ := a.run(t, "explain", "cronjob", "nightly", "-n", "ns")
		_, findings, _ := a.run(t, "doctor")
		want, finding := "Warning: "+c.want+"\n", "ns/nightly: "+strings.Replace(c.want, " due: ", " due\n\t→ ", 1)
		if c.want == "" {
			want, finding = "", ""
		}
		findings = regexp.MustCompile(`\n +→`).ReplaceAllString(findings, "\n\t→")
		if strings.Contains(explanation, "at once") != (want != "") || !strings.Contains(explanation, want) {
			t.Errorf("%s: want %q, got %s", name, want, explanation)
		}
		if strings.Contains(findings, "at once") != (want != "") || !strings.Contains(findings, finding) {
			t.Errorf("%s: want %q, got %s", name, finding, findings)
		}
	}
}

// Ineffective keys on the template of a CronJob are reported, and the deadlines of its Jobs are evaluated as of
// now.
func TestExplainACronJobOfMistakes(t *testing.T) {
	a := twoSites(t)
	a.add(t, cronJobPath, nightlyCron(func(c *batchv1.CronJob) {
		c.Spec.JobTemplate.Annotations["kubenergy.io/allowed_delay"] = "6h"
		c.Spec.JobTemplate.Annotations[v1alpha1.AnnotationFinishBy] = "2026-03-01T00:00:00Z"
		c.Spec.JobTemplate.Annotations[v1alpha1.AnnotationAllowedDelay] = "900h"
	}))
	x := explained(t, a, "cronjob", "nightly")
	all := strings.Join(x.Warnings, "\n")
	for _, want := range []string{
		"did you mean kubenergy.io/allowed-delay?", "kubenergy.io/finish-by 1 Mar 00:00 UTC has passed, so the job starts immediately",
		"is 37 d 12 h, but at most 24 h is allowed",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("got warnings\n%s\nwant %q", all, want)
		}
	}
	if !strings.Contains(x.Sentence, "will not be held: kubenergy.io/finish-by 1 Mar 00:00 UTC has passed") {
		t.Error(x.Sentence)
	}
}

// Keys on a CronJob or a Deployment have no effect, and the warning contains the correct place.
func TestExplainKeysOnTheOwner(t *testing.T) {
	a := twoSites(t)
	a.add(t, cronJobPath, nightlyCron(func(c *batchv1.CronJob) {
		c.Labels = map[string]string{v1alpha1.LabelTeam: "a", v1alpha1.LabelWorkloadType: "batch"}
		c.Spec.JobTemplate.Labels = map[string]string{v1alpha1.LabelWorkloadType: "batch"} // correct, no warning
		delete(c.Spec.JobTemplate.Annotations, v1alpha1.AnnotationAllowedDelay)
		c.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "6h", "kubenergy.io/runnow": "true"}
	}))
	d := &appsv1.Deployment{ObjectMeta: created("web", testNow)}
	d.Spec.Template.Spec = podSpec()
	d.Annotations = map[string]string{v1alpha1.AnnotationStrategy: "energy"}
	a.add(t, "/apis/apps/v1/namespaces/ns/deployments", d)
	for kind, want := range map[string][]string{
		"cronjob/nightly": {
			"annotation kubenergy.io/allowed-delay of a CronJob has no effect: set it in spec.jobTemplate.metadata",
			"annotation kubenergy.io/runnow of a CronJob has no effect: unknown key (did you mean " +
				"kubenergy.io/run-now?)",
			"label kubenergy.io/team of a CronJob has no effect: set it in spec.jobTemplate.metadata",
		},
		"deployment/web": {
			"annotation kubenergy.io/strategy of a Deployment has no effect: set it in spec.template.metadata",
		},
	} {
		kind, name, _ := strings.Cut(kind, "/")
		if x := explained(t, a, kind, name); !slices.Equal(x.Warnings, want) {
			t.Errorf("%s: got warnings %q, want %q", kind, x.Warnings, want)
		}
	}
}

func TestExplainADeployment(t *testing.T) {
	a := twoSites(t)
	d := &appsv1.Deployment{ObjectMeta: created("web", testNow)}
	d.Spec.Replicas, d.Status.ReadyReplicas = new(int32(3)), 2
	d.Spec.Template.Spec = podSpec()
	d.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"}
	a.add(t, "/apis/apps/v1/namespaces/ns/deployments", d)
	x := explained(t, a, "deploy", "web")
	if x.State != explain.StatePlaced || !strings.Contains(x.Sentence, "2 of 3 pods ready. They are placed by the scheduler kubenergy "+
		"and never held") || x.Decision != nil {
		t.Errorf("got %s: %s, decision %+v", x.State, x.Sentence, x.Decision)
	}
	if len(x.Placement.Ranked) != 3 || x.Placement.Ranked[0].Node != "fr-small" {
		t.Errorf("unexpected ranking %+v", x.Placement.Ranked)
	}
	if len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], "the annotations request a hold, but the object is never held") {
		t.Errorf("unexpected warnings %q", x.Warnings)
	}
}

func TestExplainANamespace(t *testing.T) {
	a := twoSites(t)
	a.add(t, jobsIn("ns"), workJob("nightly"))
	p := &v1alpha1.EnergyPolicy{ObjectMeta: created("default", testNow)}
	p.Spec.AllowedDelay = &metav1.Duration{Duration: 30 * time.Hour}
	p.Status.Shadow = &v1alpha1.ShadowStatus{Decided: 40, Held: 12, SavedGrams: 340}
	a.add(t, "/apis/kubenergy.io/v1alpha1/namespaces/ns/energypolicies", p)
	b := &v1alpha1.EnergyBudget{ObjectMeta: created("month", testNow)}
	b.Spec.Period.Type, b.Status.Percent, b.Status.Suspended = "Month", 81.5, 2
	a.add(t, budgetPath, b)
	code, stdout, stderr := a.run(t, "explain", "namespace", "ns")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	golden(t, "explain_namespace.golden", stdout)
	for name, c := range map[string]struct {
		labels             map[string]string
		state, description string
	}{
		"quiet":     {map[string]string{v1alpha1.LabelMode: "shadow"}, explain.StateOptedIn, "no delay is allowed by default"},
		"elsewhere": {nil, explain.StateNotIn, "To opt in: kubectl label namespace elsewhere kubenergy.io/mode=shadow --overwrite."},
		"misspelled": {map[string]string{v1alpha1.LabelMode: "shadwo"}, explain.StateNotIn,
			"kubectl label namespace misspelled kubenergy.io/mode=shadow --overwrite."},
		"kube-system": {nil, explain.StateNotIn, "No workload is held: objects are never held in namespace kube-system."},
	} {
		a.add(t, "/api/v1/namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: c.labels}})
		if x := explained(t, a, "namespace", name); x.State != c.state || !strings.Contains(x.Sentence, c.description) {
			t.Errorf("%s: got %s: %s; want %s and %q", name, x.State, x.Sentence, c.state, c.description)
		}
	}
	if code, _, stderr := a.run(t, "explain", "ns", "none"); code != 1 ||
		stderr != "kubenergy: reading namespace none: not found\n" {
		t.Errorf("exit code %d: %q", code, stderr)
	}
}

// A tenant sees the settings of the namespace and a list of unknown ones.
func TestExplainANamespaceToATenant(t *testing.T) {
	a := twoSites(t)
	for _, all := range []string{"gridzones", "energypolicies", "energybudgets", "namespaces"} {
		a.refused["list all "+all] = true
	}
	a.refused["list energybudgets"], a.refused["list jobs"] = true, true
	x := explained(t, a, "namespace", "ns")
	if all := strings.Join(x.Unseen, "\n"); x.State != explain.StateOptedIn || x.Mode != "enforce" ||
		!strings.Contains(all, "energybudgets") || !strings.Contains(all, "held Jobs: forbidden") {
		t.Errorf("unexpected state %s, mode %s or unreadable resources: %s", x.State, x.Mode, all)
	}
	a.refused["get namespaces"] = true
	if x := explained(t, a, "namespace", "ns"); x.State != explain.UnknownMode || x.Mode != explain.UnknownMode {
		t.Errorf("unexpected state %s or mode %s: %s", x.State, x.Mode, x.Sentence)
	}
}

// Events of KubEnergy explain why a Job was not held. Events of other components or for other objects are ignored.
func TestExplainByEvents(t *testing.T) {
	a := twoSites(t)
	j := workJob("nightly")
	unheld(j)
	a.add(t, jobsIn("ns"), j)
	for i, e := range []v1.Event{
		{
			ReportingController: "job-controller", Reason: "NotHeld", Message: "of others",
			InvolvedObject: v1.ObjectReference{UID: j.UID},
		},
		{
			ReportingController: "kubenergy-scheduler", Reason: "NotHeld", Message: "not held: waiting saves nothing",
			InvolvedObject: v1.ObjectReference{UID: j.UID},
		},
		{
			ReportingController: "kubenergy-scheduler", Reason: "NotHeld", Message: "not held: of another",
			InvolvedObject: v1.ObjectReference{UID: "another"},
		},
	} {
		e.Name, e.EventTime = string(rune('a'+i)), metav1.NewMicroTime(testNow.Add(-time.Hour))
		a.add(t, eventPath, &e)
	}
	x := explained(t, a, "job", "nightly")
	if len(x.Events) != 1 || !strings.Contains(x.Sentence, "It was not held: waiting saves nothing.") {
		t.Errorf("%s: %+v", x.Sentence, x.Events)
	}
	if _, stdout, _ := a.run(t, "explain", "job", "nightly", "-n", "ns"); !strings.Contains(stdout, "Events\n") {
		t.Error(stdout)
	}
	a.refused["list events"] = true
	x = explained(t, a, "job", "nightly")
	if !strings.Contains(strings.Join(x.Unseen, "\n"), "events: forbidden") ||
		!strings.Contains(x.Sentence, "the event with the reason has expired") {
		t.Errorf("got %s, unreadable resources: %q", x.Sentence, x.Unseen)
	}
}

// Objects that use a scheduler that does not run get a warning with a command to fix them.
func TestExplainTheStranded(t *testing.T) {
	a := twoSites(t)
	gone(t, a)
	a.add(t, podPath, markedPod("train"))
	a.add(t, cronJobPath, nightlyCron(nil))
	waiting := workJob("waiting")
	waiting.Labels, waiting.Spec.Suspend = nil, nil
	a.add(t, jobsIn("ns"), waiting)
	for object, want := range map[string]string{
		"pod/train":       "kubectl -n ns get pod train -o yaml | sed",
		"cronjob/nightly": "kubectl -n ns patch cronjob nightly -p",
		"job/waiting":     "kubectl -n ns get job waiting -o yaml | sed",
		"pod/running":     "",
	} {
		all := strings.Join(explained(t, a, object).Warnings, "\n")
		if want == "" && strings.Contains(all, "pending") || !strings.Contains(all, want) {
			t.Errorf("%s: got warnings %q, want %q", object, all, want)
		}
	}
	a.refused["get leases"] = true
	x := explained(t, a, "pod/train")
	if !strings.Contains(strings.Join(x.Unseen, "\n"), "state of the scheduler kubenergy: forbidden") ||
		strings.Contains(strings.Join(x.Warnings, "\n"), "pending") {
		t.Errorf("got warnings %q, unreadable resources %q", x.Warnings, x.Unseen)
	}
	if !strings.Contains(x.Sentence, "no scheduler has processed it for 1 h") {
		t.Error(x.Sentence)
	}
}

// Explain takes the scheduler's environment variables into account if it can read them.
func TestExplainReadsTheSchedulersVariables(t *testing.T) {
	a := twoSites(t)
	d := deployment(cmdutil.SchedulerName, "example.org/s:1")
	d.Spec.Template.Spec.Containers[0].Env = []v1.EnvVar{{Name: "CARBON_INTENSITY_THRESHOLD", Value: "42"}}
	a.add(t, deploymentPath, d)
	p := markedPod("old")
	p.Spec.SchedulerName, p.Annotations = "compute-gardener-scheduler", nil
	a.add(t, podPath, p)
	threshold := func(x *explain.Explanation) string {
		for _, s := range x.Settings {
			if s.Name == "hold.carbonThreshold" {
				return s.Value
			}
		}
		return ""
	}
	if got := threshold(explained(t, a, "pod/old")); got != "42" {
		t.Errorf("got threshold %q, want 42", got)
	}
	a.refused["get deployments"] = true
	x := explained(t, a, "pod/old")
	if !strings.Contains(strings.Join(x.Unseen, "\n"), "environment variables of the scheduler: forbidden") {
		t.Errorf("unexpected unreadable resources: %q", x.Unseen)
	}
	a.add(t, podPath, markedPod("train"))
	if x := explained(t, a, "pod/train"); strings.Contains(strings.Join(x.Unseen, "\n"), "variables") {
		t.Errorf("unexpected unreadable resources for an unaffected pod: %q", x.Unseen)
	}
}

// In mode shadow, the event with the decision at the creation of a Job takes precedence over the current decision.
func TestExplainByShadowEvent(t *testing.T) {
	a := twoSites(t)
	j := workJob("nightly")
	unheld(j)
	a.add(t, jobsIn("quiet"), j)
	e := v1.Event{
		ObjectMeta: created("e", testNow), InvolvedObject: v1.ObjectReference{UID: j.UID}, Reason: "WouldHold",
		ReportingController: "kubenergy-controller", EventTime: metav1.NewMicroTime(testNow.Add(-time.Hour)),
		Message: "would be held until 2026-03-02T14:34:00Z: saves an estimated 80 %; starts by 2026-03-02T16:00:00Z at the " +
			"latest; to hold such work: kubectl label namespace quiet kubenergy.io/mode=enforce --overwrite",
	}
	a.add(t, "/api/v1/namespaces/quiet/events", &e)
	const want = "In mode enforce, it would have been held until 14:34 UTC: saves an estimated 80 %; starts by 16:00 UTC at " +
		"the latest. To enforce decisions: kubectl label namespace quiet kubenergy.io/mode=enforce --overwrite."
	if x := explained(t, a, "job", "nightly", "-n", "quiet"); !strings.HasSuffix(x.Sentence, want) {
		t.Errorf("got %q, want %q", x.Sentence, want)
	}
}
