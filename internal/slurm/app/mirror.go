package app

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/server"
	"github.com/kubenergy/kubenergy/internal/kube/standalone"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

// mirror publishes waiting Slurm jobs as held Jobs in the namespaces of their accounts. This makes them available
// to kubenergy held, explain and run-now, to the dashboard and to budgets. Jobs that are not delayed because of the
// mode become Jobs that are not held, so that the controller counts the decisions about them.
type mirror struct{ store *standalone.Server }

var kindJob = batchv1.SchemeGroupVersion.WithKind("Job")

func (m mirror) show(held []slurm.Held) {
	var all []*unstructured.Unstructured
	for i := range held {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(jobOf(&held[i]))
		if err == nil {
			all = append(all, &unstructured.Unstructured{Object: content})
		}
	}
	m.store.Replace(kindJob, all, server.Ingested, func(o, previous *unstructured.Unstructured) {
		if asked := runNow(previous); asked != "" { // may have been set after the pass started
			all := o.GetAnnotations()
			all[v1alpha1.AnnotationRunNow] = asked
			o.SetAnnotations(all)
		}
	})
}

func runNow(o *unstructured.Unstructured) string {
	return o.GetAnnotations()[v1alpha1.AnnotationRunNow]
}

func (m mirror) runNow(namespace, name string) bool {
	o := m.store.Object(kindJob, namespace, name)
	return o != nil && runNow(o) == "true"
}

func jobOf(h *slurm.Held) *batchv1.Job {
	annotations := maps.Clone(h.Marks)
	if annotations[v1alpha1.AnnotationExpectedDuration] == "" {
		annotations[v1alpha1.AnnotationExpectedDuration] = h.Duration.String() // limited by --time
	}
	annotations[v1alpha1.AnnotationLatestStart] = h.Latest.UTC().Format(time.RFC3339)
	var status batchv1.JobStatus
	var labels map[string]string
	if held := !h.Begin.IsZero(); held {
		labels = map[string]string{v1alpha1.LabelHeld: "true"}
		annotations[v1alpha1.AnnotationHeldUntil] = h.Begin.UTC().Format(time.RFC3339)
		annotations[v1alpha1.AnnotationHeldReason] = h.Reason
	} else if h.Running {
		status = batchv1.JobStatus{Active: 1, Ready: new(int32(1))}
	}
	requests := policy.ListOf(sched.Resources{MilliCPU: h.Request.MilliCPU, Memory: h.Request.Memory})
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: kindJob.GroupVersion().String(), Kind: kindJob.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.Namespace, Name: h.Name, CreationTimestamp: metav1.NewTime(h.Submitted),
			Annotations: annotations, Labels: labels,
		},
		Status: status,
		Spec: batchv1.JobSpec{Suspend: new(labels != nil), Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelTeam: h.User}},
			Spec: v1.PodSpec{SchedulerName: policy.Slurm, Containers: []v1.Container{{
				Name: policy.Slurm, Resources: v1.ResourceRequirements{Requests: requests},
			}}},
		}},
	}
}
