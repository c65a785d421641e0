package cached

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
)

var silent = slog.New(slog.DiscardHandler)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func quantities(cpu string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Gi")}
}

// Trimming does not change how other packages read an object.
func TestTrim(t *testing.T) {
	long := strings.Repeat("x", 5000)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "job", CreationTimestamp: metav1.NewTime(noon),
	}}
	j.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": long, v1alpha1.AnnotationBudgetActions: long,
	}
	j.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	j.Spec.ManagedBy = new("example.com/other-controller")
	neverBefore, _ := policy.NeverHeldJob(j)
	j.Labels = map[string]string{v1alpha1.LabelInterruptible: "true"}
	j.Annotations[v1alpha1.AnnotationReplicas], j.Annotations[v1alpha1.AnnotationElasticIndexes] = "2-4", "true"
	j.Spec.Parallelism, j.Spec.Completions = new(int32(3)), new(int32(3))
	j.Spec.CompletionMode, j.Spec.MaxFailedIndexes = new(batchv1.IndexedCompletion), new(int32(1))
	j.Spec.Template = podTemplate()
	before, errBefore := policy.ReadJob(j)
	if _, err := transform(silent, newTrimmer(nil).trimJob)(j); err != nil {
		t.Fatal(err)
	}
	after, errAfter := policy.ReadJob(j)
	if fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", after) || errBefore != nil || errAfter != nil {
		t.Errorf("the trimmed Job reads as %+v, want %+v", after, before)
	}
	if never, _ := policy.NeverHeldJob(j); never != neverBefore || never == "" {
		t.Errorf("the trimmed Job is never held because of %q, want %q", never, neverBefore)
	}
	if !kube.SeenJob(j).Annotated || j.ManagedFields != nil ||
		len(j.Annotations["kubectl.kubernetes.io/last-applied-configuration"]) != 0 {
		t.Errorf("unexpected metadata %+v", j.ObjectMeta)
	}
	if j.Annotations[v1alpha1.AnnotationBudgetActions] != long {
		t.Error("the annotation of package budget was shortened")
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod", CreationTimestamp: metav1.NewTime(noon)}}
	p.Status.Phase = v1.PodRunning
	p.Spec = podTemplate().Spec
	p.Spec.NodeName = "n1"
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("one-gpu")}}
	p.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "1h", "other": long}
	p.Spec.Volumes = append(p.Spec.Volumes, podTemplate().Spec.Volumes...)
	podBefore, errBefore := policy.ReadPod(p)
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://1"}}
	seen := 0
	pods := newTrimmer(func(p *v1.Pod) { seen += len(p.Status.ContainerStatuses) })
	for range 2 { // trimming is idempotent
		if _, err := transform(silent, pods.trimPod)(p); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 1 {
		t.Errorf("saw was called with %d containers in total, want 1", seen)
	}
	if policy.UnknownGPUs(p) == "" {
		t.Error("the trimmed pod has no resource claims")
	}
	podAfter, errAfter := policy.ReadPod(p)
	if fmt.Sprintf("%+v", podBefore) != fmt.Sprintf("%+v", podAfter) || errBefore != nil || errAfter != nil {
		t.Errorf("the trimmed pod reads as %+v, want %+v", podAfter, podBefore)
	}
	if p.Spec.Volumes != nil || p.Spec.Containers[0].Image != "" || p.Spec.NodeName != "n1" ||
		p.Status.Phase != "Running" {
		t.Errorf("unexpected pod %+v", p)
	}
	for name, status := range map[string]batchv1.JobStatus{
		"counted":   {Succeeded: 1},
		"uncounted": {UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"pod"}}},
	} {
		queue := &batchv1.Job{Status: status}
		if _, err := transform(silent, newTrimmer(nil).trimJob)(queue); err != nil || !policy.CompletesWithoutPods(queue) {
			t.Errorf("the trimmed work queue has no completed pod (%s), error %v", name, err)
		}
	}
}

