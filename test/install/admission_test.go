package install

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit"
)

const gardener = "compute-gardener-scheduler.kubernetes.io/"

func newJob(change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "row"},
		Spec: batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "c", Image: "none"}},
		}}},
	}
	if change != nil {
		change(j)
	}
	return j
}

func annotated(pairs ...string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			j.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func onPods(pairs ...string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		annotated(pairs...)(j)
		j.Spec.Template.Annotations, j.Annotations = j.Annotations, nil
	}
}

func both(changes ...func(*batchv1.Job)) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		for _, change := range changes {
			change(j)
		}
	}
}

func scheduledBy(name string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.Template.Spec.SchedulerName = name }
}

func typed(name string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Labels = map[string]string{v1alpha1.LabelWorkloadType: name} }
}

// admissionNamespaces contains the labels and namespaced policies of the namespaces used in the table.
var admissionNamespaces = map[string]struct {
	labels map[string]string
	policy string
}{
	"plain":        {},
	"off":          {labels: map[string]string{v1alpha1.LabelMode: "off"}},
	"shadow":       {labels: map[string]string{v1alpha1.LabelMode: "shadow"}},
	"advise":       {labels: map[string]string{v1alpha1.LabelMode: "advise"}},
	"enforce":      {labels: map[string]string{v1alpha1.LabelMode: "enforce"}},
	"bogus":        {labels: map[string]string{v1alpha1.LabelMode: "yes"}},
	"gardener":     {labels: map[string]string{gardener + "energy-policies": "enabled"}},
	"own-enforce":  {policy: "{mode: enforce, allowedDelay: 2h}"},
	"own-shadow":   {policy: "{mode: shadow, allowedDelay: 2h}"},
	"own-silent":   {policy: "{allowedDelay: 2h}"},
	"own-no-delay": {policy: "{mode: enforce, allowedDelay: 0s}"},
	"label-and-own": {
		labels: map[string]string{v1alpha1.LabelMode: "enforce"},
		policy: "{mode: shadow, allowedDelay: 2h}",
	},
	"label-against": {
		labels: map[string]string{v1alpha1.LabelMode: "shadow"},
		policy: "{mode: enforce, allowedDelay: 2h}",
	},
}

// A row describes a Job and whether it is created suspended.
type row struct {
	policy    string // spec of the cluster-wide policy
	namespace string
	job       func(*batchv1.Job)
	held      bool
	// letGo is set if the hold loop releases the Job, because it evaluates more rules than the admission policy.
	letGo bool
}

const (
	enforcing = "{mode: enforce}"
	shadowing = "{mode: shadow}"
	silent    = "{}"
	delaying  = "{mode: enforce, allowedDelay: 6h}"
	delayNo   = "{mode: enforce, allowedDelay: 0s}"
	batchOnly = "{mode: enforce, workloadTypes: {batch: {allowedDelay: 6h}}}"
	notBatch  = "{mode: enforce, allowedDelay: 6h, workloadTypes: {batch: {allowedDelay: 0s}}}"
)

var (
	delayed = annotated(v1alpha1.AnnotationAllowedDelay, "6h")
	cg      = scheduledBy(policy.GardenerSchedulerName)
)

