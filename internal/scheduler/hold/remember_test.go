package hold

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
)

func keptPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0,
				time.UTC)),
			Labels: map[string]string{v1alpha1.LabelWorkloadType: "batch", v1alpha1.LabelWorkloadClass: "training"},
			Annotations: map[string]string{
				v1alpha1.AnnotationAllowedDelay: "3h", v1alpha1.AnnotationExpectedDuration: "20m",
				v1alpha1.AnnotationCarbonThreshold: "200",
				v1alpha1.AnnotationStrategy:        "carbon+window",
				v1alpha1.AnnotationFinishBy:        "2026-03-02T12:00:00Z", v1alpha1.AnnotationMaxPower: "250",
			},
		},
		Spec: v1.PodSpec{
			SchedulerName: "kubenergy", NodeSelector: map[string]string{
				"zone": "b", "disk": "", "kubernetes.io/arch": "arm64",
			},
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("2Gi"),
				policy.NvidiaGPU: resource.MustParse("2"),
			}}}},
		},
	}
}

// TestWhatIsRememberedIsTheWork verifies that all properties read from an object are preserved.
func TestWhatIsRememberedIsTheWork(t *testing.T) {
	three := int32(3)
	pod := keptPod("p")
	charged := keptPod("of-a-set")
	charged.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set", Controller: new(true),
	}}
	run := &batchv1.Job{
		ObjectMeta: pod.ObjectMeta,
		Spec: batchv1.JobSpec{
			Parallelism: &three,
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelTeam: "red"}}, Spec: pod.Spec,
			},
		},
	}
	run.Name = "nightly-1"
	run.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", Controller: new(true),
	}}
	read := func(w policy.Work, err error) policy.Work {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for name, w := range map[string]policy.Work{
		"pod": read(policy.ReadPod(pod)), "pod of a set": read(policy.ReadPod(charged)), "run of a CronJob": read(policy.ReadJob(run)),
		"nothing said": read(policy.ReadPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}})),
	} {
		var h hold
		h.remember(w)
		if diff := cmp.Diff(w, h.work(), cmp.AllowUnexported(policy.Work{}, policy.Terms{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if h.namespace() != w.Namespace || h.name != w.Name || !h.submitted.Equal(w.Submitted) {
			t.Errorf("%s is stored as %s/%s with the creation time %v", name, h.namespace(), h.name, h.submitted)
		}
	}
}
