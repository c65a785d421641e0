package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/explain"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

const podPath = "/api/v1/namespaces/ns/pods"

// twoSites returns a cluster with a clean and a dirty zone and different nodes.
func twoSites(t *testing.T) *apiServer {
	t.Helper()
	a := newAPIServer(t)
	a.add(t, leasePath, lease(cmdutil.SchedulerName, 3*time.Second))
	a.add(t, zonePath, zone("DE"))
	clean := zone("FR")
	clean.Spec.Default = false
	for i := range clean.Status.Carbon.Values {
		clean.Status.Carbon.Values[i] /= 10
	}
	clean.Status.Carbon.Now, clean.Status.Carbon.Low, clean.Status.Carbon.High = 30, nil, nil
	a.add(t, zonePath, clean)
	a.add(t, profilePath, profile("small", map[string]string{"kind": "small"}, 20, 60))
	a.add(t, profilePath, profile("big", map[string]string{"kind": "big"}, 100, 400))
	a.add(t, nodePath, node("de-small", map[string]string{"kind": "small"}))
	a.add(t, nodePath, node("de-big", map[string]string{"kind": "big"}))
	a.add(t, nodePath, node("fr-small", map[string]string{"kind": "small", v1alpha1.LabelSite: "FR"}))
	full := node("full", map[string]string{"kind": "small"})
	full.Status.Allocatable[v1.ResourceCPU] = quantity("3")
	a.add(t, nodePath, full)
	tainted := node("tainted", map[string]string{"kind": "small"})
	tainted.Spec.Taints = []v1.Taint{{Key: "gpu", Value: "yes", Effect: v1.TaintEffectNoSchedule}}
	a.add(t, nodePath, tainted)
	cordoned := node("cordoned", map[string]string{"kind": "small"})
	cordoned.Spec.Unschedulable = true
	a.add(t, nodePath, cordoned)
	running := markedPod("running")
	running.Spec.NodeName = "full"
	running.Status.Phase = v1.PodRunning
	a.add(t, podPath, running)
	a.add(t, "/api/v1/namespaces", &v1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
		Name: "ns", Labels: map[string]string{v1alpha1.LabelMode: "enforce"},
	}})
	return a
}

func markedPod(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: created(name, testNow.Add(-time.Hour))}
	p.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "8h", v1alpha1.AnnotationExpectedDuration: "2h"}
	p.Spec = podSpec()
	p.Status.Phase = v1.PodPending
	return p
}

func podSpec() v1.PodSpec {
	return v1.PodSpec{SchedulerName: policy.SchedulerName, Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceCPU: quantity("2"), v1.ResourceMemory: quantity("1Gi"),
		}},
	}}}
}

func workJob(name string) *batchv1.Job {
	j := heldJob(name)
	j.CreationTimestamp = metav1.NewTime(testNow.Add(-time.Hour))
	j.Annotations = map[string]string{
		v1alpha1.AnnotationAllowedDelay: "8h", v1alpha1.AnnotationExpectedDuration: "2h",
		v1alpha1.AnnotationHeldUntil:   testNow.Add(3 * time.Hour).Format(time.RFC3339),
		v1alpha1.AnnotationLatestStart: testNow.Add(7 * time.Hour).Format(time.RFC3339),
		v1alpha1.AnnotationHeldReason:  "held until 2026-03-02T12:00:00Z: saves an estimated 67 % (0.32 gCO2e)",
	}
	j.Spec.Template.Spec = podSpec()
	return j
}

