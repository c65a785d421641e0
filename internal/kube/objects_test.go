package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit"
)

// objectServer lists objects by resource. A change terminates all watches like a compaction, so that clients list
// again.
type objectServer struct {
	mu      sync.Mutex
	objects map[string][]any // a missing entry means that the resource does not exist
	refused map[string]bool  // forbidden resources
	slow    map[string]bool  // resources with list requests that never return
	streams bool             // lists are streamed as watches, as by newer servers
	begun   int              // number of streams
	changed chan struct{}
}

func newObjectServer(t *testing.T) (*objectServer, *rest.Config) {
	s := &objectServer{
		objects: map[string][]any{"namespaces": nil, "configmaps": nil},
		refused: map[string]bool{}, slow: map[string]bool{}, changed: make(chan struct{}),
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, &rest.Config{Host: server.URL, QPS: -1}
}

func (s *objectServer) set(resource string, objects ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[resource] = objects
	s.endWatches()
}

// refuse makes the server reject or accept requests for a resource.
func (s *objectServer) refuse(resource string, refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[resource] = refuse
	s.endWatches()
}

func (s *objectServer) endWatches() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *objectServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.mu.Lock()
	objects, served := s.objects[resource]
	changed, refused, slow := s.changed, s.refused[resource], s.slow[resource]
	knowledge := s.objects["configmaps"]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	say := func(status *apierrors.StatusError) {
		w.WriteHeader(int(status.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(status.ErrStatus)
	}
	switch {
	case resource == knowledgeBaseName && len(knowledge) > 0: // the only object
		_ = json.NewEncoder(w).Encode(knowledge[0])
	case slow:
		<-r.Context().Done()
	case refused:
		say(apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rights")))
	case !served:
		say(apierrors.NewNotFound(schema.GroupResource{Resource: resource}, ""))
	case s.streams && r.URL.Query().Get("sendInitialEvents") != "":
		s.mu.Lock()
		s.begun++
		s.mu.Unlock()
		s.stream(w, resource, objects)
		<-r.Context().Done()
	case r.URL.Query().Get("sendInitialEvents") != "":
		// not supported by this server, so that clients fall back to list requests
		say(apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-changed:
			status := apierrors.NewResourceExpired("compacted").ErrStatus
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": status})
		}
	default:
		kind := map[string]string{
			"gridzones": "GridZoneList", "powerprofiles": "PowerProfileList", "energypolicies": "EnergyPolicyList",
			"namespaces": "NamespaceList", "configmaps": "ConfigMapList", "jobprofiles": "JobProfileList",
		}[resource]
		version := "v1"
		if strings.Contains(r.URL.Path, v1alpha1.GroupVersion.Group) {
			version = v1alpha1.GroupVersion.String()
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": kind, "apiVersion": version, "metadata": map[string]string{"resourceVersion": "1"},
			"items": objects,
		})
	}
}

// stream sends objects as the initial events of a watch.
func (s *objectServer) stream(w http.ResponseWriter, resource string, objects []any) {
	version, kind := "v1", map[string]string{
		"gridzones": kindZone, "energypolicies": "EnergyPolicy", "namespaces": "Namespace",
	}[resource]
	if kind != "Namespace" {
		version = v1alpha1.GroupVersion.String()
	}
	send := func(event string, metadata any, spec any) {
		object := map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
		_ = json.NewEncoder(w).Encode(map[string]any{"type": event, "object": object})
	}
	for _, o := range objects {
		m := o.(map[string]any)
		send("ADDED", m["metadata"], m["spec"])
	}
	send("BOOKMARK", map[string]any{
		"resourceVersion": "9", "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}, nil)
	w.(http.Flusher).Flush()
}

func TestObjectsFromAStream(t *testing.T) {
	t.Parallel()
	server, config := newObjectServer(t)
	object := func(name string, labels map[string]string, spec any) map[string]any {
		return map[string]any{"metadata": map[string]any{
			"name": name, "resourceVersion": "8", "uid": name, "labels": labels,
		}, "spec": spec}
	}
	server.streams = true // before the first request
	server.set("gridzones", object("de", nil, map[string]any{"zone": "DE"}),
		object("broken", nil, map[string]any{"carbon": map[string]any{"maxAge": "2 hours"}}))
	server.set("energypolicies")
	server.set("namespaces", object("team", map[string]string{v1alpha1.LabelMode: "enforce"}, nil))
	o, log := watching(t, config, quick)
	untilView(t, o, "the streamed objects", func(v *View) bool {
		mode, _ := v.Mode("team")
		return v.Settled() && len(v.Sites()) == 1 && mode == v1alpha1.ModeEnforce
	})
	if n := log.count("name=broken"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.begun == 0 {
		t.Error("no list was streamed")
	}
}

func policyIn(namespace string, change func(*v1alpha1.EnergyPolicySpec)) *v1alpha1.EnergyPolicy {
	p := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.PolicyName}}
	change(&p.Spec)
	return p
}

func delay(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func zoneObject(name string, isDefault bool, values ...float64) *v1alpha1.GridZone {
	z := &v1alpha1.GridZone{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GridZoneSpec{
		Zone: strings.ToUpper(name), Default: isDefault,
		Carbon: &v1alpha1.CarbonSpec{MaxAge: &metav1.Duration{Duration: 3 * time.Hour}},
	}}
	if len(values) > 0 {
		now := metav1.NewTime(time.Now().Truncate(time.Hour))
		z.Status.Carbon = &v1alpha1.SignalStatus{
			Now: values[0], Unit: "gCO2e/kWh", Quality: "measured", Source: "test", AsOf: &now, Start: now,
			Step: metav1.Duration{Duration: time.Hour}, Values: values,
		}
	}
	return z
}

// quick contains limits for tests that do not depend on them.
var quick = limits{timeout: time.Minute, belief: 50 * time.Millisecond, grace: time.Minute}

// record is a log that can be read while it is being written.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), what)
}

// watching runs Objects until the test ends.
func watching(t *testing.T, config *rest.Config, l limits) (*Objects, *record) {
	t.Helper()
	log := &record{}
	o, err := NewObjects(config, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	o.limits = l
	if o.View().Settled() {
		t.Error("the view is settled before the first request")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return o, log
}

func untilView(t *testing.T, o *Objects, what string, ok func(*View) bool) {
	t.Helper()
	kit.Eventually(t, 20*time.Second, "the view contains "+what, func() bool { return ok(o.View()) })
}

// TestOneUnreadableObjectCostsItself verifies that an invalid duration in a zone, which older schemas accepted,
// only affects that zone.
func TestOneUnreadableObjectCostsItself(t *testing.T) {
	t.Parallel()
	server, config := newObjectServer(t)
	broken := map[string]any{
		"metadata": map[string]any{"name": "broken", "uid": "1", "resourceVersion": "5"},
		"spec":     map[string]any{"zone": "XX", "default": true, "carbon": map[string]any{"maxAge": "2 hours"}},
	}
	server.set("gridzones", broken, zoneObject("de", false, 300))
	server.set("energypolicies")
	server.set("powerprofiles")
	o, log := watching(t, config, quick)
	untilView(t, o, "the valid zone", func(v *View) bool {
		return len(v.Sites()) == 1 &&
			v.Site("de") != nil
	})
	if got := o.View().SiteOfNode(&v1.Node{}); got.Name != "" {
		t.Errorf("the site of a node in the invalid default zone is %q", got.Name)
	}
	server.set("gridzones", broken, zoneObject("de", false, 200))
	untilView(t, o, "its next signal", func(v *View) bool { return v.Site("de").Carbon.Series.Value(0) == 200 })
	if n := log.count("name=broken"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	listed, _, err := ListView(t.Context(), config, "", policy.BuiltIn())
	if err != nil || len(listed.Sites()) != 1 {
		t.Errorf("ListView() = %v, %v", listed.Sites(), err)
	}
	server.set("gridzones", zoneObject("de", false, 200))
	untilView(t, o, "a default again", func(v *View) bool { return v.SiteOfNode(&v1.Node{}).Name == "de" })
}

func TestARefusalIsBelievedWhenItLasts(t *testing.T) {
	t.Parallel()
	server, config := newObjectServer(t)
	server.set("gridzones")
	server.set("powerprofiles")
	server.set("energypolicies", policyIn("team", func(s *v1alpha1.EnergyPolicySpec) {
		s.AllowedDelay = delay(time.Hour)
	}))
	server.refuse("energypolicies", true)
	o, log := watching(t, config, limits{timeout: time.Minute, belief: 4 * time.Second, grace: time.Minute})
	untilView(t, o, "a view", func(*View) bool { return o.view.Load() != nil && log.count("cannot be watched") > 0 })
	if o.View().Settled() || o.Synced() {
		t.Error("the view is settled after a short rejection")
	}
	server.refuse("energypolicies", false)
	untilView(t, o, "settled", (*View).Settled)
	if !o.View().Delays("team") {
		t.Error("the view is settled without the policy")
	}
}

func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	server, config := newObjectServer(t)
	server.set("energypolicies")
	server.refuse("energypolicies", true)
	began := time.Now()
	o, log := watching(t, config, limits{timeout: time.Minute, belief: time.Second, grace: time.Minute})
	untilView(t, o, "settled without policies", (*View).Settled)
	if took := time.Since(began); took < time.Second {
		t.Errorf("settled after %v", took)
	}
	if n := log.count("resource=energypolicies"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	v, unseen, err := ListView(t.Context(), config, "team", policy.BuiltIn())
	if err != nil || v == nil || len(unseen) < 2 || unseen[0].Resource != "gridzones" ||
		!apierrors.IsNotFound(unseen[0].Err) {
		t.Errorf("ListView() = %v, unseen %v, error %v", v, unseen, err)
	}
}

func TestARefusalAfterASync(t *testing.T) {
	t.Parallel()
	server, config := newObjectServer(t)
	server.set("energypolicies", policyIn("team", func(s *v1alpha1.EnergyPolicySpec) {
		s.AllowedDelay = delay(time.Hour)
	}))
	o, log := watching(t, config, limits{timeout: time.Minute, belief: 50 * time.Millisecond, grace: 2 * time.Second})
	untilView(t, o, "the policy", func(v *View) bool { return v.Settled() && v.Delays("team") })
	server.refuse("energypolicies", true)
	kit.Eventually(t, 10*time.Second, "the refusal is logged", func() bool {
		return log.count("resource=energypolicies") > 0
	})
	if !o.View().Delays("team") {
		t.Error("the policy was removed after a short rejection")
	}
	untilView(t, o, "without the policy", func(v *View) bool { return !v.Delays("team") })
	if !o.View().Settled() {
		t.Error("the view is no longer settled")
	}
	server.refuse("energypolicies", false)
	untilView(t, o, "the policy again", func(v *View) bool { return v.Delays("team") })
}

func TestPatienceRunsOut(t *testing.T) {
	t.Parallel()
	server, config := newObjectServer(t)
	server.slow["energypolicies"] = true // before the first request
	o, _ := watching(t, config, limits{
		timeout: 700 * time.Millisecond, belief: 50 * time.Millisecond, grace: time.Minute,
	})
	untilView(t, o, "a view", func(*View) bool { return o.view.Load() != nil })
	if o.View().Settled() {
		t.Error("the view is settled before the timeout")
	}
	untilView(t, o, "settled state after the timeout", (*View).Settled)
	if o.Synced() {
		t.Error("synced without a response")
	}
}

func TestWhatCannotBePublishedLeavesTheLastView(t *testing.T) {
	log := &record{}
	o := &Objects{Log: slog.New(slog.NewTextHandler(log, nil))}
	o.put(&Contents{Sites: []*sched.Site{{Name: "de"}}})
	v := o.View()
	for range 2 {
		o.put(&Contents{Sites: []*sched.Site{{Name: "de"}, {Name: "de"}}})
	}
	if o.View() != v || v.Site("de") == nil {
		t.Error("another view was published")
	}
	if n := log.count("level=ERROR"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func read[T any](t testing.TB, kind string, fill func(*item, *T), o any) *item {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return reading(kind, fill)(&unstructured.Unstructured{Object: content})
}

func TestWhatChangesNothingIsTheSame(t *testing.T) {
	namespace := func(change func(*v1.Namespace)) *item {
		n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "team", Labels: map[string]string{v1alpha1.LabelMode: "enforce"},
		}}
		change(n)
		return read(t, "Namespace", readNamespace, n)
	}
	before := namespace(func(*v1.Namespace) {})
	for _, tc := range []struct {
		name string
		item *item
		same bool
	}{
		{"resource version", namespace(func(n *v1.Namespace) { n.ResourceVersion = "8" }), true},
		{"others' label", namespace(func(n *v1.Namespace) { n.Labels["team"] = "blue" }), true},
		{"others' annotation", namespace(func(n *v1.Namespace) { n.Annotations = map[string]string{"a": "b"} }), true},
		{"mode", namespace(func(n *v1.Namespace) { n.Labels[v1alpha1.LabelMode] = "off" }), false},
		{"another object with the same name", namespace(func(n *v1.Namespace) { n.UID = "2" }), false},
		{"Compute Gardener", namespace(func(n *v1.Namespace) {
			n.Labels["compute-gardener-scheduler.kubernetes.io/energy-policies"] = "enabled"
		}), false},
	} {
		if got := before.same(tc.item); got != tc.same {
			t.Errorf("%s: the same: %v, want %v", tc.name, got, tc.same)
		}
	}
	if silent := namespace(func(n *v1.Namespace) { n.Labels = nil }); silent.version != "" {
		t.Errorf("a namespace without settings has the version %q", silent.version)
	}
	zone := zoneObject("de", false, 300, 200)
	a := read(t, kindZone, readZone, zone)
	zone.Status.Carbon.Source, zone.Status.Conditions = "test", []metav1.Condition{{Type: "Ready"}}
	if !a.same(read(t, kindZone, readZone, zone)) {
		t.Error("a condition of a zone changes the item")
	}
	zone.Status.Carbon.Values[1] = 201
	if a.same(read(t, kindZone, readZone, zone)) {
		t.Error("a signal does not change the item")
	}
}

func TestDefaultZone(t *testing.T) {
	broken := func(name string) *v1alpha1.GridZone { return zoneObject(name, false, -1) }
	for _, tc := range []struct {
		name  string
		zones []*v1alpha1.GridZone
		want  string
	}{
		{"none", nil, ""},
		{"one", []*v1alpha1.GridZone{zoneObject("de", false)}, "de"},
		{"two", []*v1alpha1.GridZone{zoneObject("de", false), zoneObject("fr", false)}, ""},
		{"one of two is the default", []*v1alpha1.GridZone{zoneObject("de", false), zoneObject("fr", true)}, "fr"},
		{"two defaults", []*v1alpha1.GridZone{zoneObject("de", true), zoneObject("fr", true)}, "de"},
		{"one of two is invalid", []*v1alpha1.GridZone{zoneObject("de", false), broken("fr")}, ""},
	} {
		var items []*item
		for _, z := range tc.zones {
			items = append(items, read(t, kindZone, readZone, z))
		}
		v, err := assemble(items, policy.BuiltIn()).View()
		if err != nil {
			t.Fatal(err)
		}
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		if got, _ := v.Node(n, sched.Resources{}, sched.Resources{}, 0); got.Site.Name != tc.want ||
			v.SiteOfNode(n).Name != tc.want {
			t.Errorf("%s: the site of the node is %q, want %q", tc.name, got.Site.Name, tc.want)
		}
	}
}

// manyNamespaces returns items of namespaces that have opted in.
func manyNamespaces(t testing.TB, n int) []*item {
	var items []*item
	for i := range n {
		items = append(items, read(t, "Namespace", readNamespace, &v1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("team-", i), Labels: map[string]string{v1alpha1.LabelMode: "enforce"},
			},
		}))
	}
	return items
}

// TestBudgetsThatHoldNewWork verifies that an EnergyBudget is only part of a view while it holds new work.
func TestBudgetsThatHoldNewWork(t *testing.T) {
	until, asOf := metav1.NewTime(noon.Add(6*time.Hour)), metav1.NewTime(noon)
	b := &v1alpha1.EnergyBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "month", Generation: 2},
		Spec: v1alpha1.EnergyBudgetSpec{Actions: []v1alpha1.BudgetAction{{
			At: 100, Do: v1alpha1.DeedHoldNewWork,
		}}},
		Status: v1alpha1.EnergyBudgetStatus{ObservedGeneration: 2, ClosedUntil: &until, AsOf: &asOf},
	}
	closed := read(t, kindBudget, readBudget, b)
	v, err := assemble([]*item{closed}, policy.BuiltIn()).View()
	if err != nil {
		t.Fatal(err)
	}
	if end, name, ok := v.BudgetClosed(noon, "team", policy.Owners{}); !ok || name != "month" ||
		!end.Equal(until.Time) {
		t.Error(end, name, ok)
	}
	b.Status.AsOf.Time = noon.Add(time.Minute)
	if closed.same(read(t, kindBudget, readBudget, b)) {
		t.Error("a newer status of the budget does not change the item")
	}
	b.Status.ClosedUntil = nil
	if open := read(t, kindBudget, readBudget, b); open.version != "" || open.put != nil {
		t.Errorf("an open budget has the version %q", open.version)
	}
}

func BenchmarkPublish10000Namespaces(b *testing.B) {
	items := manyNamespaces(b, 10_000)
	o := &Objects{Log: slog.New(slog.DiscardHandler)}
	for b.Loop() {
		o.put(assemble(items, policy.BuiltIn()))
	}
}

func TestObjectsFollowTheServer(t *testing.T) {
	t.Parallel()
	server, config := newObjectServer(t)
	o, _ := watching(t, config, quick)
	until := func(what string, ok func(*View) bool) {
		t.Helper()
		untilView(t, o, what, ok)
	}
	until("settled without our CRDs", (*View).Settled)
	if mode, _ := o.View().Mode("team"); mode != v1alpha1.ModeShadow {
		t.Errorf("without a policy the mode is %s", mode)
	}

	server.set("gridzones", zoneObject("de", false, 300, 200), zoneObject("fr", true, 50), zoneObject("bad", false, -1))
	server.set("powerprofiles", &v1alpha1.PowerProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "big"},
		Spec: v1alpha1.PowerProfileSpec{
			Default: true, IdleWatts: 100, MaxWatts: 300, Quality: "estimated",
		},
	})
	server.set("energypolicies", policyIn("team", func(s *v1alpha1.EnergyPolicySpec) {
		s.AllowedDelay = delay(time.Hour)
	}))
	server.set("namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team", Labels: map[string]string{v1alpha1.LabelMode: "enforce"},
	}})
	server.set("configmaps", &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: knowledgeBaseName, Namespace: metav1.NamespaceSystem, ResourceVersion: "7"},
		Data: map[string]string{"profiles.yaml": "training:\n- {nodeName: n1, performanceRate: 10, " +
			"powerConsumptionWatts: 90, idlePowerWatts: 50}\n"},
	})
	profile := &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: v1alpha1.PolicyName}}
	learnt, err := policy.ReadJobProfile(profile)
	if err != nil {
		t.Fatal(err)
	}
	work := policy.Work{Namespace: "team", Owners: policy.Owners{Owner: "Job/report-1"}}
	for range policy.EnoughRuns {
		learnt.Learn(&work, 2*time.Hour)
	}
	learnt.Write(profile)
	server.set("jobprofiles", profile)
	until("everything", func(v *View) bool {
		mode, _ := v.Mode("team")
		return len(v.Sites()) == 2 && v.Profile("big") != nil && mode == v1alpha1.ModeEnforce && v.Delays("team") &&
			len(v.benchmarks) == 1 && v.RunTimes("team") != nil
	})
	if job, _ := o.View().Settle(&work); job.Runtimes == nil || job.Runtimes.Mean() < 90*time.Minute {
		t.Errorf("unexpected run time %v after runs of 2 h", job.Runtimes)
	}
	profile.Spec.ForgetBefore = &metav1.Time{Time: time.Now()}
	server.set("jobprofiles", profile)
	until("forgotten run times, before the controller resets the profile", func(v *View) bool {
		return v.RunTimes("team") == nil
	})
	v := o.View()
	if v.Sites()[0].Name != "fr" || v.Sites()[1].Carbon.MaxAge != 3*time.Hour ||
		v.Sites()[1].Carbon.Series.Value(1) != 200 {
		t.Errorf("sites are %+v", v.Sites())
	}
	// Counts in a status do not affect views.
	counted := policyIn("team", func(s *v1alpha1.EnergyPolicySpec) { s.AllowedDelay = delay(time.Hour) })
	counted.Status.Held = 5
	server.set("energypolicies", counted)
	time.Sleep(time.Second) // no new view must be published
	if o.View() != v {
		t.Error("a count in the status resulted in a new view")
	}
	server.set("gridzones", zoneObject("fr", true, 60))
	until("the new signal", func(v *View) bool {
		return len(v.Sites()) == 1 &&
			v.Sites()[0].Carbon.Series.Value(0) == 60
	})

	listed, _, err := ListView(t.Context(), config, "", policy.BuiltIn())
	if err != nil || len(listed.Sites()) != 1 || !listed.Delays("team") || len(listed.benchmarks) != 1 {
		t.Errorf("ListView() = %+v, %v", listed, err)
	}
}

