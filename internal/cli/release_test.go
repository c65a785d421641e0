package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/release"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

const policyPath = "/apis/admissionregistration.k8s.io/v1/"

func jobsIn(namespace string) string { return "/apis/batch/v1/namespaces/" + namespace + "/jobs" }

func heldJob(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelHeld: "true", "app": "a"},
			Annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"},
		},
		Spec: batchv1.JobSpec{Suspend: new(true)},
	}
}

func suspended(o *unstructured.Unstructured) bool {
	s, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	return s
}

func wantFree(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if _, held := o.GetLabels()[v1alpha1.LabelHeld]; held || suspended(o) {
		t.Errorf("%s: labels %v, suspended %v", o.GetName(), o.GetLabels(), suspended(o))
	}
	if stamp := o.GetAnnotations()[v1alpha1.AnnotationReleasedAt]; stamp != testNow.Format(time.RFC3339) {
		t.Errorf("%s: released-at is %q", o.GetName(), stamp)
	}
}

func TestReleaseAll(t *testing.T) {
	a := newAPIServer(t)
	const n = 560 // two pages
	for i := range n {
		a.add(t, jobsIn(fmt.Sprintf("ns%d", i%3)), heldJob(fmt.Sprintf("job-%04d", i)))
	}
	bare := heldJob("bare")
	bare.Annotations = nil
	a.add(t, jobsIn("ns0"), bare)
	own := heldJob("users-own")
	own.Labels = nil
	a.add(t, jobsIn("ns0"), own)
	queued := heldJob("queued")
	queued.Labels[policy.LabelKueueQueue] = "q"
	a.add(t, jobsIn("ns0"), queued)

	code, stdout, stderr := a.run(t, "release", "--all")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if want := "562 Jobs released, no Job is held\n"; stdout != want {
		t.Errorf("got output %q, want %q", stdout, want)
	}
	for i := range n {
		wantFree(t, a.get(t, fmt.Sprintf("%s/job-%04d", jobsIn(fmt.Sprintf("ns%d", i%3)), i)))
	}
	wantFree(t, a.get(t, jobsIn("ns0")+"/bare"))
	if !suspended(a.get(t, jobsIn("ns0")+"/users-own")) {
		t.Error("a Job suspended by its user was resumed")
	}
	if o := a.get(t, jobsIn("ns0")+"/queued"); !suspended(o) || o.GetLabels()[v1alpha1.LabelHeld] != "" {
		t.Errorf("Job in a queue of Kueue: suspended %v, labels %v", suspended(o), o.GetLabels())
	}
	if a.busiest > release.Workers+1 {
		t.Errorf("got %d concurrent requests", a.busiest)
	}

	writes := a.writes
	if code, stdout, stderr = a.run(t, "release", "--all"); code != 0 || stdout != "0 Jobs released, no Job is held\n" {
		t.Errorf("second run: exit code %d, %q, %q", code, stdout, stderr)
	}
	if a.writes != writes {
		t.Error("unexpected write requests in the second run")
	}
}

