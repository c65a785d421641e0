package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// A User is who holds a token.
type User authenticationv1.UserInfo

// NodeClaim is what the API server says of a token that is bound to a pod: the node that the pod runs on.
const NodeClaim = "authentication.kubernetes.io/node-name"

// Node returns the node that the user's token is bound to, or "".
func (u *User) Node() string {
	if values := u.Extra[NodeClaim]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// String returns the user's name alone.
func (u *User) String() string { return u.Username }

// digest tells users apart: two with the same one may do the same.
func (u *User) digest() [sha256.Size]byte {
	text := fmt.Appendf(nil, "%q %q %q", u.Username, u.UID, slices.Sorted(slices.Values(u.Groups)))
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		text = fmt.Appendf(text, " %q %q", key, []string(u.Extra[key]))
	}
	return sha256.Sum256(text)
}

type userKey struct{}

// UserOf returns who makes the request that ctx belongs to, or nil.
func UserOf(ctx context.Context) *User {
	u, _ := ctx.Value(userKey{}).(*User)
	return u
}

// WithUser returns a context of a request that u makes.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}
