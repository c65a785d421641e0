package standalone

import (
	"cmp"
	"net/http"
	"path"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// User names of the tokens.
const (
	operator = "kubenergy-operator"
	reader   = "kubenergy-reader"
)

// review serves reviews of tokens and permissions, and requests for tokens. The operator has full access, the
// reader may list energy, and other users have no access. A requested token is always that of the operator. review
// reports whether it has served the request.
func (s *Server) review(w http.ResponseWriter, r *http.Request) bool {
	var (
		token  authenticationv1.TokenReview
		access authorizationv1.SubjectAccessReview
		asked  authenticationv1.TokenRequest
	)
	into, ok := map[string]any{
		"tokenreviews": &token, "subjectaccessreviews": &access, "token": &asked,
	}[path.Base(r.URL.Path)]
	if !ok {
		return false
	}
	body, err := bodyOf(r)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		answer(w, nil, err)
		return true
	}
	if who := map[string]string{s.o.Reader: reader, s.o.Token: operator}[token.Spec.Token]; token.Spec.Token != "" {
		token.Status.Authenticated, token.Status.Audiences = who != "", token.Spec.Audiences
		token.Status.User.Username = who
	}
	token.Spec.Token, asked.Status.Token = "", s.o.Token
	about := cmp.Or(access.Spec.ResourceAttributes, &authorizationv1.ResourceAttributes{})
	access.Status.Allowed = access.Spec.User == operator ||
		access.Spec.User == reader && about.Verb == "list" && about.Resource == "energy"
	write(w, http.StatusCreated, into)
	return true
}
