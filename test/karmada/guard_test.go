package karmada

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // kinds and defaults

	"github.com/kubenergy/kubenergy/test/kit"
)

// guarded is the admission plugin of an API server with the policies in deploy/karmada/guard.yaml, without an API
// server.
type guarded struct {
	*validating.Plugin
	objects admission.ObjectInterfaces
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(kit.Root, "deploy", "karmada", "guard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policies := []runtime.Object{&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		o, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		legacyscheme.Scheme.Default(o)
		policies = append(policies, o)
	}
	g := &guarded{}
	if g.Plugin, err = validating.NewPlugin(nil); err != nil {
		t.Fatal(err)
	}
	client, scheme := fake.NewClientset(policies...), runtime.NewScheme()
	factory := informers.NewSharedInformerFactory(client, 0)
	g.objects = admission.NewObjectInterfacesFromScheme(scheme)
	g.SetExternalKubeClientSet(client)
	g.SetExternalKubeInformerFactory(factory)
	g.SetRESTMapper(meta.NewDefaultRESTMapper(nil))
	g.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(scheme))
	g.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	g.SetDrainedNotification(t.Context().Done())
	if err := g.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if !g.WaitForReady() {
		t.Fatal("policies were not loaded")
	}
	return g
}

const (
	ourAccount = "system:serviceaccount:kubenergy-system:kubenergy-karmada"
	aBinding   = `{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding",
		"metadata":{"name":"b","namespace":"n","labels":{"resourcebinding.karmada.io/permanent-id":"1"},
			"annotations":{"policy.karmada.io/applied-placement":"{}","a":"b"},"finalizers":["karmada.io/f"]},
		"spec":{"resource":{"apiVersion":"batch/v1","kind":"Job","namespace":"n","name":"j"},"replicas":2,
			"clusters":[{"name":"north","replicas":2}],"placement":{"clusterAffinity":{"clusterNames":["north"]}}},
		"status":{"schedulerObservedGeneration":1,"aggregatedStatus":[{"clusterName":"north"}],"conditions":[
			{"type":"Scheduled","status":"True"},{"type":"FullyApplied","status":"True"}]}}`
	asksForUs = `{"spec":{"schedulerName":"kubenergy"}}`
	isHeld    = `{"metadata":{"labels":{"kubenergy.io/held":"true"}},"spec":{"suspension":{"scheduling":true,
		"dispatching":true}}}`
	places = `{"metadata":{"annotations":{"policy.karmada.io/applied-placement":"{\"a\":1}"}},
		"spec":{"clusters":[{"name":"south","replicas":2}]}}`
	description = `{"status":{"schedulerObservedGeneration":2,"lastScheduledTime":"2026-11-03T12:00:00Z","conditions":[
		{"type":"FullyApplied","status":"True"},{"type":"Scheduled","status":"False"}]}}`
	free = `{"metadata":{"labels":{"kubenergy.io/held":null}},"spec":{"suspension":{"scheduling":false}}}`
)

// asks returns the result of admission for a request that changes the object old, or creates an object if old is
// "".
func (g *guarded) asks(t *testing.T, r schema.GroupVersionResource, old, sub, change, who string) error {
	t.Helper()
	read := func(text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return o
	}
	var before, after runtime.Object
	operation := admission.Create
	switch {
	case old == "":
		after = read(change)
	case change == "":
		operation, before = admission.Delete, read(old)
	default:
		operation, before, after = admission.Update, read(old), read(merged(t, old, change))
	}
	kind := read(old + map[bool]string{true: change}[old == ""]).GroupVersionKind()
	return g.Validate(t.Context(), admission.NewAttributesRecord(after, before, kind, "n", "b", r, sub, operation, nil,
		false, &user.DefaultInfo{Name: who}), g.objects)
}

