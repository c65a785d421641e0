package kube_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func TestTraceJob(t *testing.T) {
	j := sched.Job{
		Duration: time.Hour, Request: sched.Resources{MilliCPU: 2500, Memory: 1 << 30, GPU: 2},
		Selector: map[string]string{"gpu-model": "T4"},
	}
	job := kube.TraceJob("a", &j, func(d time.Duration) time.Duration { return d / 60 })
	pod := &job.Spec.Template
	if job.Annotations[v1alpha1.AnnotationExpectedDuration] != "1m0s" ||
		pod.Annotations[v1alpha1.AnnotationExpectedDuration] != "1m0s" {
		t.Errorf("the annotations are %v and %v", job.Annotations, pod.Annotations)
	}
	asked := pod.Spec.Containers[0].Resources
	for name, want := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: "2500m", corev1.ResourceMemory: "1Gi", "nvidia.com/gpu": "2",
	} {
		if got := asked.Requests[name]; got.String() != want {
			t.Errorf("%s: the request is %s, want %s", name, got.String(), want)
		}
	}
	if got := asked.Limits["nvidia.com/gpu"]; got.String() != "2" || len(asked.Limits) != 1 {
		t.Errorf("limits %v, want only GPUs", asked.Limits)
	}
	job.Annotations["x"], pod.Spec.NodeSelector["x"] = "y", "y"
	if pod.Annotations["x"] != "" || j.Selector["x"] != "" {
		t.Error("Job, pod and trace share a map")
	}
	if *job.Spec.BackoffLimit != 0 || pod.Spec.SchedulerName != policy.SchedulerName ||
		*pod.Spec.AutomountServiceAccountToken {
		t.Errorf("spec %+v", pod.Spec)
	}
	j.Request.GPU = 0
	if limits := kube.TraceJob("a", &j, func(d time.Duration) time.Duration {
		return d
	}).Spec.Template.Spec.Containers[0].Resources.Limits; limits != nil {
		t.Errorf("limits %v without GPUs", limits)
	}
}
