package install

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// world is a real control plane with the chart installed. The pods of the chart do not run because the cluster has
// no nodes.
type world struct {
	*cluster.Cluster
	objects dynamic.Interface
	mapper  meta.ResettableRESTMapper
}

func start(t *testing.T) *world {
	w := &world{Cluster: cluster.Start(t, lab.Options{})}
	var err error
	if w.objects, err = dynamic.NewForConfig(w.Config()); err != nil {
		t.Fatal(err)
	}
	w.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(w.Client.Discovery()))
	return w
}

// helm runs a helm command against the cluster.
func (w *world) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := chart.Helm(t.Context(), w.Kubeconfig(),
		append(args, "--namespace", v1alpha1.SystemNamespace)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// resource returns the client for the kind and namespace of an object, or nil if the server does not support the
// kind.
func (w *world) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := w.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return w.objects.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = v1alpha1.SystemNamespace
	}
	return w.objects.Resource(mapping.Resource).Namespace(namespace), nil
}

// accepts applies an object with strict validation as a dry run. served is false if the server does not support the
// kind.
func (w *world) accepts(ctx context.Context, object *unstructured.Unstructured) (served bool, err error) {
	client, err := w.resource(object)
	if client == nil || err != nil {
		return false, err
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return true, err
	}
	force := true
	_, err = client.Patch(ctx, object.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: "helm", FieldValidation: metav1.FieldValidationStrict,
		Force: &force,
	})
	return true, err
}

// put creates or updates an object.
func (w *world) put(ctx context.Context, object *unstructured.Unstructured) error {
	client, err := w.resource(object)
	if err != nil {
		return err
	}
	if client == nil {
		return fmt.Errorf("server does not support the kind %s", object.GetKind())
	}
	_, err = client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

var energyPolicies = schema.GroupVersionResource{Group: "kubenergy.io", Version: "v1alpha1", Resource: "energypolicies"}

// object parses a YAML document.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// gone reports whether an object does not exist.
func (w *world) gone(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	client, err := w.resource(object)
	if client == nil {
		return true, err
	}
	_, err = client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, errors.Join(err)
}