// A Job that a budget has suspended is released like a held Job, both individually and with --all.
func TestReleaseOfABudget(t *testing.T) {
	a := newAPIServer(t)
	fn := func(name string, labels map[string]string) *batchv1.Job {
		j := heldJob(name)
		j.Labels, j.Annotations = labels, map[string]string{
			v1alpha1.AnnotationBudgetSuspendedTill: "2026-07-01T00:00:00Z", "a": "b",
		}
		return j
	}
	for _, j := range []*batchv1.Job{
		fn("one", map[string]string{v1alpha1.LabelBudgetSuspended: "month"}),
		fn("two", map[string]string{v1alpha1.LabelBudgetSuspended: "month", "app": "x"}),
		fn("both", map[string]string{v1alpha1.LabelBudgetSuspended: "month", v1alpha1.LabelHeld: "true"}),
		fn("users-own", nil),
		fn("queued", map[string]string{v1alpha1.LabelBudgetSuspended: "month", policy.LabelKueueQueue: "q"}),
	} {
		a.add(t, jobsIn("ns"), j)
	}
	if code, stdout, stderr := a.run(t, "release", "job", "one", "-n", "ns"); code != 0 ||
		stdout != "job ns/one: released\n" {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if !suspended(a.get(t, jobsIn("ns")+"/two")) {
		t.Error("another Job was released")
	}
	if code, stdout, stderr := a.run(t, "release", "--all"); code != 0 || stdout != "4 Jobs released, no Job is held\n" {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	for _, name := range []string{"one", "two", "both", "queued"} {
		o := a.get(t, jobsIn("ns")+"/"+name)
		_, held := o.GetLabels()[v1alpha1.LabelHeld]
		_, budget := o.GetLabels()[v1alpha1.LabelBudgetSuspended]
		_, till := o.GetAnnotations()[v1alpha1.AnnotationBudgetSuspendedTill]
		if held || budget || till || suspended(o) != (name == "queued") {
			t.Errorf("%s: labels %v, annotations %v, suspended %v", name, o.GetLabels(), o.GetAnnotations(),
				suspended(o))
		}
		if o.GetAnnotations()[v1alpha1.AnnotationBudgetReleased] != "month" || o.GetAnnotations()["a"] != "b" {
			t.Errorf("%s would be suspended again, annotations %v", name, o.GetAnnotations())
		}
	}
	if !suspended(a.get(t, jobsIn("ns")+"/users-own")) {
		t.Error("a Job suspended by its user was resumed")
	}
}

func TestReleaseAllOfANamespace(t *testing.T) {
	a := newAPIServer(t)
	a.add(t, jobsIn("here"), heldJob("one"))
	a.add(t, jobsIn("there"), heldJob("two"))
	if code, stdout, stderr := a.run(t, "release", "--all", "-n", "here"); code != 0 ||
		stdout != "1 Job released, no Job is held\n" {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	wantFree(t, a.get(t, jobsIn("here")+"/one"))
	if !suspended(a.get(t, jobsIn("there")+"/two")) {
		t.Error("a Job of another namespace was released")
	}
}

// An uninstallation removes the policy before it releases Jobs, because new Jobs would be held otherwise.
func TestReleaseRemovesThePolicyFirst(t *testing.T) {
	a := newAPIServer(t)
	for _, kind := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		a.add(t, policyPath+kind, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: kube.HoldPolicy}})
	}
	a.add(t, jobsIn("ns"), heldJob("one"))
	var order []string
	a.before = func(method, path string) int {
		order = append(order, method+" "+path[strings.LastIndex(path[:strings.LastIndex(path, "/")], "/")+1:])
		return 0
	}
	r, out := releaserOf(t, a)
	if err := r.RemovePolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Admitted by an API server that has not reloaded its policies.
	late := time.AfterFunc(20*time.Millisecond, func() { a.add(t, jobsIn("ns"), heldJob("late")) })
	defer late.Stop()
	if err := r.All(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if out.String() != "2 Jobs released, no Job is held\n" {
		t.Errorf("unexpected output %q", out)
	}
	want := []string{
		"DELETE mutatingadmissionpolicybindings/" + kube.HoldPolicy, "DELETE mutatingadmissionpolicies/" + kube.HoldPolicy,
		"PATCH jobs/one", "PATCH jobs/late",
	}
	if strings.Join(order, "\n") != strings.Join(want, "\n") {
		t.Errorf("wrote\n%s\nwant\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
	if err := r.RemovePolicy(t.Context()); err != nil {
		t.Errorf("second run: %v", err)
	}
}

func releaserOf(t *testing.T, a *apiServer) (*release.Releaser, *bytes.Buffer) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", a.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cmdutil.Clients(config)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	return &release.Releaser{
		Client: client, Out: &out, Err: io.Discard, Now: time.Now, Settle: 100 * time.Millisecond,
		Pause: 10 * time.Millisecond,
	}, &out
}

func TestReleaseTriesAgain(t *testing.T) {
	a := newAPIServer(t)
	a.add(t, jobsIn("ns"), heldJob("one"))
	var calls atomic.Int32
	a.before = func(string, string) int {
		if calls.Add(1) <= 3 {
			return http.StatusInternalServerError
		}
		return 0
	}
	r, out := releaserOf(t, a)
	var reported bytes.Buffer
	r.Err = &reported
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := r.All(ctx, ""); err != nil || out.String() != "1 Job released, no Job is held\n" {
		t.Errorf("error %v, output %q after %d calls", err, out, calls.Load())
	}
	until, _ := ctx.Deadline()
	if want := "Retrying until " + until.Format(time.TimeOnly) + " (--timeout): "; !strings.HasPrefix(reported.String(),
		want) || strings.Count(reported.String(), "\n") != 1 {
		t.Errorf("got messages %q, want one line with prefix %q", &reported, want)
	}
}

// Jobs may be deleted, replaced by others with the same name, or released by others concurrently.
func TestReleaseMeetsChangedJobs(t *testing.T) {
	a := newAPIServer(t)
	for _, name := range []string{"deleted", "replaced", "released", "taken-over"} {
		a.add(t, jobsIn("ns"), heldJob(name))
	}
	a.before = func(method, path string) int {
		if method != http.MethodPatch {
			return 0
		}
		switch name := path[strings.LastIndex(path, "/")+1:]; name {
		case "deleted":
			a.delete(path)
		case "replaced":
			other := heldJob(name)
			other.UID, other.Labels = "another", nil
			a.add(t, jobsIn("ns"), other)
		case "released", "taken-over":
			other := heldJob(name)
			other.Labels = nil
			other.Spec.Suspend = new(name == "taken-over")
			a.add(t, jobsIn("ns"), other)
		}
		return 0
	}
	r, out := releaserOf(t, a)
	if err := r.All(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if out.String() != "0 Jobs released, no Job is held\n" {
		t.Errorf("unexpected output %q", out)
	}
	for _, name := range []string{"replaced", "taken-over"} {
		if !suspended(a.get(t, jobsIn("ns")+"/"+name)) {
			t.Errorf("%s was resumed", name)
		}
	}
}

func TestReleaseNamesWhatItCannot(t *testing.T) {
	a := newAPIServer(t)
	for i := range 12 {
		a.add(t, jobsIn("ns"), heldJob(fmt.Sprintf("job-%02d", i)))
	}
	a.refused["patch jobs"] = true
	code, stdout, stderr := a.run(t, "release", "--all")
	if code != 1 || stdout != "" {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
	for _, want := range []string{
		"0 Jobs released, 12 Jobs still held: ns/job-00, ", "ns/job-09, and 2 more", "forbidden",
	} {
		if !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("got error %q, want one line with %q", stderr, want)
		}
	}
	a.refused["patch jobs"], a.refused["list jobs"] = false, true
	if code, _, stderr = a.run(t, "release", "--all"); code != 1 ||
		!strings.Contains(stderr, "listing held Jobs: forbidden") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestReleaseGivesUpInTime(t *testing.T) {
	a := newAPIServer(t)
	a.add(t, jobsIn("ns"), heldJob("stubborn"))
	a.before = func(string, string) int { return http.StatusInternalServerError }
	code, _, stderr := a.run(t, "release", "--all", "--timeout", "300ms")
	if code != 1 || !strings.Contains(stderr, "ns/stubborn") && !strings.Contains(stderr, "unknown whether") ||
		!strings.HasPrefix(stderr, "Retrying until ") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestReleaseOneJob(t *testing.T) {
	a := newAPIServer(t)
	a.add(t, jobsIn("ns"), heldJob("one"))
	other := heldJob("other")
	other.Labels = nil
	a.add(t, jobsIn("ns"), other)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"release", "job", "one", "-n", "ns"}, 0, "job ns/one: released\n"},
		{[]string{"release", "job/one", "-n", "ns"}, 0, "job ns/one: not held by KubEnergy, unchanged\n"},
		{[]string{"release", "job/other", "-n", "ns"}, 0, "job ns/other: not held by KubEnergy, unchanged\n"},
		{[]string{"release", "job", "none", "-n", "ns"}, 1, "reading Job ns/none: not found"},
	} {
		if code, stdout, stderr := a.run(t, c.args...); code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%v: exit code %d, %q %q", c.args, code, stdout, stderr)
		}
	}
	wantFree(t, a.get(t, jobsIn("ns")+"/one"))
	if !suspended(a.get(t, jobsIn("ns")+"/other")) {
		t.Error("a Job suspended by its user was resumed")
	}
}