func explained(t *testing.T, a *apiServer, args ...string) *explain.Explanation {
	t.Helper()
	code, stdout, stderr := a.run(t, append([]string{"explain", "-n", "ns", "-o", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var x explain.Explanation
	if err := json.Unmarshal([]byte(stdout), &x); err != nil {
		t.Fatal(err)
	}
	return &x
}

func TestExplainAHeldJob(t *testing.T) {
	a := twoSites(t)
	a.add(t, jobsIn("ns"), workJob("nightly"))
	code, stdout, stderr := a.run(t, "explain", "job", "nightly", "-n", "ns")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	golden(t, "explain_job.golden", stdout)

	x := explained(t, a, "job/nightly")
	if x.State != explain.StateHeld || !x.HeldUntil.Equal(testNow.Add(3*time.Hour)) ||
		!x.LatestStart.Equal(testNow.Add(7*time.Hour)) {
		t.Errorf("got %s until %v, latest start %v", x.State, x.HeldUntil, x.LatestStart)
	}
	if d := x.Decision; !d.Held || !d.Until.Equal(testNow.Add(3*time.Hour)) || d.Saving < 0.6 {
		t.Errorf("unexpected decision %+v", x.Decision)
	}
	de := x.Compare[slices.IndexFunc(x.Compare, func(c dashboard.Comparison) bool { return c.Site == "DE" })]
	if *de.CarbonNow != 300 || *de.CarbonOver != 300 || *de.CarbonThen != 100 {
		t.Errorf("DE: unexpected intensity %v now, %v during the run or %v at the planned start", *de.CarbonNow, *de.CarbonOver, *de.CarbonThen)
	}
	var ranked, out []string
	for _, r := range x.Placement.Ranked {
		ranked = append(ranked, r.Node)
	}
	for _, o := range x.Placement.Out {
		out = append(out, o.Node+": "+o.Why)
	}
	if got, want := strings.Join(ranked, " "), "fr-small de-small de-big"; got != want {
		t.Errorf("got ranking %s, want %s", got, want)
	}
	if got, want := strings.Join(out, "; "),
		"cordoned: cordoned; full: not enough CPU; tainted: taint gpu=yes:NoSchedule"; got != want {
		t.Errorf("got excluded nodes %s, want %s", got, want)
	}
	if code, stdout, _ := a.run(t, "explain", "job", "nightly", "-n", "ns", "-o", "yaml"); code != 0 ||
		yaml.UnmarshalStrict([]byte(stdout), new(explain.Explanation)) != nil {
		t.Errorf("exit code %d, unexpected YAML:\n%s", code, stdout)
	}
	if a.writes > 0 {
		t.Errorf("explain made %d write requests", a.writes)
	}
}

// An overheated node is excluded with a reason. If the controller is unreachable, that is reported instead.
func TestExplainAHotNode(t *testing.T) {
	a := twoSites(t)
	a.add(t, podPath, markedPod("train"))
	limited := profile("small", map[string]string{"kind": "small"}, 20, 60)
	limited.Spec.MaxTemperatureCelsius = 85
	a.add(t, profilePath, limited)
	x := explained(t, a, "pod/train")
	if !slices.ContainsFunc(x.Unseen, func(s string) bool { return strings.HasPrefix(s, "temperatures of nodes") }) ||
		len(x.Placement.Ranked) != 3 {
		t.Errorf("unexpected result without a controller: %q, %+v", x.Unseen, x.Placement)
	}
	hot := sched.Heat{Celsius: 91.4, Limit: 85, AsOf: testNow.Add(-time.Minute), Hot: true}
	old := sched.Heat{Celsius: 99, Limit: 85, AsOf: testNow.Add(-time.Hour), Hot: true}
	a.controller = map[string]any{"/api/v1/nodes/power": api.NodesPower{Nodes: []api.NodePower{
		{Node: "fr-small", Temperature: hot}, {Node: "de-small", Temperature: old}, {Node: "de-big"},
	}}}
	x = explained(t, a, "pod/train")
	want := dashboard.NodeOut{
		Node: "fr-small", Why: "node overheated: 91 °C exceeds the limit of 85 °C, new pods are accepted again at 80 °C",
	}
	if !slices.Contains(x.Placement.Out, want) || len(x.Placement.Ranked) != 2 || len(x.Unseen) > 0 {
		t.Errorf("unexpected placement %+v or unreadable resources %q", x.Placement, x.Unseen)
	}
}

// The explanation of a finished Job contains its savings and their parts. If the controller is unreachable, that is
// reported instead.
func TestExplainSavings(t *testing.T) {
	a := twoSites(t)
	j := workJob("b")
	j.Namespace, j.Labels, j.Spec.Suspend = "home", nil, new(false)
	j.CreationTimestamp = metav1.NewTime(testNow.Add(-25 * time.Hour))
	j.Status.CompletionTime = &metav1.Time{Time: testNow.Add(-16 * time.Hour)}
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
	a.add(t, jobsIn("home"), j)
	a.add(t, "/api/v1/namespaces", &v1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
		Name: "home", Labels: map[string]string{v1alpha1.LabelMode: "enforce"},
	}})
	x := explained(t, a, "job/b", "-n", "home")
	if x.Saved != "" || !slices.ContainsFunc(x.Unseen, func(s string) bool { return strings.HasPrefix(s, "savings: ") }) {
		t.Errorf("without a controller: saved %q, unreadable resources %q", x.Saved, x.Unseen)
	}
	c := newFakeController(t)
	c.history(t)
	a.controller = c.answers
	const want = "0.400 kgCO2e: 0.100 placement, 0.300 timing and 0.000 losses, relative to least-allocated"
	if x = explained(t, a, "job/b", "-n", "home"); x.Saved != want || len(x.Unseen) > 0 {
		t.Errorf("saved %q, want %q; unreadable resources %q", x.Saved, want, x.Unseen)
	}
	if _, stdout, _ := a.run(t, "explain", "job/b", "-n", "home"); !strings.Contains(stdout, "Saved: "+want) {
		t.Errorf("the text does not contain the savings:\n%s", stdout)
	}
}

func TestExplainAPod(t *testing.T) {
	a := twoSites(t)
	p := markedPod("train")
	p.Annotations[v1alpha1.AnnotationMaxPower] = "100"
	p.Annotations["compute-gardener-scheduler.kubernetes.io/pue"] = "1.4"
	p.Annotations["compute-gardener-scheduler.kubernetes.io/energy-budget-kwh"] = "3"
	a.add(t, podPath, p)
	code, stdout, stderr := a.run(t, "explain", "pod", "train", "-n", "ns")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	golden(t, "explain_pod.golden", stdout)
	if x := explained(t, a, "pod/train"); len(x.Placement.Out) != 4 || x.Placement.Out[1].Node != "de-big" {
		t.Errorf("got excluded nodes %+v, want de-big, which draws 400 W", x.Placement.Out)
	}
}

// All commands show the saving of a hold that the scheduler has written to it.
func TestSavingOfAHold(t *testing.T) {
	const alone = "held until 2026-03-02T12:00:00Z: saves an estimated 61 % (0.96 gCO2e)"
	for reason, want := range map[string]dashboard.Decision{
		alone + "; starts by 2026-03-02T16:00:00Z at the latest": {Reason: "CheaperLater", Saving: 0.61, Grams: 0.96},
		"held until 2026-03-02T12:00:00Z: saves an estimated 8 % (1.25 kgCO2e), according to the joint plan of all " +
			"waiting jobs": {Reason: "PlannedLater", Saving: 0.08, Grams: 1250},
		"held until 2026-03-02T12:00:00Z: saves an estimated 8 % (0.02 in money)": {Reason: "CheaperLater", Saving: 0.08},
	} {
		a := twoSites(t)
		j, p := workJob("nightly"), markedPod("train")
		j.Annotations[v1alpha1.AnnotationHeldReason] = reason
		held(p)
		p.Status.Conditions[0].Message = reason
		a.add(t, jobsIn("ns"), j)
		a.add(t, podPath, p)
		_, stdout, _ := a.run(t, "held", "-n", "ns", "-o", "json")
		var list explain.HeldList
		if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list.Items) != 2 {
			t.Fatalf("%v: %s", err, stdout)
		}
		for i, object := range []string{"job/nightly", "pod/train"} {
			x := explained(t, a, object)
			d, h := x.Decision, &list.Items[i]
			if d.Reason != want.Reason || d.Saving != want.Saving || d.Grams != want.Grams ||
				*h.Saving != want.Saving || ptr.Deref(h.SavedGrams, 0) != want.Grams {
				t.Errorf("%s: explain shows %+v, held shows %v", reason, d, stdout)
			}
			said := reason[strings.Index(reason, "saves"):strings.Index(reason, ")")]
			if !strings.Contains(d.Text, said) || !strings.Contains(x.Sentence, said) {
				t.Errorf("%q and %q do not contain %q", d.Text, x.Sentence, said)
			}
		}
	}
}

