package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

const gardener = "compute-gardener-scheduler.kubernetes.io/"

func testPolicies(w *kit.World, held int, shadow *v1alpha1.ShadowStatus) *Policies {
	s := testShadow(func() *kube.View { return &kube.View{} }, func() bool { return true }, nil)
	if shadow != nil {
		s.counts["elsewhere"] = shadow
	}
	return NewPolicies(PolicyOptions{
		Client: w.Client,
		Defaults: policy.Defaults{
			Terms: policy.Terms{ExpectedDuration: time.Hour},
			Mode:  v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour,
		},
		Held: func(string) int { return held }, Shadow: s, Now: time.Now, Log: kit.Silent,
	})
}

func statusOf(t *testing.T, w *kit.World, p *Policies, key types.NamespacedName) v1alpha1.EnergyPolicyStatus {
	t.Helper()
	p.changed.Store(true) // set by watches otherwise
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	return kit.Get(t, w.Client, key, &v1alpha1.EnergyPolicy{}).Status
}

func inNamespace(ns string) types.NamespacedName {
	return types.NamespacedName{Namespace: ns, Name: v1alpha1.PolicyName}
}

// TestNamespacesOfTheClusterPolicy verifies that the status of the cluster's policy lists all namespaces with
// settings, because admission only reads this policy.
func TestNamespacesOfTheClusterPolicy(t *testing.T) {
	w := kit.NewWorld(t,
		kit.Namespace(v1alpha1.SystemNamespace, nil, nil), kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce,
			0),
		kit.Namespace("silent", nil, nil),
		kit.Namespace("own", nil, nil), kit.Policy("own", v1alpha1.ModeAdvise, 6*time.Hour),
		kit.Namespace("inherits", nil, nil), kit.Policy("inherits", "", 0),
		kit.Namespace("labelled", map[string]string{v1alpha1.LabelMode: "shadow"}, nil),
		kit.Namespace("both", map[string]string{v1alpha1.LabelMode: "off"}, nil),
		kit.Policy("both", v1alpha1.ModeEnforce, time.Hour),
		kit.Namespace("gardener", map[string]string{gardener + "energy-policies": "enabled"},
			map[string]string{gardener + "workload-batch-policy-max-scheduling-delay": "2h"}),
		kit.Namespace("gardener-without-label", nil, map[string]string{gardener + "policy-max-scheduling-delay": "2h"}),
	)
	p := testPolicies(w, 7, &v1alpha1.ShadowStatus{Decided: 3, Held: 2})
	got := statusOf(t, w, p, clusterPolicy)
	want := map[string]v1alpha1.NamespaceSummary{
		"own":      {Mode: v1alpha1.ModeAdvise, Delays: true},
		"inherits": {},
		"both":     {Mode: v1alpha1.ModeOff, Delays: true},
		"gardener": {Delays: true},
	}
	if diff := cmp.Diff(want, got.Namespaces); diff != "" {
		t.Error(diff)
	}
	if got.Mode != v1alpha1.ModeEnforce || got.Held != 7 || got.Shadow == nil || got.Shadow.Held != 2 ||
		got.ObservedGeneration != 1 {
		t.Errorf("status is %+v", got)
	}
	for ns, mode := range map[string]v1alpha1.Mode{
		"own": v1alpha1.ModeAdvise, "inherits": v1alpha1.ModeEnforce, "both": v1alpha1.ModeOff,
	} {
		if s := statusOf(t, w, p, inNamespace(ns)); s.Mode != mode || s.Namespaces != nil {
			t.Errorf("%s: status = %+v, want mode %s", ns, s, mode)
		}
	}
	// The entry of a deleted namespace is removed.
	if err := w.Delete(t.Context(), kit.Policy("own", "", 0)); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), kit.Namespace("own", nil, nil)); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), kit.Namespace("gardener", nil, nil)); err != nil {
		t.Fatal(err)
	}
	got = statusOf(t, w, p, clusterPolicy)
	delete(want, "own")
	delete(want, "gardener")
	if diff := cmp.Diff(want, got.Namespaces); diff != "" {
		t.Error(diff)
	}
	if s := statusOf(t, w, p, inNamespace("inherits")); s.Mode != v1alpha1.ModeEnforce {
		t.Errorf("status = %+v, want mode enforce", s)
	}
}

