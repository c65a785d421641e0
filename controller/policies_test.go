package controller

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
)

const gardener = "compute-gardener-scheduler.kubernetes.io/"

func namespace(name string, labels, annotations map[string]string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
}

func policy(ns string, mode v1alpha1.Mode, delay time.Duration) *v1alpha1.EnergyPolicy {
	p := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: kube.PolicyName, Generation: 1}}
	p.Spec.Mode = mode
	if delay > 0 {
		p.Spec.AllowedDelay = &metav1.Duration{Duration: delay}
	}
	return p
}

func testPolicies(w *world, held int, shadow *v1alpha1.ShadowStatus) *policies {
	return newPolicies(w.Client, kube.Defaults{Mode: v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour, ExpectedDuration: time.Hour},
		func(string) int { return held }, func(string) *v1alpha1.ShadowStatus { return shadow.DeepCopy() }, silent)
}

func statusOf(t *testing.T, w *world, p *policies, key types.NamespacedName) v1alpha1.EnergyPolicyStatus {
	t.Helper()
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	return get(t, w.Client, key, &v1alpha1.EnergyPolicy{}).Status
}

func inNamespace(ns string) types.NamespacedName {
	return types.NamespacedName{Namespace: ns, Name: kube.PolicyName}
}

// Admission looks at one policy only: that of the cluster tells it of all namespaces that say something.
func TestNamespacesOfTheClusterPolicy(t *testing.T) {
	w := newWorld(t,
		namespace(kube.Namespace, nil, nil), policy(kube.Namespace, v1alpha1.ModeEnforce, 0),
		namespace("silent", nil, nil),
		namespace("own", nil, nil), policy("own", v1alpha1.ModeAdvise, 6*time.Hour),
		namespace("inherits", nil, nil), policy("inherits", "", 0),
		namespace("labelled", map[string]string{kube.LabelMode: "shadow"}, nil),
		namespace("both", map[string]string{kube.LabelMode: "off"}, nil), policy("both", v1alpha1.ModeEnforce, time.Hour),
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
	if got.Mode != v1alpha1.ModeEnforce || got.Held != 7 || got.Shadow == nil || got.Shadow.Held != 2 || got.ObservedGeneration != 1 {
		t.Errorf("status is %+v", got)
	}
	for ns, mode := range map[string]v1alpha1.Mode{"own": v1alpha1.ModeAdvise, "inherits": v1alpha1.ModeEnforce, "both": v1alpha1.ModeOff} {
		if s := statusOf(t, w, p, inNamespace(ns)); s.Mode != mode || s.Namespaces != nil {
			t.Errorf("%s: status is %+v, want mode %s", ns, s, mode)
		}
	}
	// A namespace that goes takes its entry along.
	if err := w.Delete(t.Context(), policy("own", "", 0)); err != nil {
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
	w := newWorld(t, policy(kube.Namespace, v1alpha1.ModeEnforce, time.Hour),
		namespace("silent", nil, nil), namespace("labelled", map[string]string{kube.LabelMode: "enforce"}, nil), namespace("own", nil, nil), policy("own", "", 0))
	want := map[string]v1alpha1.NamespaceSummary{"labelled": {Mode: v1alpha1.ModeEnforce, Delays: true}, "own": {Delays: true}}
	if diff := cmp.Diff(want, statusOf(t, w, testPolicies(w, 0, nil), clusterPolicy).Namespaces); diff != "" {
		t.Error(diff)
	}
}

func TestPolicyConditions(t *testing.T) {
	invalid := policy("invalid", "loud", time.Hour)
	misnamed := policy("misnamed", v1alpha1.ModeEnforce, time.Hour)
	misnamed.Name = "other"
	w := newWorld(t, policy("fine", "", 0), invalid, misnamed, policy("annotated", "", 0),
		namespace("annotated", map[string]string{gardener + "energy-policies": "enabled"}, map[string]string{gardener + "policy-price-threshold": "cheap"}))
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
	w := newWorld(t, policy(kube.Namespace, v1alpha1.ModeEnforce, 0), namespace("team", nil, nil))
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
	if err := w.Create(t.Context(), policy("team", v1alpha1.ModeOff, 0)); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, w, p, clusterPolicy); s.Namespaces["team"].Mode != v1alpha1.ModeOff || w.writes.Load() != before+1 {
		t.Errorf("status is %+v after %d writes", s, w.writes.Load()-before)
	}
	if held := len(p.wrote); held != 1 {
		t.Errorf("%d policies are remembered", held)
	}
	if err := w.Delete(t.Context(), policy(kube.Namespace, "", 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: clusterPolicy}); err != nil || len(p.wrote) != 0 {
		t.Errorf("%d policies are remembered after their end, error %v", len(p.wrote), err)
	}
}

func TestWhoFollowsWhom(t *testing.T) {
	w := newWorld(t, policy(kube.Namespace, "", 0), policy("a", "", 0), policy("b", "", 0))
	p := testPolicies(w, 0, nil)
	for _, tc := range []struct {
		of   client.Object
		want int
	}{{policy("a", "", 0), 1}, {policy(kube.Namespace, "", 0), 3}} {
		if got := p.ofPolicy(context.Background(), tc.of); len(got) != tc.want {
			t.Errorf("%s wakes %v", tc.of.GetNamespace(), got)
		}
	}
	if got := ofNamespace(t.Context(), namespace("a", nil, nil)); len(got) != 2 || got[0].NamespacedName != clusterPolicy || got[1].NamespacedName != inNamespace("a") {
		t.Errorf("a namespace wakes %v", got)
	}
}
