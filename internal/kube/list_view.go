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

// Unseen describes a kind of objects that is missing from a view.
type Unseen struct {
	Resource string // plural name, e.g. gridzones
	Own      bool   // the view contains the objects of the requested namespace
	Err      error
}

// ListView builds a view from a single list request per kind, for the command line. If the user is not permitted to
// list a kind in all namespaces, only the objects in the given namespace are listed, unless it is empty. The
// missing kinds are returned in addition to the view. The defaults apply if there is no policy.
func ListView(ctx context.Context, config *rest.Config, namespace string, defaults policy.Defaults,
) (*View, []Unseen, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client: %w", err)
	}
	var items []*item
	var unseen []Unseen
	for i := range kinds {
		k := &kinds[i]
		objects, err := list(ctx, client.Resource(k.resource).Namespace(k.in), k.name)
		if err != nil && k.name == "" { // named objects exist in few clusters
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

// list returns all objects that the client can list, or only the named object if name is not empty.
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