// Without an allowed delay, the reason is the missing delay and not a lack of capacity.
func TestWithoutADelay(t *testing.T) {
	a := twoSites(t)
	j := workJob("urgent")
	j.Annotations, j.Labels, j.Spec.Suspend = nil, nil, nil
	a.add(t, jobsIn("ns"), j)
	d := explained(t, a, "job/urgent").Decision
	if d.Reason != "Cheapest" || d.Text != "starts immediately, because no delay is allowed" || d.Held {
		t.Errorf("unexpected decision: %+v", d)
	}
}

// For a Job that was held and has started, both the planned and the actual start are shown.
func TestExplainWhenAHeldJobStarted(t *testing.T) {
	for after, description := range map[time.Duration]string{
		0: "as planned", 2 * time.Second: "2s later", -4 * time.Minute: "4 min earlier",
	} {
		a := twoSites(t)
		j := workJob("nightly")
		j.Labels, j.Spec.Suspend = nil, new(false)
		started := metav1.NewTime(testNow.Add(3 * time.Hour).Add(after))
		j.Status.StartTime, j.Status.Active, j.Status.Ready = &started, 1, new(int32(1))
		a.add(t, jobsIn("ns"), j)
		code, stdout, stderr := a.run(t, "explain", "job", "nightly", "-n", "ns")
		want := "Planned start: " + testNow.Add(3*time.Hour).Format(time.RFC3339) + "\nActual start: " +
			started.Format(time.RFC3339) + " (" + description + ")\n"
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %s, got\n%s\nwant\n%s", code, stderr, stdout, want)
		}
	}
	a := twoSites(t)
	a.add(t, jobsIn("ns"), workJob("nightly"))
	if x := explained(t, a, "job/nightly"); x.Planned != nil || x.Started != nil {
		t.Errorf("unexpected start %v of a held Job", x.Started)
	}
}