var rows = map[string]row{
	"marked, in a namespace without a mode": {enforcing, "plain", delayed, true, false},
	"marked on the pod template": {
		enforcing, "plain", onPods(v1alpha1.AnnotationAllowedDelay, "6h"),
		true, false,
	},
	"unmarked": {enforcing, "plain", nil, false, false},
	"unmarked, the cluster's policy has a delay":        {delaying, "plain", nil, false, false},
	"marked, cluster in shadow":                         {shadowing, "plain", delayed, false, false},
	"marked, no mode is set":                            {silent, "plain", delayed, false, false},
	"marked, cluster in shadow, namespace enforces":     {shadowing, "enforce", delayed, true, false},
	"marked, cluster enforces, namespace off":           {enforcing, "off", delayed, false, false},
	"marked, cluster enforces, namespace shadow":        {enforcing, "shadow", delayed, false, false},
	"marked, cluster enforces, namespace advises":       {enforcing, "advise", delayed, false, false},
	"marked, a label with an invalid mode":              {enforcing, "bogus", delayed, true, false},
	"unmarked, a label with an invalid mode is ignored": {delaying, "bogus", nil, false, false},
	"unmarked, opted in by label, no delay anywhere":    {enforcing, "enforce", nil, false, false},
	"unmarked, opted in by label, delay of 0":           {delayNo, "enforce", nil, false, false},
	"unmarked, opted in by label, the cluster's delay":  {delaying, "enforce", nil, true, false},
	"unmarked, opted in by label, delay of batch":       {batchOnly, "enforce", nil, true, false},
	"unmarked, opted in by label, no delay for batch":   {notBatch, "enforce", nil, false, false},
	"a service, no delay for batch":                     {notBatch, "enforce", typed("service"), true, false},
	"a service, delay of batch":                         {batchOnly, "enforce", typed("service"), false, false},
	"an unknown type is treated as batch":               {batchOnly, "enforce", typed("nightly"), true, false},
	"the type is set on the pod template": {batchOnly, "enforce", func(j *batchv1.Job) {
		j.Spec.Template.Labels = map[string]string{gardener + "workload-type": "service"}
	}, false, false},
	"unmarked, the namespace's own policy":                        {shadowing, "own-enforce", nil, true, false},
	"marked, the namespace's own policy in shadow":                {enforcing, "own-shadow", delayed, false, false},
	"unmarked, own policy without a mode, cluster holds":          {enforcing, "own-silent", nil, true, false},
	"unmarked, own policy without a mode, cluster shadow":         {shadowing, "own-silent", nil, false, false},
	"unmarked, own policy without a delay":                        {delaying, "own-no-delay", nil, false, false},
	"marked, own policy without a delay":                          {shadowing, "own-no-delay", delayed, true, false},
	"the label takes precedence over the namespace's own policy":  {shadowing, "label-and-own", nil, true, false},
	"the label takes precedence over a stricter namespace policy": {enforcing, "label-against", delayed, false, false},
	"unmarked, Compute Gardener's namespace label":                {delaying, "gardener", nil, true, false},
	"the same, no delay":                                          {enforcing, "gardener", nil, false, false},

	"a delay of 0 disables holding": {
		delaying, "enforce", annotated(v1alpha1.AnnotationAllowedDelay, "0s"),
		false, false,
	},
	"the Job's delay takes precedence over that on its pods": {
		delaying, "enforce",
		both(onPods(v1alpha1.AnnotationAllowedDelay, "6h"), func(j *batchv1.Job) {
			j.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "0"}
		}), false, false,
	},
	"an invalid delay": {
		enforcing, "plain", annotated(v1alpha1.AnnotationAllowedDelay, "soon"),
		true, true,
	},
	"a KubEnergy carbon threshold": {
		enforcing, "plain", annotated(v1alpha1.AnnotationCarbonThreshold, "200"),
		true, false,
	},
	"a percentile": {
		enforcing, "plain", annotated(v1alpha1.AnnotationCarbonPercentile, "25"),
		true, false,
	},
	"a KubEnergy price threshold": {
		enforcing, "plain", onPods(v1alpha1.AnnotationPriceThreshold, "0.1"), true,
		false,
	},
	"a strategy, and no delay anywhere": {
		enforcing, "plain", annotated(v1alpha1.AnnotationStrategy, "energy"),
		false, false,
	},
	"a strategy, and the cluster's delay": {
		delaying, "plain", annotated(v1alpha1.AnnotationStrategy, "energy"), false,
		false,
	},
	"a strategy with a window, and its delay": {
		delaying, "plain", annotated(v1alpha1.AnnotationStrategy, "energy+window"),
		true, false,
	},
	"a power limit, and the cluster's delay": {
		delaying, "plain", onPods(gardener+"max-power-watts", "300"), false,
		false,
	},
	"another KubEnergy annotation": {
		delaying, "plain", annotated(v1alpha1.AnnotationExpectedDuration, "1h"),
		false, false,
	},
	"Compute Gardener's threshold": {
		enforcing, "plain",
		onPods(gardener+"carbon-intensity-threshold", "150"), true, false,
	},
	"Compute Gardener's price": {
		enforcing, "plain", onPods(gardener+"price-threshold", "0.12"), true,
		false,
	},
	"Compute Gardener's delay": {
		enforcing, "plain", annotated(gardener+"max-scheduling-delay", "12h"),
		true, false,
	},
	"Compute Gardener's carbon-enabled": {
		enforcing, "plain", onPods(gardener+"carbon-enabled", "true"), true,
		false,
	},
	"Compute Gardener's skip": {
		enforcing, "plain", both(onPods(gardener+"skip", "true"), cg), false,
		false,
	},
	"Compute Gardener's scheduler":                             {enforcing, "plain", cg, true, false},
	"Compute Gardener's scheduler, in shadow":                  {shadowing, "plain", cg, false, false},
	"Compute Gardener's scheduler, own policy without a delay": {shadowing, "own-no-delay", cg, true, true},
	"the hybrid scheduler, no class": {
		delaying, "plain", scheduledBy(policy.HybridSchedulerName), false,
		false,
	},
	"the hybrid scheduler, with a class": {
		delaying, "plain",
		both(scheduledBy(policy.HybridSchedulerName), func(j *batchv1.Job) {
			j.Spec.Template.Labels = map[string]string{"workload-profile": "training"}
		}), true, false,
	},
	"only the KubEnergy scheduler": {delaying, "plain", scheduledBy(policy.SchedulerName), false, false},

	"run now": {
		delaying, "enforce",
		annotated(v1alpha1.AnnotationRunNow, "true", v1alpha1.AnnotationAllowedDelay, "6h"), false, false,
	},
	"run now, on the template": {delaying, "enforce", onPods(v1alpha1.AnnotationRunNow, "1"), false, false},
	"run now: false":           {delaying, "enforce", annotated(v1alpha1.AnnotationRunNow, "false"), true, false},
	"skip":                     {delaying, "enforce", annotated(v1alpha1.AnnotationSkip, "true"), false, false},
	"the Job's skip takes precedence over that on its pods": {delaying, "enforce", both(onPods(v1alpha1.AnnotationSkip, "true"),
		func(j *batchv1.Job) { j.Annotations = map[string]string{v1alpha1.AnnotationSkip: "false"} }), true, false},

	"suspended by its user": {
		delaying, "enforce", func(j *batchv1.Job) { yes := true; j.Spec.Suspend = &yes }, false,
		false,
	},
	"a Job in a Kueue queue": {
		delaying, "enforce",
		func(j *batchv1.Job) { j.Labels = map[string]string{policy.LabelKueueQueue: "q"} }, false, false,
	},
	"a Job of an Argo workflow": {delaying, "enforce", func(j *batchv1.Job) {
		j.Labels = map[string]string{"workflows.argoproj.io/workflow": "w"}
	}, false, false},
	"a Job managed by another controller": {delaying, "enforce", func(j *batchv1.Job) {
		j.Spec.ManagedBy = new("example.com/other-controller")
	}, false, false},
	"a Job managed by the job controller": {delaying, "enforce", func(j *batchv1.Job) {
		j.Spec.ManagedBy = new(batchv1.JobControllerName)
	}, true, false},
	"a Job with a priority of Kueue": {delaying, "enforce", func(j *batchv1.Job) {
		j.Labels = map[string]string{"kueue.x-k8s.io/priority-class": "low"}
	}, false, false},
	"a Helm hook": {delaying, "enforce", annotated("helm.sh/hook", "pre-install"), false, false},
	"a Job of another controller": {delaying, "enforce", func(j *batchv1.Job) {
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o"}}
	}, false, false},
	"a Job of a CronJob": {delaying, "enforce", func(j *batchv1.Job) {
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "o", UID: "o"}}
	}, true, false},
	"a Job with a system-critical priority": {delaying, "enforce", func(j *batchv1.Job) {
		j.Spec.Template.Spec.PriorityClassName = "system-cluster-critical"
	}, false, false},
	"a Job in kubenergy-system": {delaying, v1alpha1.SystemNamespace, delayed, false, false},
	"a Job in kube-system":      {delaying, "kube-system", delayed, false, false},
}

