package policy

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func requests(pairs ...string) v1.ResourceRequirements {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return v1.ResourceRequirements{Requests: list}
}

func podSpec(containers ...v1.Container) v1.PodSpec { return v1.PodSpec{Containers: containers} }

func container(pairs ...string) v1.Container { return v1.Container{Resources: requests(pairs...)} }

func TestPodJob(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		spec        v1.PodSpec
		defaults    Defaults
		want        sched.Job
	}{
		{
			name: "nothing said",
			want: sched.Job{Duration: time.Hour},
		},
		{
			name: "everything said",
			annotations: map[string]string{
				v1alpha1.AnnotationAllowedDelay: "6h", v1alpha1.AnnotationExpectedDuration: "2h",
				v1alpha1.AnnotationFinishBy: "2026-06-01T20:00:00Z",
			},
			defaults: Defaults{Terms: Terms{AllowedDelay: time.Minute, ExpectedDuration: time.Minute}, MaxDelay: 24 * time.Hour},
			want: sched.Job{
				AllowedDelay: 6 * time.Hour, Duration: 2 * time.Hour, FinishBy: noon.Add(8 * time.Hour),
			},
		},
		{
			name:        "delay clamped",
			annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "48h"},
			defaults:    Defaults{MaxDelay: 24 * time.Hour},
			want:        sched.Job{AllowedDelay: 24 * time.Hour, Duration: time.Hour},
		},
		{
			name:        "default delay clamped too",
			annotations: map[string]string{v1alpha1.AnnotationStrategy: "carbon+window"},
			defaults:    Defaults{Terms: Terms{AllowedDelay: 48 * time.Hour, ExpectedDuration: time.Minute}, MaxDelay: time.Hour},
			want:        sched.Job{AllowedDelay: time.Hour, Duration: time.Minute},
		},
		{
			name:        "zero delay overrides the default",
			annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "0"},
			defaults:    Defaults{Terms: Terms{AllowedDelay: 48 * time.Hour}},
			want:        sched.Job{Duration: time.Hour},
		},
		{
			name:        "run now",
			annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "6h", v1alpha1.AnnotationRunNow: "true"},
			want:        sched.Job{AllowedDelay: 6 * time.Hour, Duration: time.Hour, Released: true},
		},
		{
			name: "released before",
			annotations: map[string]string{
				v1alpha1.AnnotationAllowedDelay: "6h", v1alpha1.AnnotationReleasedAt: "2026-06-01T11:00:00Z",
			},
			want: sched.Job{AllowedDelay: 6 * time.Hour, Duration: time.Hour, Released: true},
		},
		{
			name: "containers, init container, sidecar, overhead",
			spec: v1.PodSpec{
				Containers: []v1.Container{container("cpu", "500m", "memory", "1Gi"), container("cpu", "250m")},
				InitContainers: []v1.Container{
					{RestartPolicy: &always, Resources: requests("cpu", "100m")},
					container("cpu", "2", "memory", "512Mi"),
				},
				Overhead: v1.ResourceList{"cpu": resource.MustParse("10m")},
			},
			want: sched.Job{Duration: time.Hour, Request: sched.Resources{MilliCPU: 2110, Memory: 1 << 30}},
		},
		{
			name: "the pod's own request",
			spec: v1.PodSpec{
				Containers: []v1.Container{container("cpu", "1")},
				Resources:  &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("3")}},
			},
			want: sched.Job{Duration: time.Hour, Request: sched.Resources{MilliCPU: 3000}},
		},
		{
			name: "partitions of GPUs",
			spec: podSpec(container("nvidia.com/mig-3g.20gb", "2"), container("amd.com/cpx_nps4", "1")),
			want: sched.Job{Duration: time.Hour, Request: sched.Resources{MilliGPU: 2*428 + 125}},
		},
		{
			name: "GPUs of both vendors",
			spec: podSpec(container("nvidia.com/gpu", "2"), container("amd.com/gpu", "1", "example.com/gpu", "9")),
			want: sched.Job{Duration: time.Hour, Request: sched.Resources{GPU: 3}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "lab", Name: "p", CreationTimestamp: metav1.NewTime(noon), Annotations: tc.annotations,
				},
				Spec: tc.spec,
			}
			tc.want.ID, tc.want.Submitted = "lab/p", noon
			work, err := ReadPod(pod)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := rulesOf(t, Sources{Defaults: tc.defaults}).Settle(&work)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBatchJob(t *testing.T) {
	many, few, most := int32(8), int32(3), int32(math.MaxInt32)
	for _, tc := range []struct {
		name string
		spec batchv1.JobSpec
		want sched.Resources
	}{
		{name: "one pod", want: sched.Resources{MilliCPU: 500, Memory: 1 << 30}},
		{
			name: "all pods in parallel", spec: batchv1.JobSpec{Parallelism: &many},
			want: sched.Resources{MilliCPU: 4000, Memory: 8 << 30},
		},
		{
			name: "at most the number of completions", spec: batchv1.JobSpec{Parallelism: &many, Completions: &few},
			want: sched.Resources{MilliCPU: 1500, Memory: 3 << 30},
		},
		{
			name: "overflow", spec: batchv1.JobSpec{Parallelism: &most, Completions: &most},
			want: sched.Resources{MilliCPU: 500 * math.MaxInt32, Memory: math.MaxInt32 << 30},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.spec.Template.Spec = podSpec(container("cpu", "500m", "memory", "1Gi"))
			tc.spec.Template.Annotations = map[string]string{
				v1alpha1.AnnotationAllowedDelay: "2h", v1alpha1.AnnotationExpectedDuration: "10m",
			}
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "lab", Name: "j", CreationTimestamp: metav1.NewTime(noon),
					Annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "3h"},
				},
				Spec: tc.spec,
			}
			work, err := ReadJob(job)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := rulesOf(t, Sources{}).Settle(&work)
			want := sched.Job{
				ID: "lab/j", Submitted: noon, AllowedDelay: 3 * time.Hour, Duration: 10 * time.Minute, Request: tc.want,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := Times(sched.Resources{MilliCPU: math.MaxInt64 / 2}, 3).MilliCPU; got != math.MaxInt64 {
		t.Errorf("the product that overflows is %d", got)
	}
}