func merged(t *testing.T, text string, patches ...string) string {
	t.Helper()
	for _, patch := range patches {
		next, err := jsonpatch.MergePatch([]byte(text), []byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		text = string(next)
	}
	return text
}

// TestGuard verifies, using the admission plugin of the API server, that a stolen token of kubenergy-karmada cannot
// be abused.
func TestGuard(t *testing.T) {
	g := newGuarded(t)
	ours, held := merged(t, aBinding, asksForUs), merged(t, aBinding, isHeld)
	secret := `{"spec":{"resource":{"apiVersion":"v1","kind":"Secret"}}}`
	for what, c := range map[string]struct {
		old, sub, change string
		may              bool
	}{
		"places a binding with its schedulerName": {ours, "", places, true},
		"places a binding of another scheduler":   {aBinding, "", places, false},
		"sets the applied placement of another scheduler's binding": {
			aBinding, "", `{"metadata":{"annotations":{"policy.karmada.io/applied-placement":"1"}}}`, false,
		},
		"sets the status of a scheduler": {ours, "status", description, true},
		"sets the initial status of a scheduler": {
			merged(t, ours, `{"status":null}`), "status",
			`{"status":{"conditions":[{"type":"Scheduled","status":"True"}]}}`, true,
		},
		"sets the status of another scheduler's binding": {aBinding, "status", description, false},
		"sets the status of members":                     {ours, "status", `{"status":{"aggregatedStatus":[]}}`, false},
		"removes another condition":                      {ours, "status", `{"status":{"conditions":[]}}`, false},
		"releases a held binding":                        {held, "", free, true},
		"releases a binding without the label": {
			merged(t, held, `{"metadata":{"labels":{"kubenergy.io/held":null}}}`), "",
			`{"spec":{"suspension":{"scheduling":false}}}`, false,
		},
		"suspends a binding": {
			merged(t, held, `{"spec":{"suspension":null}}`), "", `{"spec":{"suspension":{"scheduling":true}}}`, false,
		},
		"ends another suspension": {held, "", `{"spec":{"suspension":{"dispatching":null}}}`, false},
		"suspends a binding on a cluster": {
			held, "", `{"spec":{"suspension":{"dispatchingOnClusters":{"clusterNames":["north"]}}}}`, false,
		},
		"annotates a held binding":          {held, "", `{"metadata":{"annotations":{"kubenergy.io/reason":"x"}}}`, true},
		"labels a binding that is not held": {ours, "", `{"metadata":{"labels":{"kubenergy.io/held":"true"}}}`, false},
		"changes another annotation":        {held, "", `{"metadata":{"annotations":{"a":null}}}`, false},
		"changes another label": {
			ours, "", `{"metadata":{"labels":{"resourcebinding.karmada.io/permanent-id":"2"}}}`, false,
		},
		"propagates a Secret":        {merged(t, ours, isHeld), "", secret, false},
		"changes replicas":           {ours, "", `{"spec":{"replicas":9}}`, false},
		"adds a field":               {ours, "", `{"spec":{"propagateDeps":true}}`, false},
		"removes a field":            {ours, "", `{"spec":{"placement":null}}`, false},
		"sets its own schedulerName": {aBinding, "", `{"spec":{"schedulerName":"kubenergy","clusters":[]}}`, false},
		"removes a finalizer":        {ours, "", `{"metadata":{"finalizers":null}}`, false},
		"creates a binding":          {"", "", aBinding, false},
		"deletes a binding":          {ours, "", "", false},
	} {
		err := g.asks(t, bindings, c.old, c.sub, c.change, ourAccount)
		if c.may != (err == nil) || err != nil && !strings.Contains(err.Error(), "denied request: KubEnergy") {
			t.Errorf("request in which kubenergy-karmada %s: unexpected result %v", what, err)
		}
	}
	if err := g.asks(t, bindings, aBinding, "", secret, "system:karmada"); err != nil {
		t.Errorf("request of Karmada was denied: %v", err)
	}
	for kind, allowed := range map[string]bool{`"batch/v1","kind":"Job"`: true, `"apps/v1","kind":"Deployment"`: false} {
		err := g.asks(t, rebalancers, "", "", `{"apiVersion":"apps.karmada.io/v1alpha1","kind":"WorkloadRebalancer",
			"spec":{"workloads":[{"apiVersion":"batch/v1","kind":"Job","name":"j"},{"name":"x","apiVersion":`+kind+`}]}}`,
			ourAccount)
		if allowed != (err == nil) {
			t.Errorf("rebalancing %s: unexpected result %v", kind, err)
		}
	}
}