// A trimmed CronJob has the keys that are reported if they are not in the template.
func TestTrimCronJob(t *testing.T) {
	c := &batchv1.CronJob{}
	c.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "6h", v1alpha1.AnnotationStrategy: "carbon"}
	c.Spec.JobTemplate.Annotations = map[string]string{v1alpha1.AnnotationStrategy: "carbon"}
	c.Spec.JobTemplate.Spec.Template = podTemplate()
	before := policy.FindCronJob(c)
	if _, err := transform(silent, trimCronJob)(c); err != nil {
		t.Fatal(err)
	}
	if after := policy.FindCronJob(c); len(after) != 1 || !slices.Equal(before, after) {
		t.Errorf("findings of the trimmed CronJob = %v, want %v", after, before)
	}
	if len(c.Spec.JobTemplate.Spec.Template.Spec.Containers) > 0 {
		t.Errorf("the trimmed CronJob has containers: %+v", c.Spec.JobTemplate.Spec)
	}
}

// The memory for 100,000 pods of 1,000 owners is limited, because equal values are stored once.
func TestTrimmedPodsShare(t *testing.T) {
	pods := newTrimmer(func(*v1.Pod) {})
	trimmed := func(name, app, cpu string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		p.Spec = podTemplate().Spec
		p.Spec.Containers[0].Resources.Requests = quantities(cpu)
		p.Labels = map[string]string{"app": app}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app, UID: types.UID("uid of " + app)}}
		pods.trimPod(p)
		return p
	}
	a, b, other := trimmed("a", "web", "500m"), trimmed("b", "web", "500m"), trimmed("c", "db", "250m")
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] || &a.OwnerReferences[0] != &b.OwnerReferences[0] ||
		reflect.ValueOf(a.Labels).Pointer() != reflect.ValueOf(b.Labels).Pointer() {
		t.Error("two pods of one owner do not share values")
	}
	if have, want := policy.PodRequest(other).MilliCPU, int64(250+100+10); have != want ||
		other.Labels["app"] != "db" ||
		other.OwnerReferences[0].Name != "db" {
		t.Errorf("the third pod requests %d, want %d, with labels %v, owners %v", have, want, other.Labels,
			other.OwnerReferences)
	}
	few := lru.New(maxPooled)
	for i := range 2*maxPooled + 1 {
		if have := share(few, strconv.Itoa(i), i); have != i || few.Len() > maxPooled {
			t.Fatalf("share(%d) = %d with %d pooled values", i, have, few.Len())
		}
	}
}

func podTemplate() v1.PodTemplateSpec {
	always := v1.ContainerRestartPolicyAlways
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.LabelWorkloadClass: "training"},
			Annotations: map[string]string{v1alpha1.AnnotationExpectedDuration: "2h"},
		},
		Spec: v1.PodSpec{
			SchedulerName: "kubenergy", PriorityClassName: "low", NodeSelector: map[string]string{"a": "b"},
			Containers: []v1.Container{{
				Name: "c", Image: "example.org/c:1", Resources: v1.ResourceRequirements{Requests: quantities("500m")},
			}},
			InitContainers: []v1.Container{{
				Name: "i", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: quantities("100m")},
			}},
			Overhead: quantities("10m"),
			Volumes:  []v1.Volume{{Name: "v"}},
		},
	}
}

// The budget of a Job applies to the Job. Its pods are not listed, although they have the annotations of its
// template.
func TestPodsOfJobsAreNotInTheIndexOfAllowances(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationBudgetKWh: "1"}}}
	if got := ByAllowance(p); len(got) != 1 {
		t.Errorf("keys of a bare pod: %v", got)
	}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: new(true)}}
	if got := ByAllowance(p); len(got) != 0 {
		t.Errorf("keys of a pod of a Job: %v", got)
	}
	if got := ByAllowance(&batchv1.Job{ObjectMeta: p.ObjectMeta}); len(got) != 1 {
		t.Errorf("keys of a Job with another Job as owner: %v", got)
	}
}

// An object that causes a panic remains untrimmed, and the following objects are trimmed.
func TestAnObjectThatPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	pods := newTrimmer(func(p *v1.Pod) {
		if p.Name == "bad" {
			panic("planted")
		}
	})
	for _, name := range []string{"bad", "good"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podTemplate().Spec}
		obj, err := transform(silent, pods.trimPod)(p)
		if err != nil || obj != p || (p.Spec.Volumes == nil) != (name == "good") {
			t.Errorf("unexpected result for %s: %+v, %v", name, obj, err)
		}
	}
	if again := panics.Note("objects"); again != 2 {
		t.Errorf("counted %d panics, want 1", again-1)
	}
}
