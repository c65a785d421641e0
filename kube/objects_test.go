package kube

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
)

// objectServer lists objects by resource. A change ends all watches the way a compaction does, so that clients list
// again.
type objectServer struct {
	mu      sync.Mutex
	objects map[string][]any // no entry: no such resource
	changed chan struct{}
}

func newObjectServer(t *testing.T) (*objectServer, *rest.Config) {
	s := &objectServer{objects: map[string][]any{"namespaces": nil, "configmaps": nil}, changed: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, &rest.Config{Host: server.URL, QPS: -1}
}

func (s *objectServer) set(resource string, objects ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[resource] = objects
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *objectServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.mu.Lock()
	objects, served := s.objects[resource]
	changed := s.changed
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	say := func(status *apierrors.StatusError) {
		w.WriteHeader(int(status.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(status.ErrStatus)
	}
	switch {
	case !served:
		say(apierrors.NewNotFound(schema.GroupResource{Resource: resource}, ""))
	case r.URL.Query().Get("sendInitialEvents") != "":
		say(apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)) // not this server: clients then list
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
		kind := map[string]string{"gridzones": "GridZoneList", "powerprofiles": "PowerProfileList", "energypolicies": "EnergyPolicyList", "namespaces": "NamespaceList", "configmaps": "ConfigMapList"}[resource]
		version := "v1"
		if strings.Contains(r.URL.Path, v1alpha1.GroupVersion.Group) {
			version = v1alpha1.GroupVersion.String()
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]string{"resourceVersion": "1"}, "items": objects})
	}
}

func zoneObject(name string, isDefault bool, values ...float64) *v1alpha1.GridZone {
	z := &v1alpha1.GridZone{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GridZoneSpec{
		Zone: strings.ToUpper(name), Default: isDefault, Carbon: &v1alpha1.CarbonSpec{MaxAge: &metav1.Duration{Duration: 3 * time.Hour}},
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

func TestObjectsFollowTheServer(t *testing.T) {
	server, config := newObjectServer(t)
	o, err := NewObjects(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if o.View().Settled() {
		t.Error("policies are known before anybody asked")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	until := func(what string, ok func(*View) bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(o.View()); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("still not: %s", what)
			}
		}
	}
	until("settled without our CRDs", (*View).Settled)
	if mode, _ := o.View().Mode("team"); mode != v1alpha1.ModeShadow {
		t.Errorf("without a policy the mode is %s", mode)
	}

	server.set("gridzones", zoneObject("de", false, 300, 200), zoneObject("fr", true, 50), zoneObject("bad", false, -1))
	server.set("powerprofiles", &v1alpha1.PowerProfile{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Spec: v1alpha1.PowerProfileSpec{
		Default: true, IdleWatts: 100, MaxWatts: 300, Quality: "estimated",
	}})
	server.set("energypolicies", policyIn("team", func(s *v1alpha1.EnergyPolicySpec) { s.AllowedDelay = delay(time.Hour) }))
	server.set("namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{LabelMode: "enforce"}}})
	server.set("configmaps", &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: KnowledgeBaseName, Namespace: KnowledgeBaseNamespace, ResourceVersion: "7"},
		Data:       map[string]string{KnowledgeBaseKey: "training:\n- {nodeName: n1, performanceRate: 10, powerConsumptionWatts: 90, idlePowerWatts: 50}\n"},
	})
	until("everything", func(v *View) bool {
		mode, _ := v.Mode("team")
		return len(v.Sites()) == 2 && v.Profile("big") != nil && mode == v1alpha1.ModeEnforce && v.Delays("team") && len(v.benchmarks) == 1
	})
	v := o.View()
	if v.Sites()[0].Name != "fr" || v.Sites()[1].Carbon.MaxAge != 3*time.Hour || v.Sites()[1].Carbon.Series.Value(1) != 200 {
		t.Errorf("sites are %+v", v.Sites())
	}
	// Counts in a status are no news.
	counted := policyIn("team", func(s *v1alpha1.EnergyPolicySpec) { s.AllowedDelay = delay(time.Hour) })
	counted.Status.Held = 5
	server.set("energypolicies", counted)
	time.Sleep(time.Second)
	if o.View() != v {
		t.Error("another view came of a count")
	}
	server.set("gridzones", zoneObject("fr", true, 60))
	until("the new signal", func(v *View) bool { return len(v.Sites()) == 1 && v.Sites()[0].Carbon.Series.Value(0) == 60 })

	listed, err := ListView(t.Context(), config)
	if err != nil || len(listed.Sites()) != 1 || !listed.Delays("team") {
		t.Errorf("one look shows %+v, %v", listed, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