// TestDelayOfTheCluster verifies that a delay in the cluster's policy applies to all namespaces that have opted in
// by a label or a policy.
func TestDelayOfTheCluster(t *testing.T) {
	w := kit.NewWorld(t, kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, time.Hour),
		kit.Namespace("silent", nil, nil), kit.Namespace("labelled", map[string]string{v1alpha1.LabelMode: "enforce"},
			nil),
		kit.Namespace("own", nil, nil), kit.Policy("own", "", 0))
	want := map[string]v1alpha1.NamespaceSummary{
		"labelled": {Mode: v1alpha1.ModeEnforce, Delays: true}, "own": {Delays: true},
	}
	if diff := cmp.Diff(want, statusOf(t, w, testPolicies(w, 0, nil), clusterPolicy).Namespaces); diff != "" {
		t.Error(diff)
	}
}

func TestPolicyConditions(t *testing.T) {
	invalid := kit.Policy("invalid", "loud", time.Hour)
	misnamed := kit.Policy("misnamed", v1alpha1.ModeEnforce, time.Hour)
	misnamed.Name = "other"
	w := kit.NewWorld(t, kit.Policy("fine", "", 0), invalid, misnamed, kit.Policy("annotated", "", 0),
		kit.Namespace("annotated", map[string]string{gardener + "energy-policies": "enabled"},
			map[string]string{gardener + "policy-price-threshold": "cheap"}))
	p := testPolicies(w, 0, nil)
	for _, tc := range []struct {
		key    types.NamespacedName
		status metav1.ConditionStatus
		reason string
	}{
		{inNamespace("fine"), metav1.ConditionTrue, reasonValid},
		{inNamespace("invalid"), metav1.ConditionFalse, reasonInvalid},
		{types.NamespacedName{Namespace: "misnamed", Name: "other"}, metav1.ConditionFalse, reasonName},
		{inNamespace("annotated"), metav1.ConditionTrue, reasonAnnotation},
	} {
		s := statusOf(t, w, p, tc.key)
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionValid)
		if c == nil || c.Status != tc.status || c.Reason != tc.reason {
			t.Errorf("%v: condition = %+v", tc.key, c)
		}
	}
}

// TestPolicyWrites verifies that data for admission is written immediately, counts are written at most every five
// seconds, and an unchanged status is not written.
func TestPolicyWrites(t *testing.T) {
	w := kit.NewWorld(t, kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, 0), kit.Namespace("team", nil, nil))
	held := 0
	p := testPolicies(w, 0, nil)
	now := kit.Noon
	p.o.Now, p.o.Held = func() time.Time { return now }, func(string) int { return held }
	for range 10 {
		statusOf(t, w, p, clusterPolicy)
		now = now.Add(time.Second)
	}
	if n := w.Writes.Load(); n != 1 {
		t.Errorf("%d writes without changes, want 1", n)
	}
	for range 20 {
		held++
		statusOf(t, w, p, clusterPolicy)
		now = now.Add(time.Second)
	}
	if n := w.Writes.Load(); n < 4 || n > 6 {
		t.Errorf("%d writes of counts that change for 20 s, want about 5", n)
	}
	before := w.Writes.Load()
	if err := w.Create(t.Context(), kit.Policy("team", v1alpha1.ModeOff, 0)); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, w, p, clusterPolicy); s.Namespaces["team"].Mode != v1alpha1.ModeOff ||
		w.Writes.Load() != before+1 {
		t.Errorf("status = %+v after %d writes", s, w.Writes.Load()-before)
	}
	if held := len(p.wrote); held != 1 {
		t.Errorf("%d policies are tracked, want 1", held)
	}
	if err := w.Delete(t.Context(), kit.Policy(v1alpha1.SystemNamespace, "", 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: clusterPolicy}); err != nil ||
		len(p.wrote) != 0 {
		t.Errorf("%d policies are tracked after their deletion, error %v", len(p.wrote), err)
	}
}