// Static pods, like pods of a DaemonSet, do not keep a node awake. A node with only such pods may be put to sleep,
// and waking it up costs more than using a node that is awake.
func TestExplainCountsNodesOfStaticPodsAsEmpty(t *testing.T) {
	a := newAPIServer(t)
	a.add(t, zonePath, zone("DE"))
	sleeps := profile("sleeps", map[string]string{"kind": "sleeps"}, 20, 60)
	sleeps.Spec.SleepWatts = new(0.0)
	a.add(t, profilePath, sleeps)
	for name, owner := range map[string]string{"a-static": "Node", "b-daemon": "DaemonSet", "c-busy": "ReplicaSet"} {
		a.add(t, nodePath, node(name, map[string]string{
			"kind": "sleeps", v1alpha1.LabelPowerState: v1alpha1.PowerAsleep,
		}))
		p := markedPod("on-" + name)
		p.Spec.NodeName, p.Status.Phase = name, v1.PodRunning
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "owner", Controller: new(true)}}
		a.add(t, podPath, p)
	}
	a.add(t, podPath, markedPod("train"))
	cost := map[string]float64{}
	for _, r := range explained(t, a, "pod/train").Placement.Ranked {
		cost[r.Node] = *r.Cost
	}
	if cost["a-static"] != cost["b-daemon"] || cost["a-static"] <= cost["c-busy"] {
		t.Errorf("got costs %v, want equal costs of a-static and b-daemon, higher than the cost of c-busy", cost)
	}
}

