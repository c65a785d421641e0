package access_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

// apiServer is a fake API server for TokenReviews and SubjectAccessReviews.
type apiServer struct {
	*httptest.Server
	apiAudience string

	mu      sync.Mutex
	holders map[string]holder
	rights  map[string]bool // "user verb resource.group/subresource namespace"
	reviews int
	rules   int // number of access reviews
	status  int // status of all responses unless 0
	block   chan struct{}
}

type holder struct {
	name     string
	node     string
	audience string // empty for the API server
}

func newAPIServer(t testing.TB) *apiServer {
	s := &apiServer{
		apiAudience: "https://kubernetes.default.svc", holders: map[string]holder{}, rights: map[string]bool{},
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) gate(t testing.TB, change ...func(*access.Options)) *access.Gate {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := access.Options{
		Tokens: client.AuthenticationV1().TokenReviews(), Access: client.AuthorizationV1().SubjectAccessReviews(),
		Reviews: 100_000, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	return access.NewGate(o)
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	status, block := s.status, s.block
	s.mu.Unlock()
	if block != nil {
		<-block
	}
	if status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(status),
			Message: "no",
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		s.review(w, r)
		return
	}
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a := review.Spec.ResourceAttributes
	s.mu.Lock()
	s.rules++
	review.Status.Allowed = s.rights[fmt.Sprintf("%s %s %s.%s/%s %s", review.Spec.User, a.Verb, a.Resource, a.Group,
		a.Subresource, a.Namespace)]
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&review)
}

func (s *apiServer) review(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reviews++
	h, known := s.holders[review.Spec.Token]
	audience := h.audience
	if audience == "" {
		audience = s.apiAudience
	}
	want := review.Spec.Audiences
	if len(want) == 0 {
		want = []string{s.apiAudience}
	}
	if known && slices.Contains(want, audience) {
		review.Status.Authenticated = true
		review.Status.Audiences = []string{audience}
		review.Status.User = authenticationv1.UserInfo{Username: h.name, Groups: []string{"system:authenticated"}}
		if h.node != "" {
			review.Status.User.Extra = map[string]authenticationv1.ExtraValue{access.NodeClaim: {h.node}}
		}
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&review)
}

func (s *apiServer) add(token string, h holder) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[token] = h
	return token
}

func (s *apiServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *apiServer) counted() (reviews, rules int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reviews, s.rules
}

// jwt returns an unsigned token with the given claims.
func jwt(expiry time.Time, audiences ...string) string {
	claims, _ := json.Marshal(map[string]any{"aud": audiences, "exp": expiry.Unix(), "n": expiry.UnixNano()})
	return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2lnbmF0dXJl"
}

// clock is a fake clock.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 11, 3, 10, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}
