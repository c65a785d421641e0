package kube

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim removes fields that do not affect any decision. It is used as a transform function of informers.
func Trim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if p, ok := obj.(*v1.Pod); ok {
		p.Spec.Volumes, p.Status.ContainerStatuses, p.Status.InitContainerStatuses = nil, nil, nil
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			p.Spec.Containers[i] = v1.Container{Name: c.Name, Resources: c.Resources}
		}
	}
	return obj, nil
}
