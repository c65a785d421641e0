package kube

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/policy"
)

// ListView takes one look at what the API server holds, for the command line. What the user may not read is left out,
// and named by the error beside the view.
func ListView(ctx context.Context, config *rest.Config) (*View, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	var items []*item
	var refused error
	for i := range kinds {
		k := &kinds[i]
		objects, err := k.look(ctx, client)
		if k.optional && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil && k.name == "" { // what has a name is there on few clusters only
			refused = cmp.Or(refused, fmt.Errorf("reading %s: %w", k.resource.Resource, err))
		}
		for _, o := range objects {
			items = append(items, k.read(&unstructured.Unstructured{Object: o}))
		}
	}
	v, err := assemble(items, policy.BuiltIn()).View()
	if err != nil {
		return nil, err
	}
	return v, refused
}

// look returns all objects of a kind, without their schema.
func (k *kind) look(ctx context.Context, client rest.Interface) ([]map[string]any, error) {
	request := client.Get().AbsPath("/apis", k.resource.Group, k.resource.Version)
	if k.resource.Group == "" {
		request = client.Get().AbsPath("/api", k.resource.Version)
	}
	request = request.NamespaceIfScoped(k.in, k.in != "").Resource(k.resource.Resource)
	if k.name != "" {
		request = request.Name(k.name)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	if k.name != "" {
		var object map[string]any
		if err := json.Unmarshal(body, &object); err != nil {
			return nil, err
		}
		return []map[string]any{object}, nil
	}
	var list struct {
		Items []map[string]any `json:"items"`
	}
	err = json.Unmarshal(body, &list)
	return list.Items, err
}
