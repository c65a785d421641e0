package access

import (
	"context"
	"crypto/sha256"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Attributes describes the access that a user requests, as in RBAC rules.
type Attributes struct{ Verb, Group, Resource, Subresource, Namespace, Name string }

// String returns a description for error messages.
func (a Attributes) String() string {
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	if a.Group != "" {
		what += "." + a.Group
	}
	if a.Namespace != "" {
		return fmt.Sprintf("%s %s in namespace %.63s", a.Verb, what, a.Namespace)
	}
	return fmt.Sprintf("%s %s in all namespaces", a.Verb, what)
}

type rightKey struct {
	user [sha256.Size]byte
	what Attributes
}

// Allowed reports whether a user is authorized for a request with the given attributes.
func (g *Gate) Allowed(ctx context.Context, u *User, a Attributes) (bool, error) {
	key := rightKey{u.digest(), a}
	if allowed, known := g.rights.Get(key); known {
		return allowed.(bool), nil
	}
	if g.breaker.away(g.o.Now()) {
		return false, ErrAway
	}
	return AnswerOf[bool](ctx, g.askOnce(ctx, fmt.Sprintf("right %x %q", key.user, a), nil,
		func(ctx context.Context) (any, error) { return g.askRight(ctx, u, key) }))
}

func (g *Gate) askRight(ctx context.Context, u *User, key rightKey) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(u.Extra))
	for name, values := range u.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	a := &key.what
	answer, err := g.o.Access.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace,
				Name: a.Name,
			},
		},
	}, metav1.CreateOptions{})
	if g.away("access", err) {
		return false, ErrAway
	}
	allowed := err == nil && answer.Status.Allowed && !answer.Status.Denied
	g.metrics.review("access", allowed)
	g.rights.Add(key, allowed, rightsFor)
	return allowed, nil
}