func TestReleaseTellsOfPodsThatWait(t *testing.T) {
	a := newAPIServer(t)
	a.add(t, leasePath, lease(cmdutil.SchedulerName, 3*time.Second))
	web := deployment("web", "example.org/web:1") // uses a scheduler that still runs
	web.Spec.Template.Spec.SchedulerName = policy.SchedulerName
	a.add(t, "/apis/apps/v1/namespaces/ns/deployments", web)
	for _, p := range []struct{ name, scheduler, node string }{
		{"waits", policy.SchedulerName, ""},
		{"runs", policy.SchedulerName, "n1"},
		{"others", "default-scheduler", ""},
		{"old", policy.GardenerSchedulerName, ""},
	} {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: v1.PodSpec{SchedulerName: p.scheduler, NodeName: p.node},
		}
		pod.Status.Phase = v1.PodPending
		a.add(t, "/api/v1/namespaces/ns/pods", pod)
	}
	_, _, stderr := a.run(t, "release", "--all")
	const to = "$/schedulerName: default-scheduler/' | kubectl replace --force -f -\n"
	want := "1 pod is waiting for the scheduler compute-gardener-scheduler and remains pending while no such scheduler is running: " +
		"ns/old\n  → kubectl -n ns get pod old -o yaml | sed '/controller-uid: /d; s/schedulerName: compute-gardener-scheduler" + to +
		"1 pod is waiting for the scheduler kubenergy and remains pending while no such scheduler is running: ns/waits\n" +
		"  → kubectl -n ns get pod waits -o yaml | sed '/controller-uid: /d; s/schedulerName: kubenergy" + to
	if stderr != want {
		t.Errorf("said\n%swant\n%s", stderr, want)
	}
	a.refused["list pods"] = true
	if code, _, stderr := a.run(t, "release", "--all"); code != 0 ||
		stderr != "Failed to list pods: forbidden: pods is forbidden: access denied\n" {
		t.Errorf("without permission to list pods: exit code %d, %q", code, stderr)
	}
}

