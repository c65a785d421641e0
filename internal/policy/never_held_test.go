package policy

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

var rewrite = flag.Bool("rewrite", false, "regenerate the parts of the chart that are derived from this package")

// generated matches the generated part of a file of the chart and the comments around it.
var generated = regexp.MustCompile("(?s)(# Generated from never_held.go .*?:\n).*?(\n *# End of the generated part)")

func ownedBy(apiVersion, kind string) func(*metav1.ObjectMeta) {
	yes := true
	return func(o *metav1.ObjectMeta) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x", Controller: &yes}}
	}
}

func labelled(key, value string) func(*metav1.ObjectMeta) {
	return func(o *metav1.ObjectMeta) { o.Labels = map[string]string{key: value} }
}

func annotated(key, value string) func(*metav1.ObjectMeta) {
	return func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{key: value} }
}

func inNamespace(name string) func(*metav1.ObjectMeta) {
	return func(o *metav1.ObjectMeta) { o.Namespace = name }
}

// neverHeldObjects contains test cases for both pods and Jobs.
var neverHeldObjects = []struct {
	name     string
	meta     func(*metav1.ObjectMeta)
	priority string
	want     string
}{
	{name: "kube-system", meta: inNamespace("kube-system"), want: "objects are never held in namespace kube-system"},
	{name: "own namespace", meta: inNamespace("kubenergy-system"), want: "objects are never held in namespace kubenergy-system"},
	{
		name: "cluster critical", priority: "system-cluster-critical",
		want: "the priority class is system-cluster-critical",
	},
	{name: "node critical", priority: "system-node-critical", want: "the priority class is system-node-critical"},
	{name: "high priority is not system priority", priority: "my-critical", want: ""},
	{name: "Kueue", meta: labelled("kueue.x-k8s.io/queue-name", "q"), want: "Kueue decides when the Job runs"},
	{
		name: "Kueue without a queue", meta: labelled("kueue.x-k8s.io/priority-class", "low"),
		want: "Kueue decides when the Job runs",
	},
	{
		name: "Kueue by annotation", meta: annotated("kueue.x-k8s.io/job-min-parallelism", "2"),
		want: "Kueue decides when the Job runs",
	},
	{name: "a similar key", meta: labelled("example.com/kueue.x-k8s.io", "q"), want: ""},
	{name: "Helm hook", meta: annotated("helm.sh/hook", "pre-install"), want: "the object is a Helm hook"},
	{name: "Argo CD hook", meta: annotated("argocd.argoproj.io/hook", "Sync"), want: "the object is an Argo CD hook"},
	{
		name: "Argo workflow", meta: labelled("workflows.argoproj.io/workflow", "w"),
		want: "the object is a step of an Argo workflow",
	},
	{
		name: "Argo workflow by annotation", meta: annotated("workflows.argoproj.io/node-name", "w"),
		want: "the object is a step of an Argo workflow",
	},
	{
		name: "Karmada", meta: labelled("karmada.io/managed", "true"),
		want: "propagated by Karmada, so it may only be held in the federation",
	},
	{name: "nothing special", want: ""},
}

func TestNeverHeldPod(t *testing.T) {
	check := func(t *testing.T, pod *v1.Pod, want string) {
		t.Helper()
		if why, never := NeverHeldPod(pod); why != want || never != (want != "") {
			t.Errorf("got %q, %v; want %q", why, never, want)
		}
	}
	for _, tc := range neverHeldObjects {
		t.Run(tc.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{PriorityClassName: tc.priority}}
			if tc.meta != nil {
				tc.meta(&pod.ObjectMeta)
			}
			check(t, pod, tc.want)
		})
	}
	for _, tc := range []struct {
		name      string
		meta      func(*metav1.ObjectMeta)
		condition v1.PodCondition
		want      string
	}{
		{name: "of a Job", meta: ownedBy("batch/v1", "Job"), want: "controlled by Job x"},
		{name: "of a DaemonSet", meta: ownedBy("apps/v1", "DaemonSet"), want: "controlled by DaemonSet x"},
		{name: "of a Deployment", meta: ownedBy("apps/v1", "ReplicaSet"), want: "controlled by ReplicaSet x"},
		{
			name: "owned but not controlled",
			meta: func(o *metav1.ObjectMeta) {
				o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x"}}
			},
		},
		{
			name: "unschedulable",
			condition: v1.PodCondition{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			},
			want: "the scheduler has already found no capacity for the pod",
		},
		{
			name: "gated, like a held pod",
			condition: v1.PodCondition{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{tc.condition}}}
			if tc.meta != nil {
				tc.meta(&pod.ObjectMeta)
			}
			check(t, pod, tc.want)
		})
	}
}

