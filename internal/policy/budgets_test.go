package policy

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// closedBudget returns a used-up budget that holds new work.
func closedBudget(change func(*v1alpha1.EnergyBudget)) *v1alpha1.EnergyBudget {
	until, asOf := metav1.NewTime(noon.Add(6*time.Hour)), metav1.NewTime(noon)
	b := &v1alpha1.EnergyBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "month", Generation: 2},
		Spec: v1alpha1.EnergyBudgetSpec{Actions: []v1alpha1.BudgetAction{{
			At: 100, Do: v1alpha1.DeedHoldNewWork,
		}}},
		Status: v1alpha1.EnergyBudgetStatus{
			ObservedGeneration: 2, Exhausted: true, ClosedUntil: &until, AsOf: &asOf,
		},
	}
	if change != nil {
		change(b)
	}
	return b
}

// rulesOfBudgets returns the rules of a cluster in the mode enforce.
func rulesOfBudgets(t *testing.T, budgets ...*v1alpha1.EnergyBudget) *Rules {
	t.Helper()
	return rulesOf(t, Sources{
		Budgets: budgets, Defaults: Defaults{Mode: v1alpha1.ModeEnforce, MaxDelay: 24 * time.Hour},
	})
}

func TestUsedUpBudgetHoldsNewWork(t *testing.T) {
	pod := func(annotations map[string]string) *v1.Pod { return podIn("team", annotations) }
	delay := map[string]string{v1alpha1.AnnotationAllowedDelay: "12h"}
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		change func(*v1alpha1.EnergyBudget)
		at     time.Duration // relative to noon
		want   time.Duration // relative to noon; 0 if not held
	}{
		"until the end of the period": {pod: pod(delay), want: 6 * time.Hour},
		"until its latest start": {
			pod:  pod(map[string]string{v1alpha1.AnnotationAllowedDelay: "2h"}),
			want: 2 * time.Hour,
		},
		"without an end, until its latest start": {pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) {
			b.Status.ClosedUntil.Time = endOfTime
		}, want: 12 * time.Hour},
		"a pod that must not wait": {pod: pod(nil)},
		"a pod with run-now": {pod: pod(map[string]string{
			v1alpha1.AnnotationAllowedDelay: "12h", v1alpha1.AnnotationRunNow: "true",
		})},
		"another namespace": {pod: podIn("others", delay)},
		"the status is old": {pod: pod(delay), at: budgetBelief + time.Second},
		"the period has ended": {pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) {
			b.Status.ClosedUntil.Time = noon
		}},
		"the budget was modified": {pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) { b.Generation++ }},
		"the action was removed": {pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) {
			b.Spec.Actions = nil
		}},
		"the budget is not used up": {pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) {
			b.Status.ClosedUntil = nil
		}},
		"another owner": {pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) {
			b.Spec.Scope.Owners = []string{"CronJob/nightly"}
		}},
		"its owner": {
			pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) {
				b.Spec.Scope.Owners = []string{"CronJob/nightly", "Pod/p"}
			}, want: 6 * time.Hour,
		},
		"another team": {pod: pod(delay), change: func(b *v1alpha1.EnergyBudget) {
			b.Spec.Scope.Teams = []string{"red"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.pod.Name, tc.pod.CreationTimestamp.Time = "p", noon
			work, err := ReadPod(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			v, now := rulesOfBudgets(t, closedBudget(tc.change)), noon.Add(tc.at)
			job, settings := v.Settle(&work)
			d := v.Decide(now, job, settings)
			switch {
			case tc.want == 0 && (d.Held(now) || d.Reason.Kind == sched.BudgetUsedUp):
				t.Errorf("held until %v: %v", d.Window.Start, d.Reason)
			case tc.want > 0 && (d.Reason.Kind != sched.BudgetUsedUp || !d.Window.Start.Equal(noon.Add(tc.want)) ||
				d.Reason.Budget != "month"):
				t.Errorf("the start is %v: %v, want %v after noon", d.Window.Start, d.Reason, tc.want)
			}
		})
	}
}

func TestLatestOfSeveralBudgets(t *testing.T) {
	other := closedBudget(func(b *v1alpha1.EnergyBudget) {
		b.Name = "week"
		b.Status.ClosedUntil.Time = noon.Add(9 * time.Hour)
	})
	v := rulesOfBudgets(t, closedBudget(nil), other)
	until, budget, closed := v.BudgetClosed(noon, "team", Owners{})
	if !closed || budget != "week" || !until.Equal(noon.Add(9*time.Hour)) {
		t.Error(until, budget, closed)
	}
}

