package access

import (
	"context"
	"crypto/sha256"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Attributes are what a user wants to do, in the words of roles.
type Attributes struct{ Verb, Group, Resource, Subresource, Namespace, Name string }

// String says it for people.
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

type right struct {
	allowed bool
	reason  string
}

// Allowed reports whether a user may do something, and why, for the log.
func (g *Gate) Allowed(ctx context.Context, u *User, a Attributes) (allowed bool, reason string, err error) {
	key, now := rightKey{u.key(), a}, g.o.Now()
	if value, known := g.rights.Get(key); known {
		r := value.(right)
		return r.allowed, r.reason, nil
	}
	if g.breaker.away(now) {
		return false, "", ErrAway
	}
	r, err := answerOf[right](ctx, g.askOnce(ctx, fmt.Sprintf("right %x %q", key.user, a), nil,
		func(ctx context.Context) (any, error) { return g.askRight(ctx, u, key) }))
	return r.allowed, r.reason, err
}

func (g *Gate) askRight(ctx context.Context, u *User, key rightKey) (right, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(u.Extra))
	for name, values := range u.Extra {
		extra[name] = values
	}
	a := &key.what
	answer, err := g.o.Access.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace,
				Name: a.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil && isAway(err) {
		g.breaker.failed(g.o.Now())
		g.metrics.review("access", "error")
		g.o.Log.Warn("reviewing access: the API server does not answer", "error", kindOf(err))
		return right{}, ErrAway
	}
	g.breaker.answered()
	const longest = 256
	r := right{reason: "the API server takes no such question"}
	if err == nil {
		r = right{allowed: answer.Status.Allowed && !answer.Status.Denied, reason: answer.Status.Reason}
		r.reason = r.reason[:min(len(r.reason), longest)]
	}
	if r.allowed {
		g.metrics.review("access", "allowed")
	} else {
		g.metrics.review("access", "denied")
	}
	g.rights.Add(key, r, rightsFor)
	return r, nil
}
