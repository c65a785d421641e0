package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
)

const gardener = "compute-gardener-scheduler.kubernetes.io/"

func namespace(name string, labels, annotations map[string]string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
}

func energyPolicy(ns string, mode v1alpha1.Mode, delay time.Duration) *v1alpha1.EnergyPolicy {
	p := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.PolicyName, Generation: 1}}
	p.Spec.Mode = mode
	if delay > 0 {
		p.Spec.AllowedDelay = &metav1.Duration{Duration: delay}
	}
	return p
}

func testPolicies(w *world, held int, shadow *v1alpha1.ShadowStatus) *policies {
	return newPolicies(w.Client, policy.Defaults{
		Mode: v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour, ExpectedDuration: time.Hour,
	},
		func(string) int { return held }, func(string) *v1alpha1.ShadowStatus { return shadow.DeepCopy() }, silent)
}

func statusOf(t *testing.T, w *world, p *policies, key types.NamespacedName) v1alpha1.EnergyPolicyStatus {
	t.Helper()
	p.changed.Store(true) // as watches do
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	return get(t, w.Client, key, &v1alpha1.EnergyPolicy{}).Status
}

func inNamespace(ns string) types.NamespacedName {
	return types.NamespacedName{Namespace: ns, Name: v1alpha1.PolicyName}
}

// Admission looks at one policy only: that of the cluster tells it of all namespaces that say something.
func TestNamespacesOfTheClusterPolicy(t *testing.T) {
	w := newWorld(t,
		namespace(v1alpha1.SystemNamespace, nil, nil), energyPolicy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, 0),
		namespace("silent", nil, nil),
		namespace("own", nil, nil), energyPolicy("own", v1alpha1.ModeAdvise, 6*time.Hour),
		namespace("inherits", nil, nil), energyPolicy("inherits", "", 0),
		namespace("labelled", map[string]string{v1alpha1.LabelMode: "shadow"}, nil),
		namespace("both", map[string]string{v1alpha1.LabelMode: "off"}, nil),
		energyPolicy("both", v1alpha1.ModeEnforce, time.Hour),
		namespace("gardener", map[string]string{gardener + "energy-policies": "enabled"},
			map[string]string{gardener + "workload-batch-policy-max-scheduling-delay": "2h"}),
		namespace("gardener-without-label", nil, map[string]string{gardener + "policy-max-scheduling-delay": "2h"}),
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
			t.Errorf("%s: status is %+v, want mode %s", ns, s, mode)
		}
	}
	// A namespace that goes takes its entry along.
	if err := w.Delete(t.Context(), energyPolicy("own", "", 0)); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), namespace("own", nil, nil)); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), namespace("gardener", nil, nil)); err != nil {
		t.Fatal(err)
	}
	got = statusOf(t, w, p, clusterPolicy)
	delete(want, "own")
	delete(want, "gardener")
	if diff := cmp.Diff(want, got.Namespaces); diff != "" {
		t.Error(diff)
	}
	if s := statusOf(t, w, p, inNamespace("inherits")); s.Mode != v1alpha1.ModeEnforce {
		t.Errorf("status is %+v", s)
	}
}

// A delay of the cluster's policy lets the work of every namespace wait that has opted in, by whatever means.
func TestDelayOfTheCluster(t *testing.T) {
	w := newWorld(t, energyPolicy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, time.Hour),
		namespace("silent", nil, nil), namespace("labelled", map[string]string{v1alpha1.LabelMode: "enforce"}, nil),
		namespace("own", nil, nil), energyPolicy("own", "", 0))
	want := map[string]v1alpha1.NamespaceSummary{
		"labelled": {Mode: v1alpha1.ModeEnforce, Delays: true}, "own": {Delays: true},
	}
	if diff := cmp.Diff(want, statusOf(t, w, testPolicies(w, 0, nil), clusterPolicy).Namespaces); diff != "" {
		t.Error(diff)
	}
}

func TestPolicyConditions(t *testing.T) {
	invalid := energyPolicy("invalid", "loud", time.Hour)
	misnamed := energyPolicy("misnamed", v1alpha1.ModeEnforce, time.Hour)
	misnamed.Name = "other"
	w := newWorld(t, energyPolicy("fine", "", 0), invalid, misnamed, energyPolicy("annotated", "", 0),
		namespace("annotated", map[string]string{gardener + "energy-policies": "enabled"},
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
			t.Errorf("%v: condition is %+v", tc.key, c)
		}
	}
}

// What admission follows is written at once, counts at most every five seconds, and nothing where nothing has changed.
func TestPolicyWrites(t *testing.T) {
	w := newWorld(t, energyPolicy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, 0), namespace("team", nil, nil))
	held := 0
	p := testPolicies(w, 0, nil)
	now := noon
	p.now, p.held = func() time.Time { return now }, func(string) int { return held }
	for range 10 {
		statusOf(t, w, p, clusterPolicy)
		now = now.Add(time.Second)
	}
	if n := w.writes.Load(); n != 1 {
		t.Errorf("%d writes although nothing changed", n)
	}
	for range 20 {
		held++
		statusOf(t, w, p, clusterPolicy)
		now = now.Add(time.Second)
	}
	if n := w.writes.Load(); n < 4 || n > 6 {
		t.Errorf("%d writes for counts that change for 20 s", n)
	}
	before := w.writes.Load()
	if err := w.Create(t.Context(), energyPolicy("team", v1alpha1.ModeOff, 0)); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, w, p, clusterPolicy); s.Namespaces["team"].Mode != v1alpha1.ModeOff ||
		w.writes.Load() != before+1 {
		t.Errorf("status is %+v after %d writes", s, w.writes.Load()-before)
	}
	if held := len(p.wrote); held != 1 {
		t.Errorf("%d policies are remembered", held)
	}
	if err := w.Delete(t.Context(), energyPolicy(v1alpha1.SystemNamespace, "", 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: clusterPolicy}); err != nil ||
		len(p.wrote) != 0 {
		t.Errorf("%d policies are remembered after their end, error %v", len(p.wrote), err)
	}
}

