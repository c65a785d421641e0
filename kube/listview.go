package kube

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/policy"
)

// ListView takes one look at what the API server holds, for the command line. What the user may not read is left out,
// and named by the error beside the view.
func ListView(ctx context.Context, config *rest.Config) (*View, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	var items []*item
	var refused error
	for i := range kinds {
		k := &kinds[i]
		objects, err := k.list(ctx, client.Resource(k.resource).Namespace(k.in))
		if k.optional && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil && k.name == "" { // what has a name is there on few clusters only
			refused = cmp.Or(refused, fmt.Errorf("reading %s: %w", k.resource.Resource, err))
		}
		for j := range objects {
			items = append(items, k.read(&objects[j]))
		}
	}
	v, err := assemble(items, policy.BuiltIn()).View()
	if err != nil {
		return nil, err
	}
	return v, refused
}

// list returns all objects of a kind, without their schema.
func (k *kind) list(ctx context.Context, client dynamic.ResourceInterface) ([]unstructured.Unstructured, error) {
	if k.name != "" {
		o, err := client.Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []unstructured.Unstructured{*o}, nil
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