func TestExplainStates(t *testing.T) {
	a := twoSites(t)
	a.add(t, "/api/v1/namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "quiet", Labels: map[string]string{v1alpha1.LabelMode: "shadow"},
	}})
	pod := func(change func(*v1.Pod)) metav1.Object {
		p := markedPod("p")
		change(p)
		return p
	}
	job := func(change func(*batchv1.Job)) metav1.Object {
		j := workJob("j")
		change(j)
		return j
	}
	for name, c := range map[string]struct {
		object             metav1.Object
		in                 string
		state, description string
	}{
		"bound": {pod(func(p *v1.Pod) { p.Spec.NodeName = "n1" }), "ns", explain.StateBound, "bound to n1"},
		"running": {
			pod(func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", v1.PodRunning }), "ns",
			explain.StateRunning, "running on n1",
		},
		"finished pod": {
			pod(func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), "ns", explain.StateFinished,
			"Succeeded",
		},
		"gated by others": {
			pod(func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "x"}} }), "ns",
			explain.StateSuspended, "of other controllers",
		},
		"held pod": {pod(held), "ns", explain.StateHeld, "Reason: cleaner at noon"},
		"fits nowhere": {pod(func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
				Message: "0/2 nodes are available: 2 Insufficient cpu. preemption: waiting for the sleeping node worker-7 to wake up.",
			}}
		}), "ns", explain.StateWaiting, "It is waiting for a node. Scheduler kubenergy reported: 0/2 nodes are available: 2 " +
			"Insufficient cpu. preemption: waiting for the sleeping node worker-7 to wake up"},
		"shadow": {pod(held), "quiet", explain.StateWaiting, "(decisions are counted but not applied). In mode " +
			"enforce, it would be held until 12:00 UTC: saves an estimated"},
		"skipped": {
			pod(func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationSkip] = "true" }), "ns", explain.StateWaiting,
			"requested by annotation (kubenergy.io/skip)",
		},
		"run now": {
			pod(func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationRunNow] = "true" }), "ns", explain.StateWaiting,
			"requested by annotation (kubenergy.io/run-now)",
		},
		"of a controller": {pod(func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs", Controller: new(true)}}
		}), "ns", explain.StateWaiting, "controlled by ReplicaSet rs"},
		"not affected": {
			pod(func(p *v1.Pod) { p.Annotations, p.Spec.SchedulerName = nil, "default-scheduler" }),
			"elsewhere", explain.StateWaiting, "it is not marked, and namespace elsewhere has not opted in",
		},
		"no delay":           {pod(func(p *v1.Pod) { p.Annotations = nil }), "ns", explain.StateWaiting, "no delay is allowed"},
		"suspended by users": {job(func(j *batchv1.Job) { j.Labels = nil }), "ns", explain.StateSuspended, "not by KubEnergy"},
		"suspended by a budget": {job(func(j *batchv1.Job) {
			j.Labels = map[string]string{v1alpha1.LabelBudgetSuspended: "monthly"}
			j.Annotations[v1alpha1.AnnotationBudgetSuspendedTill] = "2026-04-01T00:00:00Z"
		}), "ns", explain.StateSuspended, `KubEnergy suspended it because the budget "monthly" is exhausted. It resumes when the budget ` +
			"allows it, at the latest at 1 Apr 00:00 UTC. A user with the role kubenergy-releaser can resume it earlier."},
		"no plan yet": {
			job(func(j *batchv1.Job) { delete(j.Annotations, v1alpha1.AnnotationHeldUntil) }), "ns",
			explain.StateHeld, "has not planned its start yet",
		},
		"past its window": {job(func(j *batchv1.Job) {
			j.Annotations[v1alpha1.AnnotationHeldUntil] = testNow.Add(-time.Minute).Format(time.RFC3339)
		}), "ns", explain.StateHeld, "run kubenergy doctor"},
		"released": {job(func(j *batchv1.Job) {
			j.Labels, j.Spec.Suspend = nil, new(false)
			j.Annotations[v1alpha1.AnnotationReleasedAt] = "2026-03-02T08:30:00Z"
		}), "ns", explain.StateReleased, "released at 08:30 UTC"},
		"released, and why": {job(func(j *batchv1.Job) {
			j.Labels, j.Spec.Suspend = nil, new(false)
			j.Annotations[v1alpha1.AnnotationReleasedAt] = "2026-03-02T08:30:00Z"
		}), "ns", explain.StateReleased, "It was held before, with the reason: held until 12:00 UTC"},
		"running, never held": {job(func(j *batchv1.Job) {
			unheld(j)
			delete(j.Annotations, v1alpha1.AnnotationAllowedDelay)
		}), "ns", explain.StateRunning, "It was not held: no delay is allowed."},
		"running in shadow": {job(unheld), "quiet", explain.StateRunning, "It was not held: the effective mode is shadow " +
			"(decisions are counted but not applied). In mode enforce, a Job that is created now would be held until 12:00 " +
			"UTC: saves an estimated 67 % (0.32 gCO2e); starts by 17:00 UTC at the latest. To enforce decisions: " +
			"kubectl label namespace quiet kubenergy.io/mode=enforce --overwrite."},
		"running in shadow, no delay": {job(func(j *batchv1.Job) {
			unheld(j)
			j.Annotations[v1alpha1.AnnotationAllowedDelay] = "0"
		}), "quiet", explain.StateRunning, "It would not be held in mode enforce either: no delay is allowed."},
		"running for another": {job(func(j *batchv1.Job) {
			unheld(j)
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Flow", Name: "f"}}
		}), "ns", explain.StateRunning, "It was not held: owned by Flow f."},
		"running, due before its creation": {job(func(j *batchv1.Job) {
			unheld(j)
			j.Annotations[v1alpha1.AnnotationFinishBy] = testNow.Add(-2 * time.Hour).Format(time.RFC3339)
		}), "ns", explain.StateRunning, "It was not held: kubenergy.io/finish-by 07:00 UTC has passed, so the job starts immediately."},
		"running, due later": {job(func(j *batchv1.Job) {
			unheld(j)
			j.Annotations[v1alpha1.AnnotationFinishBy] = testNow.Add(-time.Minute).Format(time.RFC3339)
		}), "ns", explain.StateRunning, "leaves no time to wait, because the job runs for 2 h."},
		"running, reason unknown": {job(unheld), "ns", explain.StateRunning, "It was not held, and the event with the reason has " +
			"expired. A Job that is created now would be held until 12:00 UTC: saves an estimated 67 % ("},
		"running job": {job(func(j *batchv1.Job) {
			j.Labels, j.Spec.Suspend = nil, new(false)
			j.Status.Active, j.Status.Ready = 2, new(int32(1))
		}), "ns", explain.StateRunning, "1 of 2 pods ready"},
		"finished job": {job(func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
		}), "ns", explain.StateFinished, "Complete"},
	} {
		t.Run(name, func(t *testing.T) {
			kind, path := "pod", "/api/v1/namespaces/"+c.in+"/pods"
			if _, isJob := c.object.(*batchv1.Job); isJob {
				kind, path = "job", jobsIn(c.in)
			}
			a.add(t, path, c.object)
			x := explained(t, a, kind, c.object.GetName(), "-n", c.in)
			if x.State != c.state || !strings.Contains(x.Sentence, c.description) {
				t.Errorf("got %s: %s; want %s and %q", x.State, x.Sentence, c.state, c.description)
			}
			decided := x.State != explain.StateBound && x.State != explain.StateRunning && x.State != explain.StateFinished
			if (x.Decision != nil) != decided || (x.Placement != nil) != decided {
				t.Errorf("state %s: has decision %v, has placement %v", x.State, x.Decision != nil, x.Placement != nil)
			}
			if unused := x.Placement != nil && x.Placement.Unused != ""; unused != (name == "not affected") {
				t.Errorf("unexpected placement %+v", x.Placement)
			}
		})
	}
}

