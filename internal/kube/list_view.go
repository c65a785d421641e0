package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/policy"
)

// Unseen is a kind of objects that a view lacks.
type Unseen struct {
	Resource string // as gridzones
	Own      bool   // those of the namespace that was asked for are in the view
	Err      error
}

// ListView takes one look at what the API server holds, for the command line. Where the user may not read a kind of all
// namespaces, what one namespace has of it is read; "": of none. What is left out is named beside the view.
// The defaults hold where no policy says anything.
func ListView(ctx context.Context, config *rest.Config, namespace string, defaults policy.Defaults,
) (*View, []Unseen, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("building a client: %w", err)
	}
	var items []*item
	var unseen []Unseen
	for i := range kinds {
		k := &kinds[i]
		objects, err := list(ctx, client.Resource(k.resource).Namespace(k.in), k.name)
		if k.optional && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil && k.name == "" { // what has a name is there on few clusters only
			u := Unseen{Resource: k.resource.Resource, Err: fmt.Errorf("reading %s: %w", k.resource.Resource, err)}
			if apierrors.IsForbidden(err) && namespace != "" && k.perNamespace {
				if all := client.Resource(k.resource); k.resource.Resource == "namespaces" {
					objects, err = list(ctx, all, namespace)
				} else {
					objects, err = list(ctx, all.Namespace(namespace), "")
				}
				u.Own = err == nil
			}
			unseen = append(unseen, u)
		}
		for j := range objects {
			items = append(items, k.read(&objects[j]))
		}
	}
	v, err := assemble(items, defaults).View()
	return v, unseen, err
}

// list returns all objects that a client sees, without their schema; with a name, that one.
func list(ctx context.Context, client dynamic.ResourceInterface, name string) ([]unstructured.Unstructured, error) {
	if name != "" {
		o, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []unstructured.Unstructured{*o}, nil
	}
	all, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}
