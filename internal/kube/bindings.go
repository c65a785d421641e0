package kube

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// Bindings are Karmada's ResourceBindings: each is an object that is sent to clusters.
var Bindings = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "resourcebindings"}

// A HeldBinding is one that admission has suspended for its Job may be held.
type HeldBinding struct{ Namespace, Name, JobNamespace, Job, UID string } // the last is that of the Job

// Free lets it go once its Job is not held, or there is none; freed says whether. The hold loops and the controller
// release the Job itself by its deadline; any of ours may let the binding go, as the patch is the same.
func (b *HeldBinding) Free(ctx context.Context, c dynamic.Interface) (freed bool, err error) {
	jobs := c.Resource(batchv1.SchemeGroupVersion.WithResource("jobs")).Namespace(b.JobNamespace)
	j, err := jobs.Get(ctx, b.Job, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if err == nil && string(j.GetUID()) == b.UID && j.GetLabels()[v1alpha1.LabelHeld] != "" {
		if held, _, _ := unstructured.NestedBool(j.Object, "spec", "suspend"); held {
			return false, nil
		}
	}
	_, err = c.Resource(Bindings).Namespace(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, []byte(
		`{"metadata":{"labels":{"`+v1alpha1.LabelHeld+`":null},"annotations":{"`+v1alpha1.AnnotationReleasedAt+`":"`+
			time.Now().UTC().Format(time.RFC3339)+`"}},"spec":{"suspension":{"scheduling":false}}}`),
		metav1.PatchOptions{})
	return err == nil, err
}