// testAdmission creates the Job of every row and compares the result with the table. It also compares the table
// with the hold loop. Unless the row sets letGo, a Job must be suspended if and only if the hold loop would hold
// it.
func (w *world) testAdmission(t *testing.T) {
	ctx := t.Context()
	var own []*v1alpha1.EnergyPolicy
	var marks []policy.NamespaceMarks
	mirror := map[string]any{}
	for name, n := range admissionNamespaces {
		ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: n.labels}}
		if _, err := w.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		marks = append(marks, policy.NamespaceMarks{Name: name, Labels: n.labels})
		if n.policy == "" {
			continue
		}
		p := energyPolicy(t, name, n.policy)
		own = append(own, p)
		mirror[name] = map[string]any{"mode": string(p.Spec.Mode), "delays": p.Spec.AllowedDelay.Duration > 0}
		if p.Spec.Mode == "" {
			delete(mirror[name].(map[string]any), "mode")
		}
	}
	policies := map[string]bool{}
	for _, r := range rows {
		policies[r.policy] = true
	}
	if len(rows) < 20 {
		t.Fatalf("%d rows", len(rows))
	}
	round := 0
	for spec := range policies {
		round++
		w.setPolicy(t, spec, mirror, fmt.Sprintf("sentinel-%d", round))
		view := viewOf(t, append([]*v1alpha1.EnergyPolicy{energyPolicy(t, v1alpha1.SystemNamespace, spec)}, own...),
			marks)
		for name, r := range rows {
			if r.policy == spec {
				t.Run(name, func(t *testing.T) { w.testRow(t, &r, view) })
			}
		}
	}
	t.Run("no policy", func(t *testing.T) {
		if err := w.policies().Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, 20*time.Second, "Jobs are no longer suspended",
			func() bool { return !w.suspends(t, "enforce", newJob(delayed)) })
		w.setPolicy(t, enforcing, nil, "sentinel-last")
	})
}