func TestReadAllowance(t *testing.T) {
	theirs := &NamespaceMarks{Labels: map[string]string{gardenerPolicies: "enabled"}, Annotations: map[string]string{
		gardenerPolicy + "energy-budget-kwh": "7", gardenerWorkload + "batch" + gardenerWorkloadPolicy +
			"energy-budget-kwh": "3",
		gardenerPolicy + "energy-budget-action": "label",
	}}
	for name, tc := range map[string]struct {
		namespace *NamespaceMarks
		workload  string
		maps      []map[string]string
		want      Allowance
		none, bad bool
	}{
		"nothing":        {none: true},
		"only an action": {maps: []map[string]string{{v1alpha1.AnnotationBudgetAction: "log"}}, none: true},
		"ours": {
			maps: []map[string]string{{v1alpha1.AnnotationBudgetKWh: "0.5"}},
			want: Allowance{KWh: 0.5, Deed: v1alpha1.DeedLog},
		},
		"suspend": {maps: []map[string]string{
			nil, {v1alpha1.AnnotationBudgetKWh: "2", v1alpha1.AnnotationBudgetAction: "suspend"},
		}, want: Allowance{KWh: 2, Deed: v1alpha1.DeedSuspend}},
		"theirs": {maps: []map[string]string{{
			cg + "energy-budget-kwh": "2", cg + "energy-budget-action": "annotate",
		}}, want: Allowance{KWh: 2, Deed: v1alpha1.DeedAnnotate, Gardener: true}},
		"of its type": {
			namespace: theirs, workload: typeBatch,
			want: Allowance{KWh: 3, Deed: v1alpha1.DeedLabel, Gardener: true},
		},
		"of all types": {
			namespace: theirs, workload: typeService,
			want: Allowance{KWh: 7, Deed: v1alpha1.DeedLabel, Gardener: true},
		},
		"before namespaces": {
			namespace: theirs, workload: typeBatch,
			maps: []map[string]string{{v1alpha1.AnnotationBudgetKWh: "1"}},
			want: Allowance{KWh: 1, Deed: v1alpha1.DeedLabel},
		},
		"not enabled": {
			namespace: &NamespaceMarks{Annotations: theirs.Annotations}, workload: typeBatch,
			none: true,
		},
		"no number": {maps: []map[string]string{{v1alpha1.AnnotationBudgetKWh: "much"}}, bad: true},
		"zero":      {maps: []map[string]string{{v1alpha1.AnnotationBudgetKWh: "0"}}, bad: true},
		"no action": {
			maps: []map[string]string{{v1alpha1.AnnotationBudgetKWh: "1", v1alpha1.AnnotationBudgetAction: "explode"}},
			bad:  true,
		},
		"hold": {
			maps: []map[string]string{{v1alpha1.AnnotationBudgetKWh: "1", v1alpha1.AnnotationBudgetAction: "hold"}},
			bad:  true,
		},
	} {
		got, ok, err := ReadAllowance(tc.namespace, tc.workload, tc.maps...)
		if got != tc.want || ok == (tc.none || tc.bad) || (err != nil) != tc.bad {
			t.Errorf("%s: %+v, %v, %v", name, got, ok, err)
		}
	}
}

func runningJob(change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "j", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "x"},
		},
		Spec: batchv1.JobSpec{Suspend: new(false)},
	}
	if change != nil {
		change(j)
	}
	return j
}

