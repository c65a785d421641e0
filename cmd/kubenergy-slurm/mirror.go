package main

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube/standalone"
	"github.com/kubenergy/kubenergy/slurm"
)

// mirror shows jobs that wait as held Jobs in the namespaces of their accounts, so that kubenergy held, explain, the
// dashboard and budgets see them, and run-now reaches them.
type mirror struct{ store *standalone.Server }

const (
	groupBatch = "batch/v1"
	kindJob    = "Job"
)

func (m mirror) show(held []slurm.Held) {
	shown := map[string]*unstructured.Unstructured{}
	for _, o := range m.store.Objects(groupBatch, kindJob, labels.Everything()) {
		shown[o.GetNamespace()+"/"+o.GetName()] = o
	}
	for i := range held {
		h := &held[i]
		key := h.Namespace + "/" + h.Name
		j := jobOf(h)
		if was := shown[key]; was != nil && was.GetAnnotations()[v1alpha1.AnnotationRunNow] != "" {
			j.Annotations[v1alpha1.AnnotationRunNow] = was.GetAnnotations()[v1alpha1.AnnotationRunNow]
		}
		delete(shown, key)
		m.put(&v1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: h.Namespace, Labels: map[string]string{standalone.LabelMade: "true"}},
		}, true)
		m.put(j, false)
	}
	for _, o := range shown {
		m.store.Delete(o)
	}
}

// put stores an object; once: unless there is one of that name.
func (m mirror) put(o runtime.Object, once bool) {
	if content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o); err == nil {
		m.store.Put(&unstructured.Unstructured{Object: content}, once)
	}
}

func (m mirror) runNow(namespace, name string) bool {
	o := m.store.Object(groupBatch, kindJob, namespace, name)
	return o != nil && o.GetAnnotations()[v1alpha1.AnnotationRunNow] == "true"
}

func jobOf(h *slurm.Held) *batchv1.Job {
	annotations := maps.Clone(h.Marks)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationHeldUntil] = h.Begin.UTC().Format(time.RFC3339)
	annotations[v1alpha1.AnnotationHeldReason] = h.Reason
	annotations[v1alpha1.AnnotationLatestStart] = h.Latest.UTC().Format(time.RFC3339)
	requests := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(h.Request.MilliCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(h.Request.Memory, resource.BinarySI),
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: groupBatch, Kind: kindJob},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.Namespace, Name: h.Name, CreationTimestamp: metav1.NewTime(h.Submitted),
			Annotations: annotations,
			Labels:      map[string]string{v1alpha1.LabelHeld: "true"},
		},
		Spec: batchv1.JobSpec{Suspend: new(true), Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelTeam: h.User}},
			Spec: v1.PodSpec{Containers: []v1.Container{{
				Name: "slurm", Resources: v1.ResourceRequirements{Requests: requests},
			}}},
		}},
	}
}