// warnings collects the warnings of the API server.
type warnings []string

// HandleWarningHeader implements [rest.WarningHandler].
func (h *warnings) HandleWarningHeader(_ int, _, text string) { *h = append(*h, text) }

// testWarnings verifies that a client gets a warning about a misspelled annotation, and none about correct ones.
func (w *world) testWarnings(t *testing.T) {
	var got warnings
	config := rest.CopyConfig(w.Config())
	config.WarningHandler = &got
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	creates := func(job *batchv1.Job) string {
		got = nil
		if _, err := client.BatchV1().Jobs("plain").Create(t.Context(), job,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(got, "\n")
	}
	kit.Eventually(t, 20*time.Second, "the API server warns about a misspelled annotation", func() bool {
		return strings.Contains(creates(newJob(annotated("kubenergy.io/allowed-dealy", "6h"))), "allowed-dealy on workloads")
	})
	if text := creates(newJob(delayed)); text != "" {
		t.Errorf("got warnings about a correct Job: %s", text)
	}
}

func (w *world) testRow(t *testing.T, r *row, view *kube.View) {
	job := newJob(r.job)
	held := w.suspends(t, r.namespace, job)
	if held != r.held {
		t.Errorf("suspends() = %v, want %v", held, r.held)
	}
	job.Namespace, job.CreationTimestamp = r.namespace, metav1.Now()
	work, err := policy.ReadJob(job)
	_, settings := view.Settle(&work)
	_, never := policy.NeverHeldJob(job)
	holds := err == nil && !never && !work.Marks.RunNow && settings.Enforced() && settings.AllowedDelay > 0
	if holds != (r.held && !r.letGo) {
		t.Errorf("hold loop would hold the Job: %v (error %v), but the table expects suspended %v, released %v",
			holds, err, r.held,
			r.letGo)
	}
}

// suspends reports whether admission suspends a Job when it is created.
func (w *world) suspends(t *testing.T, namespace string, job *batchv1.Job) bool {
	t.Helper()
	before := job.Spec.Suspend != nil && *job.Spec.Suspend
	created, err := w.Client.BatchV1().Jobs(namespace).Create(t.Context(), job.DeepCopy(),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	suspended, label := created.Spec.Suspend != nil && *created.Spec.Suspend, created.Labels[v1alpha1.LabelHeld]
	if suspended != (before || label == "true") {
		t.Errorf("inconsistent Job: suspend is %v, label is %q", suspended, label)
	}
	return label == "true"
}

func (w *world) policies() dynamic.ResourceInterface {
	return w.objects.Resource(energyPolicies).Namespace(v1alpha1.SystemNamespace)
}

// setPolicy replaces the cluster-wide policy and its status and waits until both are effective in admission. It
// detects this through an additional namespace that only occurs in the new status.
func (w *world) setPolicy(t *testing.T, spec string, mirror map[string]any, sentinel string) {
	t.Helper()
	ctx := t.Context()
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sentinel}}
	if _, err := w.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.policies().Delete(ctx, "default", metav1.DeleteOptions{}); err != nil &&
		!strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	created, err := w.policies().Create(ctx, unstructuredPolicy(t, v1alpha1.SystemNamespace, spec),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	namespaces := map[string]any{sentinel: map[string]any{"mode": "enforce", "delays": true}}
	maps.Copy(namespaces, mirror)
	created.Object["status"] = map[string]any{"namespaces": namespaces}
	if _, err := w.policies().UpdateStatus(ctx, created,
		metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, 20*time.Second, "admission uses the policy "+spec,
		func() bool { return w.suspends(t, sentinel, newJob(nil)) })
}

func unstructuredPolicy(t *testing.T, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	return object(t,
		fmt.Sprintf("{apiVersion: kubenergy.io/v1alpha1, kind: EnergyPolicy, metadata: {name: default, namespace: "+
			"%s}, spec: %s}", namespace, spec))
}

func energyPolicy(t *testing.T, namespace, spec string) *v1alpha1.EnergyPolicy {
	t.Helper()
	var p v1alpha1.EnergyPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(unstructuredPolicy(t, namespace, spec).Object,
		&p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// viewOf returns the view of the hold loop for the given policies and namespaces.
func viewOf(t *testing.T, policies []*v1alpha1.EnergyPolicy, marks []policy.NamespaceMarks) *kube.View {
	t.Helper()
	c := kube.Contents{Policies: policies, Namespaces: marks, Defaults: policy.Defaults{
		Terms: policy.Terms{ExpectedDuration: time.Hour},
		Mode:  v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour, Schedulers: policy.BuiltIn().Schedulers,
	}}
	view, err := c.View()
	if err != nil {
		t.Fatal(err)
	}
	return view
}