func TestNeverHeldJob(t *testing.T) {
	check := func(t *testing.T, job *batchv1.Job, want string) {
		t.Helper()
		if why, never := NeverHeldJob(job); why != want || never != (want != "") {
			t.Errorf("got %q, %v; want %q", why, never, want)
		}
	}
	for _, tc := range neverHeldObjects {
		t.Run(tc.name, func(t *testing.T) {
			job := &batchv1.Job{}
			job.Spec.Template.Spec.PriorityClassName = tc.priority
			if tc.meta != nil {
				tc.meta(&job.ObjectMeta)
			}
			check(t, job, tc.want)
		})
	}
	yes, no := true, false
	for _, tc := range []struct {
		name      string
		meta      func(*metav1.ObjectMeta)
		suspend   *bool
		managedBy *string
		want      string
	}{
		{name: "suspended by its user", suspend: &yes, want: "suspended by its user"},
		{name: "suspended by KubEnergy", suspend: &yes, meta: labelled(v1alpha1.LabelHeld, "true")},
		{
			name: "the held label with another value", suspend: &yes, meta: labelled(v1alpha1.LabelHeld, "yes"),
			want: "suspended by its user",
		},
		{name: "not suspended", suspend: &no},
		{
			name: "managed by another controller", managedBy: new("example.com/other-controller"),
			want: "example.com/other-controller decides when it runs",
		},
		{
			name: "managed by another controller and held", managedBy: new("kueue.x-k8s.io/multikueue"), suspend: &yes,
			meta: labelled(v1alpha1.LabelHeld, "true"), want: "kueue.x-k8s.io/multikueue decides when it runs",
		},
		{name: "managed by the job controller", managedBy: new("kubernetes.io/job-controller")},
		{name: "of a CronJob", meta: ownedBy("batch/v1", "CronJob")},
		{
			name: "of a CronJob in another API group", meta: ownedBy("example.com/v1", "CronJob"),
			want: "owned by CronJob x",
		},
		{name: "of a workflow", meta: ownedBy("example.com/v1", "Workflow"), want: "owned by Workflow x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job := &batchv1.Job{Spec: batchv1.JobSpec{Suspend: tc.suspend, ManagedBy: tc.managedBy}}
			if tc.meta != nil {
				tc.meta(&job.ObjectMeta)
			}
			check(t, job, tc.want)
		})
	}
}

// TestAdmissionPolicies verifies that the admission policies of the chart exclude the same Jobs as this package. The
// parts of their CEL between two comments are generated from its lists.
func TestAdmissionPolicies(t *testing.T) {
	var prefixes, keys []string
	for _, system := range otherSystems {
		if strings.HasSuffix(system.key, "/") {
			prefixes = append(prefixes, fmt.Sprintf("!k.startsWith('%s') &&", system.key))
		} else {
			keys = append(keys, "'"+system.key+"'")
		}
	}
	owners := []string{
		"JOB.metadata.?ownerReferences.orValue([]).all(o, o.kind == 'CronJob' && o.apiVersion.startsWith('batch/')) &&",
		"JOB.spec.?managedBy.orValue('kubernetes.io/job-controller') == 'kubernetes.io/job-controller'",
	}
	systems := slices.Concat(
		[]string{"[JOB.metadata.?labels.orValue({}), JOB.metadata.?annotations.orValue({})].all(m, m.all(k,"},
		prefixes, []string{"!(k in [" + strings.Join(keys, ", ") + "])))"},
	)
	critical := []string{
		"!(JOB.spec.template.spec.?priorityClassName.orValue('').startsWith('system-') &&",
		"JOB.spec.template.spec.?priorityClassName.orValue('').endsWith('-critical'))",
	}
	const and, indent = " &&", "\n      "
	lines := func(object string, all ...string) string {
		return "expression: >-" + indent + strings.ReplaceAll(strings.Join(all, indent), "JOB", object)
	}
	namespaces := "!(request.namespace in ['" + strings.Join(systemNamespaces, "', '") + "'])"
	for path, want := range map[string]string{
		"files/hold/admission.yaml": "  - name: not-of-another-controller\n    " + lines("object", owners...) +
			"\n  - name: not-of-another-system\n    " + lines("object", systems...) +
			"\n  - name: not-critical-to-the-system\n    " + lines("object", critical...),
		"templates/hold/guard.yaml": "    " + lines("oldObject", slices.Concat(owners[:1], []string{owners[1] + and},
			systems[:len(systems)-1], []string{systems[len(systems)-1] + and}, critical[:1],
			[]string{critical[1] + and, namespaces})...),
	} {
		path = filepath.Join("..", "..", "charts", "kubenergy", path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		part := generated.FindSubmatchIndex(text)
		if part == nil {
			t.Fatalf("%s has no generated part", path)
		}
		current := slices.Concat(text[:part[3]], []byte(want), text[part[4]:])
		if *rewrite {
			err = os.WriteFile(path, current, 0o644)
		} else if !bytes.Equal(text, current) {
			t.Errorf("%s is outdated, run make manifests", path)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