// Before an uninstallation, dependent objects are listed with a command per kind while the scheduler still runs.
func TestReleaseForGoodTellsOfWhatNamesUs(t *testing.T) {
	a := healthy(t)
	web := deployment("web", "example.org/web:1")
	web.Spec.Template.Spec.SchedulerName = policy.SchedulerName
	a.add(t, "/apis/apps/v1/namespaces/ns/deployments", web)
	other := deployment("other", "example.org/web:1")
	a.add(t, "/apis/apps/v1/namespaces/ns/deployments", other)
	nightly := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}
	nightly.Spec.JobTemplate.Spec.Template.Spec.SchedulerName = policy.SchedulerName
	a.add(t, "/apis/batch/v1/namespaces/ns/cronjobs", nightly)
	for _, name := range []string{"train", "train-again", "runs", "done"} {
		j := heldJob(name)
		j.Spec.Template.Spec.SchedulerName = policy.SchedulerName
		switch name {
		case "runs": // and continues to run
			j.Labels, j.Status.Active, j.Status.Ready = nil, 2, new(int32(2))
		case "done":
			j.Labels = nil
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
		}
		a.add(t, jobsIn("ns"), j)
	}
	pod := markedPod("train-x")
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", Controller: new(true)}}
	a.add(t, "/api/v1/namespaces/ns/pods", pod)
	pod = markedPod("web-5d-x")
	pod.Labels = map[string]string{"pod-template-hash": "5d"}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d", Controller: new(true)}}
	a.add(t, "/api/v1/namespaces/ns/pods", pod)
	pod = markedPod("db-0")
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}
	a.add(t, "/api/v1/namespaces/ns/pods", pod)
	r, _ := releaserOf(t, a)
	r.Now = func() time.Time { return testNow }
	var out bytes.Buffer
	r.NoteDependents(t.Context(), &out, "", true)
	golden(t, "release_names.golden", out.String())
	a.refused["list jobs"] = true
	out.Reset()
	r.NoteDependents(t.Context(), &out, "", true)
	for _, want := range []string{
		"Failed to list Jobs: forbidden", "2 pods are waiting for the scheduler kubenergy and remain pending while no such scheduler " +
			"is running: ns/db-0, ns/train-x\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("without permission to list Jobs: got\n%swant %q", out.String(), want)
		}
	}
	a.delete("/api/v1/namespaces/ns/pods/db-0")
	out.Reset()
	r.NoteDependents(t.Context(), &out, "", true)
	if want := "→ kubectl -n ns get job train -o yaml | sed"; !strings.Contains(out.String(), want) {
		t.Errorf("without permission to list Jobs: got\n%swant %q", out.String(), want)
	}
	for _, kind := range []string{"pods", "cronjobs", "deployments"} {
		a.refused["list "+kind] = true
	}
	out.Reset()
	r.NoteDependents(t.Context(), &out, "", true)
	for _, kind := range []string{"pods", "Jobs", "CronJobs", "Deployments"} {
		if !strings.Contains(out.String(), "Failed to list "+kind+": forbidden") {
			t.Errorf("without permissions: got\n%swant an error about %s", out.String(), kind)
		}
	}
}

