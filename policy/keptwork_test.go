package policy

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

func keptPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0,
				time.UTC)),
			Labels: map[string]string{v1alpha1.LabelWorkloadType: typeBatch, v1alpha1.LabelWorkloadClass: "training"},
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
				NvidiaGPU: resource.MustParse("2"),
			}}}},
		},
	}
}

// TestKeptWorkIsTheWork: nothing that is read of an object is lost.
func TestKeptWorkIsTheWork(t *testing.T) {
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
	read := func(w Work, err error) Work {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for name, w := range map[string]Work{
		"pod": read(ReadPod(pod)), "pod of a set": read(ReadPod(charged)), "run of a CronJob": read(ReadJob(run)),
		"nothing said": read(ReadPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}})),
	} {
		k := w.Keep()
		if diff := cmp.Diff(w, k.Work(), cmp.AllowUnexported(Work{}, Terms{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if k.Namespace() != w.Namespace || k.Name() != w.Name ||
			!k.Submitted().Equal(w.Submitted) {
			t.Errorf("%s is kept as %s/%s of %v", name, k.Namespace(), k.Name(), k.Submitted())
		}
	}
}

// TestKeptWorkIsSmall: of Jobs that are alike, a hundred thousand must fit beside a scheduler.
func TestKeptWorkIsSmall(t *testing.T) {
	const n, most = 20_000, 100 // bytes each, name included
	kept := make([]KeptWork, n)
	before := liveHeap()
	for i := range kept {
		w, err := ReadPod(keptPod("pod-" + strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		kept[i] = w.Keep()
	}
	if each := (liveHeap() - before) / n; each > most {
		t.Errorf("%d bytes each beside the slice: want at most %d", each, most)
	}
	runtime.KeepAlive(kept)
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