// unheld modifies a Job so that it runs and has no marks of a hold.
func unheld(j *batchv1.Job) {
	j.Labels, j.Spec.Suspend = nil, new(false)
	j.Status.Active, j.Status.Ready = 1, new(int32(1))
	for _, key := range []string{
		v1alpha1.AnnotationHeldUntil, v1alpha1.AnnotationLatestStart, v1alpha1.AnnotationHeldReason,
	} {
		delete(j.Annotations, key)
	}
}

func held(p *v1.Pod) {
	p.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
		Message: "cleaner at noon",
	}}
}

func TestExplainSaysWhatItMayNotSee(t *testing.T) {
	for refused, want := range map[string]string{
		"list nodes":          "nodes: forbidden",
		"list pods":           "pods of all namespaces, so nodes are treated as empty: forbidden",
		"list gridzones":      "gridzones",
		"list energypolicies": "energypolicies",
		"list namespaces":     "namespaces",
	} {
		a := twoSites(t)
		a.add(t, jobsIn("ns"), workJob("nightly"))
		a.refused[refused], a.refused["get namespaces"] = true, refused == "list namespaces"
		x := explained(t, a, "job", "nightly")
		if !strings.Contains(strings.Join(x.Unseen, "\n"), want) {
			t.Errorf("without permission to %s: got unreadable resources %q, want %q", refused, x.Unseen, want)
		}
		if x.State != explain.StateHeld {
			t.Errorf("without permission to %s: unexpected state %s", refused, x.State)
		}
		if (x.Placement == nil) != (refused == "list nodes") {
			t.Errorf("without permission to %s: unexpected placement %+v", refused, x.Placement)
		}
	}
	a := twoSites(t)
	if code, _, stderr := a.run(t, "explain", "pod", "none", "-n", "ns"); code != 1 ||
		stderr != "kubenergy: reading pod ns/none: not found\n" {
		t.Errorf("exit code %d: %q", code, stderr)
	}
}

// Ineffective settings of a namespace are reported for its workloads.
func TestExplainInANamespaceOfNonsense(t *testing.T) {
	a := twoSites(t)
	a.add(t, "/api/v1/namespaces", &v1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{
			Name: "team", Labels: map[string]string{v1alpha1.LabelMode: "enforcing"},
		},
	})
	a.add(t, "/api/v1/namespaces/team/pods", markedPod("train"))
	x := explained(t, a, "pod", "train", "-n", "team")
	if len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], `kubenergy.io/mode is "enforcing", which is not a mode`) {
		t.Errorf("unexpected warnings %q", x.Warnings)
	}
}