func TestRunNow(t *testing.T) {
	a := newAPIServer(t)
	a.add(t, leasePath, lease(cmdutil.HoldLease, 3*time.Second))
	a.add(t, jobsIn("ns"), heldJob("held"))
	own := heldJob("own")
	own.Labels = nil
	a.add(t, jobsIn("ns"), own)
	over := heldJob("over")
	over.Labels = map[string]string{v1alpha1.LabelBudgetSuspended: "month"}
	a.add(t, jobsIn("ns"), over)
	free := heldJob("free")
	free.Labels, free.Spec.Suspend = nil, nil
	a.add(t, jobsIn("ns"), free)
	a.add(t, "/api/v1/namespaces/ns/pods", &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waits"}})
	a.add(t, "/api/v1/namespaces/ns/pods", &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bound"}, Spec: v1.PodSpec{NodeName: "n1"},
	})
	for _, c := range []struct{ kind, name, want string }{
		{"job", "held", "requested to start now"},
		{"job", "own", "marked, but suspended by its user, so it remains suspended"},
		{
			"job", "over", "marked, but suspended because of a budget (kubenergy.io/budget-suspended): users with the role " +
				"kubenergy-releaser can resume it with kubenergy release",
		},
		{"jobs.batch", "free", "was not held"},
		{"pod", "waits", "requested to start now"},
		{"po", "bound", "already scheduled to n1"},
	} {
		code, stdout, stderr := a.run(t, "run-now", c.kind, c.name, "-n", "ns")
		if code != 0 || !strings.HasSuffix(stdout, "ns/"+c.name+": "+c.want+"\n") {
			t.Errorf("%s %s: exit code %d, %q %q", c.kind, c.name, code, stdout, stderr)
		}
	}
	o := a.get(t, jobsIn("ns")+"/held")
	if o.GetAnnotations()[v1alpha1.AnnotationRunNow] != "true" ||
		o.GetAnnotations()[v1alpha1.AnnotationAllowedDelay] != "6h" ||
		!suspended(o) {
		t.Errorf("annotations %v, suspended %v", o.GetAnnotations(), suspended(o))
	}
	if code, _, stderr := a.run(t, "run-now", "pod", "none", "-n", "ns"); code != 1 ||
		!strings.Contains(stderr, "annotating pod ns/none: not found") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// The patch is allowed by the policy that restricts the accounts of KubEnergy to its own keys and spec.suspend.
func TestReleasePatchTouchesOnlyOurs(t *testing.T) {
	job := heldJob("one")
	for _, annotations := range []map[string]string{nil, {"a": "b"}} {
		job.Annotations = annotations
		var steps []struct{ Op, Path string }
		if err := json.Unmarshal(release.Patch(job, testNow), &steps); err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			ours := strings.Contains(s.Path, "kubenergy.io~1") || s.Path == "/spec/suspend" ||
				annotations == nil && s.Path == "/metadata/annotations"
			if s.Op != "test" && !ours {
				t.Errorf("unexpected operation with annotations %v: %s %s", annotations, s.Op, s.Path)
			}
		}
		if steps[0].Op != "test" || steps[0].Path != "/metadata/uid" || steps[1].Op != "test" {
			t.Errorf("patch starts with %v, want test operations first", steps[:2])
		}
	}
}