// TestAReaderThatPanicsCostsOneObject verifies that an object that makes its reader panic is treated as unreadable
// and logged, and that other objects are not affected.
func TestAReaderThatPanicsCostsOneObject(t *testing.T) {
	t.Cleanup(panics.Reset)
	planted := reading("GridZone", func(it *item, z *v1alpha1.GridZone) {
		if z.Name == "bad" {
			panic("planted")
		}
		readZone(it, z)
	})
	var items []*item
	for _, name := range []string{"bad", "de"} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(zoneObject(name, false, 300))
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, planted(&unstructured.Unstructured{Object: content}))
	}
	if bad := items[0]; bad == nil || bad.Name != "bad" || bad.put != nil || len(bad.problems) != 1 || bad.version == "" {
		t.Errorf("the item of the object that panics is %+v", bad)
	}
	if c := assemble(items, policy.Defaults{}); len(c.Sites) != 1 {
		t.Errorf("sites %v", c.Sites)
	}
	if again := panics.Note("objects"); again != 2 {
		t.Errorf("%d panics are counted", again-1)
	}
}

func TestAnEventThatPanicsCostsItself(t *testing.T) {
	t.Cleanup(panics.Reset)
	reported := 0
	notify := func(obj any) {
		if reported++; obj == "bad" {
			panic("planted")
		}
	}
	h := Surviving(slog.New(slog.DiscardHandler), cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, obj any) { notify(obj) }, DeleteFunc: notify,
	})
	for _, obj := range []string{"bad", "good"} {
		h.OnAdd(obj, true)
		h.OnUpdate(nil, obj)
		h.OnDelete(obj)
	}
	if again := panics.Note("objects"); again != 4 || reported != 6 {
		t.Errorf("logged %d times, %d panics are counted", reported, again-1)
	}
}

// TestAViewThatPanicsLeavesTheLastOne verifies that the previous view remains in use if building a view panics, and
// that the next one is built.
func TestAViewThatPanicsLeavesTheLastOne(t *testing.T) {
	t.Cleanup(panics.Reset)
	o := &Objects{
		Log: slog.New(slog.DiscardHandler), watches: []*watched{nil}, began: time.Now(), limits: limits{timeout: time.Hour},
	}
	if o.refresh(); o.View().Settled() {
		t.Error("a view was published although building it panicked")
	}
	o.limits.timeout = 0
	if o.refresh(); !o.View().Settled() {
		t.Error("no view is published after the timeout")
	}
	o.watches = nil
	o.refresh()
	first := o.View()
	o.watches = []*watched{nil}
	o.refresh()
	if !first.Settled() || o.View() != first {
		t.Error("the last view is not in use")
	}
	if again := panics.Note("view"); again != 4 {
		t.Errorf("%d panics are counted", again-1)
	}
}