// A tenant with access to one namespace sees its settings, but no conclusions that depend on unreadable resources.
func TestExplainToATenant(t *testing.T) {
	a := twoSites(t)
	a.add(t, jobsIn("ns"), workJob("nightly"))
	a.add(t, "/apis/kubenergy.io/v1alpha1/namespaces/ns/energypolicies", &v1alpha1.EnergyPolicy{
		ObjectMeta: created("default", testNow), Spec: v1alpha1.EnergyPolicySpec{
			WorkloadSettings: v1alpha1.WorkloadSettings{MaxPowerWatts: new(300.0)},
		},
	})
	for _, all := range []string{"gridzones", "powerprofiles", "energypolicies", "energybudgets", "namespaces", "nodes"} {
		a.refused["list all "+all] = true
	}
	x := explained(t, a, "job", "nightly")
	if x.Mode != "enforce" || x.State != explain.StateHeld || x.Decision != nil || x.Placement != nil {
		t.Errorf("unexpected mode %s, state %s, decision %+v or placement %+v", x.Mode, x.State, x.Decision, x.Placement)
	}
	from := map[string]string{}
	for _, s := range x.Settings {
		from[s.Name] = s.Value + " from " + s.From
	}
	if from["mode"] != "enforce from namespace label" || from["maxPowerWatts"] != "300 from namespace" ||
		!strings.Contains(from["maxDelay"], "unless set by the policy of the cluster") {
		t.Errorf("unexpected settings %v", from)
	}
	if all := strings.Join(x.Unseen, "\n"); !strings.Contains(all, "the current decision is unknown") ||
		!strings.Contains(all, "only the policy of this namespace is readable") || strings.Contains(all, "whether this namespace") {
		t.Errorf("unexpected unreadable resources: %s", all)
	}
	a.refused["get namespaces"] = true
	if x = explained(t, a, "job", "nightly"); x.Mode != explain.UnknownMode || strings.Contains(x.Sentence, "the effective mode") {
		t.Errorf("unexpected mode %s or sentence %s", x.Mode, x.Sentence)
	}
}

func TestExplainWithoutSignalsHasNoOpinion(t *testing.T) {
	a := twoSites(t)
	for _, name := range []string{"DE", "FR"} {
		edit(t, a, zonePath+"/"+name, func(z *v1alpha1.GridZone) { z.Status = v1alpha1.GridZoneStatus{} })
	}
	a.add(t, podPath, markedPod("train"))
	x := explained(t, a, "pod/train")
	if x.Decision.Held || x.Decision.Reason != "NoFreshSignal" || len(x.Compare) > 0 {
		t.Errorf("unexpected decision %+v or comparison %+v", x.Decision, x.Compare)
	}
	if len(x.Placement.Ranked) != 3 || x.Placement.Ranked[0].Rank != 0 || x.Placement.Ranked[0].Cost != nil ||
		!strings.Contains(x.Placement.Note, "cannot rank nodes") {
		t.Errorf("unexpected ranking %+v: %s", x.Placement.Ranked, x.Placement.Note)
	}
	if r := x.Placement.Ranked[0]; r.WattHours == nil || r.Grams != nil {
		t.Errorf("got %+v, want energy of the profile and no emissions", r)
	}
}

func TestExplainNonsense(t *testing.T) {
	a := twoSites(t)
	p := markedPod("train")
	p.Annotations[v1alpha1.AnnotationAllowedDelay] = "soon"
	p.Annotations[v1alpha1.AnnotationStrategy] = "luck"
	a.add(t, podPath, p)
	x := explained(t, a, "pod", "train")
	if len(x.Warnings) != 2 || !strings.Contains(strings.Join(x.Warnings, "\n"),
		`annotation kubenergy.io/allowed-delay is "soon"`) {
		t.Errorf("unexpected warnings %q", x.Warnings)
	}
	if !strings.Contains(x.Sentence, "its annotations are invalid") {
		t.Errorf("unexpected sentence %q", x.Sentence)
	}
}

