package standalone

import (
	"encoding/json"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operator is who holds the token.
const operator = "kubenergy-operator"

// review answers who holds a token and what they may: the operator everything, all others nothing. A token that is
// asked for is the operator's own.
func (s *Server) review(w http.ResponseWriter, r *http.Request) {
	last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	body, err := bodyOf(r)
	reply := func(into any, fill func()) {
		if err == nil {
			err = json.Unmarshal(body, into)
		}
		if err == nil {
			fill()
			write(w, http.StatusCreated, into)
		}
	}
	switch last {
	case "tokenreviews":
		var t authenticationv1.TokenReview
		reply(&t, func() {
			if t.Status.Authenticated = t.Spec.Token == s.o.Token; t.Status.Authenticated {
				t.Status.User.Username, t.Status.Audiences = operator, t.Spec.Audiences
			}
			t.Spec.Token = ""
		})
	case "subjectaccessreviews":
		var a authorizationv1.SubjectAccessReview
		reply(&a, func() { a.Status.Allowed = a.Spec.User == operator })
	case "selfsubjectaccessreviews":
		var a authorizationv1.SelfSubjectAccessReview
		reply(&a, func() { a.Status.Allowed = true })
	case "selfsubjectreviews":
		var a authenticationv1.SelfSubjectReview
		reply(&a, func() {
			a.CreationTimestamp, a.Status.UserInfo.Username = metav1.Now(), operator
		})
	case "token":
		var t authenticationv1.TokenRequest
		reply(&t, func() { t.Status.Token = s.o.Token })
	default:
		err = apierrors.NewNotFound(resource("", "", last).GroupResource(), "")
	}
	if err != nil {
		answer(w, nil, err)
	}
}