func TestMarked(t *testing.T) {
	for _, tc := range []struct {
		annotations map[string]string
		want        bool
	}{
		{nil, false},
		{map[string]string{v1alpha1.AnnotationExpectedDuration: "1h"}, false},
		{map[string]string{v1alpha1.AnnotationAllowedDelay: "1h"}, true},
		{map[string]string{v1alpha1.AnnotationStrategy: "nonsense"}, true},
	} {
		if got := marked(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}); got != tc.want {
			t.Errorf("Marked with %v: %v", tc.annotations, got)
		}
	}
}

// TestGPUsOf verifies the GPUs per unit of resources. All other resources of accelerators are unknown, not missing.
func TestGPUsOf(t *testing.T) {
	for name, want := range map[v1.ResourceName]sched.Resources{
		"nvidia.com/gpu": {GPU: 1}, "nvidia.com/gpu.shared": {GPU: 1}, "amd.com/gpu": {GPU: 1},
		"habana.ai/gaudi":       {GPU: 1},
		"nvidia.com/mig-1g.5gb": {MilliGPU: 142}, "nvidia.com/mig-3g.20gb": {MilliGPU: 428},
		"nvidia.com/mig-7g.80gb": {MilliGPU: 1000}, "nvidia.com/mig-1g.10gb.me": {MilliGPU: 142},
		"nvidia.com/mig-1g.23gb-me": {MilliGPU: 142}, "nvidia.com/mig-1g.24gb.me.all": {MilliGPU: 142},
		"nvidia.com/mig-1c.3g.20gb": {MilliGPU: 142}, "nvidia.com/mig-2g.12gb": {MilliGPU: 500}, // of an A30
		"amd.com/spx_nps1": {MilliGPU: 1000}, "amd.com/dpx_nps2": {MilliGPU: 500}, "amd.com/cpx_nps4": {MilliGPU: 125},
		"cpu": {}, "example.com/gpu": {}, "gpu.intel.com/i915_monitoring": {}, "nvidia.com/gpumem": {},
	} {
		requests := v1.ResourceList{name: resource.MustParse("1")}
		pod := &v1.Pod{Spec: podSpec(v1.Container{Resources: v1.ResourceRequirements{Requests: requests}})}
		if got, scalar := GPUsOf(name), ScalarGPUs(map[v1.ResourceName]int64{name: 1}); got != want || scalar != want {
			t.Errorf("%s: %+v, and %+v in a NodeInfo, want %+v", name, got, scalar, want)
		}
		if from := UnknownGPUs(pod); from != "" {
			t.Errorf("%s: unknown GPUs of %s", name, from)
		}
	}
	for _, name := range []v1.ResourceName{
		"gpu.intel.com/i915", "gpu.intel.com/xe", "nvidia.com/mig-1g.5gb.shared", "nvidia.com/GA102GL_A10",
		"aws.amazon.com/neuroncore", "google.com/tpu",
	} {
		requests := v1.ResourceList{name: resource.MustParse("1")}
		pod := &v1.Pod{Spec: podSpec(v1.Container{Resources: v1.ResourceRequirements{Requests: requests}})}
		if from := UnknownGPUs(pod); GPUsOf(name) != (sched.Resources{}) || from != "resource "+string(name) {
			t.Errorf("%s: %+v, unknown GPUs of %q", name, GPUsOf(name), from)
		}
	}
	claims := &v1.Pod{Spec: v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{{
		Name: "gpu", ResourceClaimTemplateName: new("one-gpu"),
	}}}}
	if all := FindGPUs(claims); len(all) != 1 || all[0].Said != "the GPUs of resource claim gpu are unknown" {
		t.Errorf("%v", all)
	}
	mixed := v1.ResourceList{
		"nvidia.com/gpu": resource.MustParse("1"), "nvidia.com/mig-3g.20gb": resource.MustParse("2"),
	}
	slices := v1.ResourceList{"nvidia.com/mig-1g.5gb": resource.MustParse("7")}
	if n, one := CountGPUs(mixed), CountGPUs(slices); n != 2 || one != 1 {
		t.Errorf("%d and %d GPUs, want 2 and 1", n, one)
	}
}
