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

// Bindings is the resource of Karmada's ResourceBindings. Each of them propagates an object to member clusters.
var Bindings = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "resourcebindings"}

// A HeldBinding is a binding that admission has suspended because its Job may be held.
type HeldBinding struct{ Namespace, Name, JobNamespace, Job, UID string } // UID is that of the Job

// Free resumes the binding if its Job is not held or does not exist. It reports whether the binding was resumed.
// The hold loops and the controller release the Job itself at its deadline. Any component may resume the binding,
// because the patch is the same.
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
