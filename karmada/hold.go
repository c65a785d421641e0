package karmada

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// free lets a binding go that admission has suspended, once its Job is not held, or there is none. The hold loop
// releases the Job itself by its deadline, and so does the controller; any replica of ours lets the binding go, as that
// is the same whoever does it.
func (d *driver) free(ctx context.Context, b *binding) error {
	if !b.suspended() || b.Labels[v1alpha1.LabelHeld] == "" {
		return nil
	}
	r := &b.Spec.Resource
	j, err := d.client.BatchV1().Jobs(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && string(j.UID) == r.UID && j.Labels[v1alpha1.LabelHeld] != "" && j.Spec.Suspend != nil && *j.Spec.Suspend {
		return nil
	}
	d.mu.Lock()
	d.freed[b.UID] = d.now()
	maps.DeleteFunc(d.freed, func(_ types.UID, at time.Time) bool { return d.now().Sub(at) > patience })
	d.mu.Unlock()
	return d.patch(ctx, b, "", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelHeld: nil}},
		"spec":     map[string]any{"suspension": map[string]any{"scheduling": false}},
	})
}
