package karmada

import (
	"context"
	"log/slog"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
)

// free lets a binding go that admission has suspended, once its Job is not held, or there is none. The hold loops and
// the controller release the Job itself by its deadline; any of ours may let the binding go, as the patch is the same.
func free(ctx context.Context, d dynamic.Interface, b *binding) (freed bool, err error) {
	if !b.suspended() || b.Labels[v1alpha1.LabelHeld] == "" {
		return false, nil
	}
	r := &b.Spec.Resource
	j, err := d.Resource(batchv1.SchemeGroupVersion.WithResource("jobs")).Namespace(r.Namespace).Get(ctx, r.Name,
		metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if err == nil && string(j.GetUID()) == r.UID && j.GetLabels()[v1alpha1.LabelHeld] != "" {
		if waits, _, _ := unstructured.NestedBool(j.Object, "spec", "suspend"); waits {
			return false, nil
		}
	}
	return true, patch(ctx, d, b, "", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelHeld: nil}},
		"spec":     map[string]any{"suspension": map[string]any{"scheduling": false}},
	})
}

func (d *driver) free(ctx context.Context, b *binding) error {
	freed, err := free(ctx, d.dynamic, b)
	if !freed {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freed[b.UID] = d.Clock()
	maps.DeleteFunc(d.freed, func(_ types.UID, at time.Time) bool { return d.Clock().Sub(at) > patience })
	return err
}

const (
	releaseLook = 5 * time.Second
	absentLook  = 5 * time.Minute // where the API server has no bindings
)

// Release is the second releaser of bindings, for the controller of a federation: it lets go of what none of the
// kubenergy-karmada has, until ctx ends. Where the API server is not Karmada's it does nothing.
func Release(ctx context.Context, d dynamic.Interface, log *slog.Logger) error {
	for {
		list, err := d.Resource(bindingResource).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHeld})
		pause := releaseLook
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			pause = absentLook
		case err != nil:
			log.Warn("looking for suspended bindings", "error", err)
		default:
			for i := range list.Items {
				releaseOne(ctx, d, &list.Items[i], log)
			}
		}
		if !kube.Pause(ctx, pause) {
			return nil
		}
	}
}

func releaseOne(ctx context.Context, d dynamic.Interface, o *unstructured.Unstructured, log *slog.Logger) {
	b, err := parse[binding](o)
	if err == nil && time.Since(o.GetCreationTimestamp().Time) > releaseLook { // kubenergy-karmada is quicker
		_, err = free(ctx, d, b.(*binding))
	}
	if err != nil {
		log.Warn("letting a binding go", "namespace", o.GetNamespace(), "name", o.GetName(), "error", err)
	}
}