// TestRulesAreBuiltAfterAChange verifies that rules are rebuilt only after a change, and that a failure to rebuild
// them does not lose the change.
func TestRulesAreBuiltAfterAChange(t *testing.T) {
	lists := 0
	w := kit.NewWorld(t, kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, 0))
	p := testPolicies(w, 0, nil)
	p.o.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			lists++
			return c.List(ctx, list, opts...)
		},
	})
	look := func(want int) {
		t.Helper()
		for range 5 {
			if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: clusterPolicy}); err != nil {
				t.Fatal(err)
			}
		}
		if lists != want {
			t.Errorf("%d lists, want %d", lists, want)
		}
	}
	look(2)
	notices := p.noticing(predicate.GenerationChangedPredicate{})
	same, other := kit.Policy("a", "", 0), kit.Policy("a", "", 0)
	other.Generation++
	if notices.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: same}) {
		t.Error("an update of the status was accepted")
	}
	look(2)
	for i, pass := range []func() bool{
		func() bool { return notices.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: other}) },
		func() bool { return notices.Create(event.CreateEvent{Object: same}) },
		func() bool { return notices.Delete(event.DeleteEvent{Object: same}) },
	} {
		if !pass() {
			t.Errorf("change %d was not accepted", i)
		}
		look(4 + 2*i)
	}
	p.o.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("the server is unavailable")
		},
	})
	p.changed.Store(true)
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: clusterPolicy}); err == nil ||
		!p.changed.Load() {
		t.Errorf("error %v, changed = %v, want an error and a pending change", err, p.changed.Load())
	}
}

// TestNamespacesAreBounded verifies that the number of namespaces in the status is limited, and that the condition
// reports the number of omitted namespaces.
func TestNamespacesAreBounded(t *testing.T) {
	objects := []client.Object{kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, time.Hour)}
	for i := range maxNamespaces + 3 {
		objects = append(objects, kit.Namespace(fmt.Sprintf("ns-%05d", i),
			map[string]string{v1alpha1.LabelMode: "enforce"},
			nil))
	}
	w := kit.NewWorld(t, objects...)
	got := statusOf(t, w, testPolicies(w, 0, nil), clusterPolicy)
	c := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionValid)
	if len(got.Namespaces) != maxNamespaces || c == nil || c.Reason != reasonNamespaces ||
		!strings.Contains(c.Message, "the last 3 namespaces") {
		t.Errorf("%d namespaces, condition %+v", len(got.Namespaces), c)
	}
	if _, first := got.Namespaces["ns-00000"]; !first {
		t.Error("the first namespace is missing")
	}
}

// TestShadowCountsSurviveTheLeader verifies that a new leader continues the counts of the previous one.
func TestShadowCountsSurviveTheLeader(t *testing.T) {
	cluster, team := kit.Policy(v1alpha1.SystemNamespace, v1alpha1.ModeShadow, 0), kit.Policy("team", "", 0)
	last := metav1.NewTime(kit.Noon)
	cluster.Status.Shadow = &v1alpha1.ShadowStatus{Decided: 30, Held: 20, SavedGrams: 200, Last: &last}
	team.Status.Shadow = &v1alpha1.ShadowStatus{Decided: 10, Held: 5, SavedGrams: 50, Last: &last}
	w := kit.NewWorld(t, cluster, team)
	p := testPolicies(w, 0, nil)
	p.o.Shadow.count("team", true, 7, kit.Noon.Add(time.Hour)) // before the first write
	for range 2 {
		if got := statusOf(t, w, p, clusterPolicy).Shadow; got.Decided != 31 || got.Held != 21 ||
			got.SavedGrams != 207 || !got.Last.Time.Equal(kit.Noon.Add(time.Hour)) {
			t.Errorf("counts of all namespaces = %+v", got)
		}
		if got := statusOf(t, w, p, inNamespace("team")).Shadow; got.Decided != 11 || got.Held != 6 ||
			got.SavedGrams != 57 {
			t.Errorf("counts of the namespace = %+v", got)
		}
	}
}

func TestPoliciesFollowNamespaces(t *testing.T) {
	w := kit.NewWorld(t, kit.Policy(v1alpha1.SystemNamespace, "", 0), kit.Policy("a", "", 0), kit.Policy("b", "", 0))
	p := testPolicies(w, 0, nil)
	for _, tc := range []struct {
		of   client.Object
		want int
	}{{kit.Policy("a", "", 0), 1}, {kit.Policy(v1alpha1.SystemNamespace, "", 0), 3}} {
		if got := p.ofPolicy(context.Background(), tc.of); len(got) != tc.want {
			t.Errorf("ofPolicy(%s) = %v", tc.of.GetNamespace(), got)
		}
	}
	if got := ofNamespace(t.Context(), kit.Namespace("a", nil, nil)); len(got) != 2 ||
		got[0].NamespacedName != clusterPolicy || got[1].NamespacedName != inNamespace("a") {
		t.Errorf("ofNamespace() = %v", got)
	}
}