func TestNotSuspended(t *testing.T) {
	owned := func(apiVersion, kind string) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: apiVersion, Kind: kind, Name: "o", Controller: new(true),
			}}
		}
	}
	for name, tc := range map[string]struct {
		change func(*batchv1.Job)
		may    bool
	}{
		"a Job":         {nil, true},
		"of a CronJob":  {owned("batch/v1", "CronJob"), true},
		"of a Workflow": {owned("argoproj.io/v1", "Workflow"), false},
		"suspended":     {func(j *batchv1.Job) { j.Spec.Suspend = new(true) }, false},
		"in a queue":    {func(j *batchv1.Job) { j.Labels[LabelKueueQueue] = "q" }, false},
		"of the system": {func(j *batchv1.Job) { j.Namespace = "kube-system" }, false},
		"ours":          {func(j *batchv1.Job) { j.Namespace = v1alpha1.SystemNamespace }, false},
		"a hook": {
			func(j *batchv1.Job) { j.Annotations = map[string]string{"helm.sh/hook": "pre-install"} },
			false,
		},
		"managed by another controller": {
			func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/other-controller") },
			false,
		},
		"managed by the job controller": {
			func(j *batchv1.Job) { j.Spec.ManagedBy = new(batchv1.JobControllerName) },
			true,
		},
		"over": {func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
		}, false},
		"not over": {func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: v1.ConditionFalse}}
		}, true},
		"system-critical": {
			func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = "system-node-critical" },
			false,
		},
	} {
		if why := NotSuspended(runningJob(tc.change)); (why == "") != tc.may {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestBudgetLabel(t *testing.T) {
	long := strings.Repeat("a", 49) + "." + strings.Repeat("b", 50)
	for _, name := range []string{"month", strings.Repeat("x", 63), long, strings.Repeat("y", 253)} {
		label := BudgetLabel(name)
		if len(label) > 63 || label == "" || len(name) <= 63 && label != name {
			t.Errorf("%s: %s", name, label)
		}
	}
	if BudgetLabel(long) == BudgetLabel(long+"c") {
		t.Error("two budgets have the same label")
	}
}

func TestPodOwners(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "shop-1", Labels: map[string]string{"pod-template-hash": "5d8", v1alpha1.LabelTeam: "red"},
	}}
	if o := PodOwners(p); o != (Owners{Owner: "Pod/shop-1", Team: "red"}) {
		t.Error(o)
	}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "shop-5d8", Controller: new(true)}}
	if o := PodOwners(p); o.Owner != "Deployment/shop" {
		t.Error(o)
	}
	p.Labels = nil
	if o := PodOwners(p); o.Owner != "ReplicaSet/shop-5d8" {
		t.Error(o)
	}
}

// TestTeamOf verifies that budgets and the ledger determine the team of a pod by the same label.
func TestTeamOf(t *testing.T) {
	for _, tc := range []struct {
		labels map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{"team": "x"}, ""},
		{map[string]string{v1alpha1.LabelPartOf: "shop"}, "shop"},
		{map[string]string{v1alpha1.LabelPartOf: "shop", v1alpha1.LabelTeam: "red"}, "red"},
		{map[string]string{v1alpha1.LabelPartOf: "shop", v1alpha1.LabelTeam: ""}, "shop"},
	} {
		pod, job := &v1.Pod{}, &batchv1.Job{}
		pod.Labels, job.Spec.Template.Labels = tc.labels, tc.labels
		if got := TeamOf(tc.labels); got != tc.want || PodOwners(pod).Team != tc.want ||
			JobOwners(job).Team != tc.want {
			t.Errorf("%v: %q", tc.labels, got)
		}
	}
}

// TestTeamsOfNamespaces verifies that labels of namespaces, which administrators set, take precedence over labels
// of pods, which users set.
func TestTeamsOfNamespaces(t *testing.T) {
	namespace := func(name string, labels ...string) NamespaceMarks {
		n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		for i := 0; i < len(labels); i += 2 {
			n.Labels[labels[i]] = labels[i+1]
		}
		marks, ok := MarksOfNamespace(n)
		if !ok {
			t.Errorf("the team label of %s is ignored", name)
		}
		return marks
	}
	rules := (&Sources{Namespaces: []NamespaceMarks{
		namespace("red-prod", v1alpha1.LabelTeam, "red"),
		namespace("blue-prod", v1alpha1.LabelTeam, "blue", v1alpha1.LabelMode, "enforce"),
		namespace("shared", v1alpha1.LabelMode, "enforce"),
	}}).Rules()
	for _, c := range []struct{ namespace, named, want string }{
		{"red-prod", "", "red"},
		{"red-prod", "red", "red"},
		{"red-prod", "blue", "red"},
		{"blue-prod", "green", "blue"},
		{"shared", "green", "green"},
		{"shared", "red", ""},
		{"shared", "", ""},
		{"elsewhere", "blue", ""},
		{"elsewhere", "green", "green"},
	} {
		work := Work{Namespace: c.namespace, Owners: Owners{Team: c.named}}
		_, settings := rules.Settle(&work)
		if got := rules.TeamOf(c.namespace, c.named); got != c.want || settings.owners.Team != c.want {
			t.Errorf("%s with team %q: %q is charged, and %q for budgets; want %q", c.namespace, c.named, got,
				settings.owners.Team, c.want)
		}
	}
	if mode, _ := rules.Mode("red-prod"); mode != "" && mode != (&Rules{}).of("x").mode {
		t.Errorf("with a team label, the mode is %q", mode)
	}
	if _, optedIn := rules.Mode("red-prod"); optedIn {
		t.Error("a team label opts the namespace in")
	}
	if got := (&Rules{}).TeamOf("a", "red"); got != "red" {
		t.Errorf("%q is charged without rules", got)
	}
}
