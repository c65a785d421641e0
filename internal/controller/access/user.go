package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// A User is an authenticated user.
type User authenticationv1.UserInfo

// NodeClaim is the key of the extra user info with the node name of the pod that a token is bound to.
const NodeClaim = "authentication.kubernetes.io/node-name"

// Node returns the node that the user's token is bound to, or "" if there is none.
func (u *User) Node() string {
	if values := u.Extra[NodeClaim]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// String returns the user name.
func (u *User) String() string { return u.Username }

// digest returns a hash of all user attributes. Users with the same digest have the same permissions.
func (u *User) digest() [sha256.Size]byte {
	text := fmt.Appendf(nil, "%q %q %q", u.Username, u.UID, slices.Sorted(slices.Values(u.Groups)))
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		text = fmt.Appendf(text, " %q %q", key, []string(u.Extra[key]))
	}
	return sha256.Sum256(text)
}

type userKey struct{}

// UserOf returns the user stored in ctx by [WithUser], or nil.
func UserOf(ctx context.Context) *User {
	u, _ := ctx.Value(userKey{}).(*User)
	return u
}

// WithUser returns a copy of ctx with the user u.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}
