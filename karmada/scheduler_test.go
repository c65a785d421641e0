package karmada

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/kube"
)

// Where writing fails, as when the binding has changed meanwhile, nothing is said of the binding: it is placed again.
func TestPlaceSaysNothingOfConflicts(t *testing.T) {
	d := federated(t, 1, 1, func() time.Time { return noon })
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	d.dynamic = client
	client.PrependReactor("patch", kube.Bindings.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "" {
			return true, nil, apierrors.NewConflict(kube.Bindings.GroupResource(), "b", errors.New("it has changed"))
		}
		t.Errorf("it said %s", a.(clienttesting.PatchAction).GetPatch())
		return true, nil, nil
	})
	if err := d.place(t.Context(), divided(t, "b", 1)); !apierrors.IsConflict(err) {
		t.Error(err)
	}
}
