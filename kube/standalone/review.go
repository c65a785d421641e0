package standalone

import (
	"net/http"
	"path"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// operator is who holds the token.
const operator = "kubenergy-operator"

// review answers who holds a token and what they may: the operator everything, all others nothing. A token that is
// asked for is the operator's own. It reports whether the request was about that.
func (s *Server) review(w http.ResponseWriter, r *http.Request) bool {
	var (
		token  authenticationv1.TokenReview
		access authorizationv1.SubjectAccessReview
		asked  authenticationv1.TokenRequest
	)
	into, is := map[string]any{
		"tokenreviews": &token, "subjectaccessreviews": &access, "token": &asked,
	}[path.Base(r.URL.Path)]
	if !is {
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
	if token.Spec.Token == s.o.Token {
		token.Status.Authenticated, token.Status.Audiences = true, token.Spec.Audiences
		token.Status.User.Username = operator
	}
	token.Spec.Token, asked.Status.Token = "", s.o.Token
	access.Status.Allowed = access.Spec.User == operator
	write(w, http.StatusCreated, into)
	return true
}