// Nodes are only ranked if KubEnergy places the pods.
func TestNodesAreRankedForOurPods(t *testing.T) {
	for name, c := range map[string]struct {
		scheduler, config string
		ranked            bool
	}{
		"ours":                        {policy.SchedulerName, "", true},
		"Compute Gardener's":          {policy.GardenerSchedulerName, "", true},
		"another name":                {"green", "profiles: [{schedulerName: green}]", true},
		"none":                        {"", "", false},
		"the default":                 {v1.DefaultSchedulerName, "profiles: [{schedulerName: kubenergy}]", false},
		"ours instead of the default": {v1.DefaultSchedulerName, "profiles: [{schedulerName: default-scheduler}]", true},
		"of another system":           {"volcano", "", false},
	} {
		a := twoSites(t)
		if c.config != "" {
			configure(t, a, c.config)
		}
		j := workJob("nightly")
		j.Spec.Template.Spec.SchedulerName = c.scheduler
		a.add(t, jobsIn("ns"), j)
		_, stdout, stderr := a.run(t, "explain", "job", "nightly", "-n", "ns")
		if got := strings.Contains(stdout, "Nodes ranked by carbon"); got != c.ranked ||
			strings.Contains(stdout, "chooses the node without KubEnergy") == c.ranked {
			t.Errorf("%s: ranked is %v, want %v:\n%s%s", name, got, c.ranked, stdout, stderr)
		}
	}
}

// The error about a missing object names the namespaces that have one, if the user may list them.
func TestMissingObjectsElsewhere(t *testing.T) {
	a := twoSites(t)
	for _, in := range []string{"shop", "blog"} {
		a.add(t, jobsIn(in), workJob("backstop"))
	}
	for args, want := range map[string]string{
		"explain job backstop": "not found, but it exists with -n blog, -n shop", "explain job nowhere": ": not found",
		"run-now job backstop": "not found, but it exists with -n blog, -n shop", "explain pod backstop": ": not found",
		"release job backstop": "not found, but it exists with -n blog, -n shop", "explain cronjob x": ": not found",
		"explain deployment x": ": not found", "held -n nothere": "namespace nothere does not exist",
	} {
		if !strings.Contains(args, "-n ") {
			args += " -n ns"
		}
		code, _, stderr := a.run(t, strings.Fields(args)...)
		if code == 0 || !strings.HasSuffix(strings.TrimSpace(stderr), want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
	a.refused["list all jobs"] = true
	if _, _, stderr := a.run(t, "explain", "job", "backstop", "-n", "ns"); strings.Contains(stderr, "exists") {
		t.Error(stderr)
	}
}

// addRunTimes adds a profile with a number of run times of 40 minutes of a Job.
func addRunTimes(t *testing.T, a *apiServer, job *batchv1.Job, runs int) {
	t.Helper()
	profile := &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: v1alpha1.PolicyName}}
	learnt, err := policy.ReadJobProfile(profile)
	if err != nil {
		t.Fatal(err)
	}
	work, _ := policy.ReadJob(job)
	for range runs {
		learnt.Learn(&work, 40*time.Minute)
	}
	learnt.Write(profile)
	a.add(t, "/apis/kubenergy.io/v1alpha1/namespaces/ns/jobprofiles", profile)
}

// TestExplainRunTimes describes the learnt run time of a Job, until the user forgets it.
func TestExplainRunTimes(t *testing.T) {
	a := twoSites(t)
	job := workJob("report-29384756")
	delete(job.Annotations, v1alpha1.AnnotationExpectedDuration)
	a.add(t, jobsIn("ns"), job)
	addRunTimes(t, a, job, 3)
	if x := explained(t, a, "job/report-29384756"); !strings.Contains(x.Sentence, "is not known yet (3 of 5 runs)") {
		t.Error(x.Sentence)
	}
	addRunTimes(t, a, job, 200)
	if x := explained(t, a, "job/report-29384756"); !strings.Contains(x.Sentence, "Such Jobs usually run for 3") ||
		!strings.Contains(x.Sentence, "(200 runs)") {
		t.Error(x.Sentence)
	}
	if code, out, errs := a.run(t, "forget", "-n", "ns"); code != 0 || !strings.Contains(out, "are forgotten") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if x := explained(t, a, "job/report-29384756"); strings.Contains(x.Sentence, "Such Jobs") {
		t.Error(x.Sentence)
	}
	if code, out, _ := a.run(t, "forget", "-n", "empty"); code != 0 || !strings.Contains(out, "no run times") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
