package status

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// TestStatusWritesThatAreRefused verifies that a conflict or a deleted object is not an error, and that the write
// is retried.
func TestStatusWritesThatAreRefused(t *testing.T) {
	resource := schema.GroupResource{Group: "kubenergy.io", Resource: "any"}
	for _, tc := range []struct {
		refuse error
		failed bool
	}{
		{apierrors.NewNotFound(resource, "home"), false},
		{apierrors.NewConflict(resource, "home", errors.New("changed")), false},
		{apierrors.NewForbidden(resource, "home", errors.New("no")), true},
	} {
		w := kit.NewWorld(t, kit.Policy("team", "", 0),
			&v1alpha1.PowerProfile{ObjectMeta: metav1.ObjectMeta{Name: "home"}})
		w.Refuse = tc.refuse
		view := &kube.View{}
		for name, r := range map[string]reconcile.Reconciler{
			"policies": testPolicies(w, 0, nil),
			"profiles": &Profiles{Client: w.Client, View: func() *kube.View { return view }, Now: time.Now},
		} {
			about := request("home")
			if name == "policies" {
				about.NamespacedName = inNamespace("team")
			}
			result, err := r.Reconcile(t.Context(), about)
			if failed := err != nil; failed != tc.failed || !failed && result.RequeueAfter < time.Second {
				t.Errorf("%s, write error %v: result %+v, error %v", name, tc.refuse, result, err)
			}
		}
		if w.Writes.Load() != 2 {
			t.Errorf("%d writes were attempted, want 2", w.Writes.Load())
		}
	}
}
