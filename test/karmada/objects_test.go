package karmada

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"
)

var (
	clusters = schema.GroupVersionResource{Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters"}
	jobs     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	bindings = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "resourcebindings"}
)

// apply applies all objects of a YAML stream.
func (s *server) apply(t *testing.T, text []byte) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var mapper meta.RESTMapper
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if mapper == nil {
			groups, err := restmapper.GetAPIGroupResources(s.client.Discovery())
			if err != nil {
				t.Fatal(err)
			}
			mapper = restmapper.NewDiscoveryRESTMapper(groups)
		}
		kind := o.GroupVersionKind()
		m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		namespace := o.GetNamespace()
		if m.Scope.Name() == meta.RESTScopeNameNamespace && namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.dynamic.Resource(m.Resource).Namespace(namespace).Patch(t.Context(), o.GetName(),
			types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "test", Force: new(true)}); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// applyFolder applies all YAML files of a directory.
func (s *server) applyFolder(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || filepath.Base(path) == "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			s.apply(t, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *server) get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.dynamic.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s *server) patch(t *testing.T, resource schema.GroupVersionResource, namespace, name, patch string) {
	t.Helper()
	if _, err := s.dynamic.Resource(resource).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *federation) clusterReady(name string) bool {
	o, err := f.get(f.t.Context(), clusters, "", name)
	if err != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" && c["status"] == "True" {
			return true
		}
	}
	return false
}

var zones = schema.GroupVersionResource{Group: "kubenergy.io", Version: "v1alpha1", Resource: "gridzones"}

func (s *server) status(resource schema.GroupVersionResource, name string, status map[string]any) {
	data, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		_, err = s.dynamic.Resource(resource).Patch(context.Background(), name, types.MergePatchType, data,
			metav1.PatchOptions{}, "status")
	}
	if err != nil {
		panic(err)
	}
}
