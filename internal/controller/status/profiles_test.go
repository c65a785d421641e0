package status

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/kube"
)

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// TestProfilesCountNodes verifies that the count follows created and deleted nodes and is only written when it
// changes.
func TestProfilesCountNodes(t *testing.T) {
	profile := &v1alpha1.PowerProfile{ObjectMeta: metav1.ObjectMeta{Name: "server", Generation: 1}}
	profile.Spec.IdleWatts, profile.Spec.MaxWatts = 100, 200
	w := kit.NewWorld(t, kit.Node("n1", "4"), kit.Node("n2", "4"), profile)
	view := kit.Valley(t, kit.Noon)
	p := &Profiles{Client: w.Client, View: func() *kube.View { return view }, Now: func() time.Time { return kit.Noon }}
	nodes := func(want int32) {
		t.Helper()
		if _, err := p.Reconcile(t.Context(), request("server")); err != nil {
			t.Fatal(err)
		}
		got := kit.Get(t, w.Client, client.ObjectKey{Name: "server"}, &v1alpha1.PowerProfile{}).Status
		if got.Nodes != want || meta.FindStatusCondition(got.Conditions,
			v1alpha1.ConditionValid).Status != metav1.ConditionTrue {
			t.Errorf("status = %+v, want %d nodes", got, want)
		}
	}
	nodes(2)
	for range 2 {
		for _, name := range []string{"n1", "n2"} {
			if err := w.Delete(t.Context(), kit.Node(name, "4")); err != nil {
				t.Fatal(err)
			}
		}
		nodes(0)
		for _, name := range []string{"n1", "n2"} {
			if err := w.Create(t.Context(), kit.Node(name, "4")); err != nil {
				t.Fatal(err)
			}
		}
		nodes(2)
	}
	if n := w.Writes.Load(); n != 5 {
		t.Errorf("%d writes, want one for each of five counts", n)
	}
}

func TestProfileConditions(t *testing.T) {
	bad := &v1alpha1.PowerProfile{ObjectMeta: metav1.ObjectMeta{Name: "bad", Generation: 4}}
	bad.Spec.IdleWatts, bad.Spec.MaxWatts = 300, 200
	w := kit.NewWorld(t, bad)
	p := &Profiles{
		Client: w.Client, View: func() *kube.View { return &kube.View{} }, Now: func() time.Time { return kit.Noon },
	}
	for range 3 {
		if _, err := p.Reconcile(t.Context(), request("bad")); err != nil {
			t.Fatal(err)
		}
	}
	got := kit.Get(t, w.Client, client.ObjectKey{Name: "bad"}, &v1alpha1.PowerProfile{}).Status
	c := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionValid)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonInvalid || got.ObservedGeneration != 4 ||
		w.Writes.Load() != 1 {
		t.Errorf("status = %+v after %d writes", got, w.Writes.Load())
	}
	if _,
		err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gone"}}); err != nil {
		t.Error(err)
	}
}