// Rules are built after a change and at no other time, and a change that comes while they are built is not lost.
func TestRulesAreBuiltAfterAChange(t *testing.T) {
	lists := 0
	w := newWorld(t, energyPolicy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, 0))
	p := testPolicies(w, 0, nil)
	p.client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
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
	same, other := energyPolicy("a", "", 0), energyPolicy("a", "", 0)
	other.Generation++
	if notices.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: same}) {
		t.Error("a write of a status passes")
	}
	look(2)
	for i, pass := range []func() bool{
		func() bool { return notices.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: other}) },
		func() bool { return notices.Create(event.CreateEvent{Object: same}) },
		func() bool { return notices.Delete(event.DeleteEvent{Object: same}) },
	} {
		if !pass() {
			t.Errorf("change %d does not pass", i)
		}
		look(4 + 2*i)
	}
	p.client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("the server is away")
		},
	})
	p.changed.Store(true)
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: clusterPolicy}); err == nil ||
		!p.changed.Load() {
		t.Errorf("error %v, changed %v: want the change to be remembered", err, p.changed.Load())
	}
}

// The status of the cluster's policy stays an object that the API server takes, and says what it leaves out.
func TestNamespacesAreBounded(t *testing.T) {
	objects := []client.Object{energyPolicy(v1alpha1.SystemNamespace, v1alpha1.ModeEnforce, time.Hour)}
	for i := range maxNamespaces + 3 {
		objects = append(objects, namespace(fmt.Sprintf("ns-%05d", i), map[string]string{v1alpha1.LabelMode: "enforce"},
			nil))
	}
	w := newWorld(t, objects...)
	got := statusOf(t, w, testPolicies(w, 0, nil), clusterPolicy)
	c := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionValid)
	if len(got.Namespaces) != maxNamespaces || c == nil || c.Reason != reasonNamespaces ||
		!strings.Contains(c.Message, "the 3 that") {
		t.Errorf("%d namespaces, condition %+v", len(got.Namespaces), c)
	}
	if _, first := got.Namespaces["ns-00000"]; !first {
		t.Error("the first namespace is left out")
	}
}

// A new leader goes on counting where the last one stopped.
func TestShadowCountsSurviveTheLeader(t *testing.T) {
	cluster, team := energyPolicy(v1alpha1.SystemNamespace, v1alpha1.ModeShadow, 0), energyPolicy("team", "", 0)
	last := metav1.NewTime(noon)
	cluster.Status.Shadow = &v1alpha1.ShadowStatus{Decided: 30, Held: 20, SavedGrams: 200, Last: &last}
	team.Status.Shadow = &v1alpha1.ShadowStatus{Decided: 10, Held: 5, SavedGrams: 50, Last: &last}
	w := newWorld(t, cluster, team)
	p := testPolicies(w, 0, nil)
	s := newShadow(func() *kube.View { return &kube.View{} }, func() bool { return true }, nil,
		newInstruments(prometheus.NewRegistry()), silent)
	p.shadow, p.inherit = s.status, s.inherit
	s.count("team", true, 7, noon.Add(time.Hour)) // before anything was written
	for range 2 {
		if got := statusOf(t, w, p, clusterPolicy).Shadow; got.Decided != 31 || got.Held != 21 ||
			got.SavedGrams != 207 || !got.Last.Time.Equal(noon.Add(time.Hour)) {
			t.Errorf("all are %+v", got)
		}
		if got := statusOf(t, w, p, inNamespace("team")).Shadow; got.Decided != 11 || got.Held != 6 ||
			got.SavedGrams != 57 {
			t.Errorf("those of the namespace are %+v", got)
		}
	}
}

func TestWhoFollowsWhom(t *testing.T) {
	w := newWorld(t, energyPolicy(v1alpha1.SystemNamespace, "", 0), energyPolicy("a", "", 0), energyPolicy("b", "", 0))
	p := testPolicies(w, 0, nil)
	for _, tc := range []struct {
		of   client.Object
		want int
	}{{energyPolicy("a", "", 0), 1}, {energyPolicy(v1alpha1.SystemNamespace, "", 0), 3}} {
		if got := p.ofPolicy(context.Background(), tc.of); len(got) != tc.want {
			t.Errorf("%s wakes %v", tc.of.GetNamespace(), got)
		}
	}
	if got := ofNamespace(t.Context(), namespace("a", nil, nil)); len(got) != 2 ||
		got[0].NamespacedName != clusterPolicy || got[1].NamespacedName != inNamespace("a") {
		t.Errorf("a namespace wakes %v", got)
	}
}
