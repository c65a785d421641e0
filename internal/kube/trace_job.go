package kube

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// TraceJob converts a job of a trace to a Kubernetes Job with one pod and no retries. It sets the resource
// requests, the node selector, and the annotation of the expected duration on both the Job and the pod. The caller
// must set the image and command. shrink converts durations if the trace is replayed faster than in real time.
func TraceJob(name string, j *sched.Job, shrink func(time.Duration) time.Duration) *batchv1.Job {
	marks := map[string]string{v1alpha1.AnnotationExpectedDuration: shrink(j.Duration).String()}
	requests := policy.ListOf(j.Request)
	var limits corev1.ResourceList
	if gpus, asked := requests[policy.NvidiaGPU]; asked { // the API requires limits for extended resources
		limits = corev1.ResourceList{policy.NvidiaGPU: gpus}
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: marks},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(marks)},
				Spec: corev1.PodSpec{
					SchedulerName: policy.SchedulerName, NodeSelector: maps.Clone(j.Selector),
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(bool),
					TerminationGracePeriodSeconds: new(int64),
					Containers: []corev1.Container{{
						Name: "job", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
					}},
				},
			},
		},
	}
}
