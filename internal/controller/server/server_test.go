package server

import (
	"context"
	"encoding/json"
	"io"
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
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Tokens used in tests. Tenants a and b have all permissions on energy in their namespace and may create Jobs in
// it.
const (
	admin    = "token-of-an-administrator"
	stranger = "token-of-somebody-without-rights"
	tenantA  = "token-of-tenant-a"
	tenantB  = "token-of-tenant-b"
	sidecar1 = "token-of-a-sidecar-on-worker1"

	everywhere = "token-of-somebody-who-may-list-energy-everywhere"
)

// noon is the current time in tests with a fixed clock.
var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// reviewers is a fake client for TokenReviews.
type reviewers struct {
	authenticationclient.TokenReviewInterface
}

func (reviewers) Create(_ context.Context, review *authenticationv1.TokenReview,
	_ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	answer := review.DeepCopy()
	names := map[string]string{
		admin: "admin", stranger: "stranger", tenantA: "a", tenantB: "b", sidecar1: "sidecar", everywhere: "everywhere",
	}
	name, ok := names[review.Spec.Token]
	answer.Status = authenticationv1.TokenReviewStatus{
		Authenticated: ok, User: authenticationv1.UserInfo{Username: name}, Audiences: review.Spec.Audiences,
	}
	if name == "sidecar" {
		answer.Status.User.Extra = map[string]authenticationv1.ExtraValue{access.NodeClaim: {"worker1"}}
	}
	return answer, nil
}

type judges struct {
	authorizationclient.SubjectAccessReviewInterface
}

func (judges) Create(_ context.Context, review *authorizationv1.SubjectAccessReview,
	_ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	answer := review.DeepCopy()
	a, user := review.Spec.ResourceAttributes, review.Spec.User
	switch user {
	case "admin":
		answer.Status.Allowed = true
	case "a", "b":
		answer.Status.Allowed = a.Namespace == user && (a.Group == group && a.Resource == resourceEnergy ||
			a.Group == "batch" && a.Resource == "jobs")
	case "everywhere":
		answer.Status.Allowed = a.Group == group && a.Resource == resourceEnergy
	case "sidecar":
		answer.Status.Allowed = a.Group == group && a.Resource == resourceMetrics && a.Verb == "create"
	}
	return answer, nil
}

func newGate() *access.Gate {
	plenty := access.Allowance{PerSecond: 1e6, AtOnce: 1e6}
	return access.NewGate(access.Options{
		Tokens: reviewers{}, Access: judges{}, Reviews: 1e6, People: plenty, Agents: plenty,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// fakeLive is a fake Live with fixed power readings.
type fakeLive struct {
	mu    sync.Mutex
	nodes []api.NodePower
	pods  []api.PodPower
}

func (l *fakeLive) Nodes() api.NodesPower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return api.NodesPower{Nodes: slices.Clone(l.nodes)}
}

func (l *fakeLive) Workloads() api.WorkloadsPower { return api.WorkloadsPower{} }

func (l *fakeLive) Pods(namespace string) api.PodsPower {
	var some []api.PodPower
	for _, p := range l.pods {
		if namespace == "" || p.Namespace == namespace {
			some = append(some, p)
		}
	}
	return api.PodsPower{Pods: some}
}

// world contains the fake dependencies of a server.
type world struct {
	store  *ledgertest.Store
	live   *fakeLive
	client client.Client
	config Config
	now    time.Time
	booked []*batch.Batch
	log    *strings.Builder
}

func newScheme(t testing.TB) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func newNode(name, cores, profile string) *v1.Node {
	resources := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cores), v1.ResourceMemory: resource.MustParse("64Gi"),
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelPowerProfile: profile}},
		Status:     v1.NodeStatus{Capacity: resources, Allocatable: resources},
	}
}

func newView(t testing.TB) *kube.View {
	carbon, err := grid.NewSeries(noon.Add(-time.Hour), time.Hour, []float64{300, 200, 100, 400})
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{
		Name: "de", Zone: "DE", PUE: 1.2, Carbon: grid.Signal{
			Series: carbon, AsOf: noon.Add(-10 * time.Minute), Quality: energy.Measured,
		},
	}
	linear := func(name string, idle, most float64) *energy.Profile {
		return &energy.Profile{Name: name, Idle: energy.Watts(idle), Max: energy.Watts(most), Sleep: energy.Watts(idle)}
	}
	view, err := kube.NewView([]*sched.Site{site},
		[]*energy.Profile{linear("frugal", 50, 100), linear("greedy", 100, 400)}, "")
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// newWorld returns a world with two nodes and a booking of pods in the namespaces a and b.
func newWorld(t testing.TB) *world {
	w := &world{store: new(ledgertest.Store), now: noon, log: new(strings.Builder)}
	w.live = &fakeLive{
		nodes: []api.NodePower{{
			Node: "worker1", Watts: 123.5, AsOf: noon.Add(-5 * time.Second), Quality: energy.Measured,
			Source: "package (rapl)",
		}},
		pods: []api.PodPower{
			{Namespace: "a", Pod: "train-x", UID: "uid-a", Node: "worker1", Watts: 10, AsOf: noon},
			{Namespace: "b", Pod: "secret-y", UID: "uid-b", Node: "worker1", Watts: 20, AsOf: noon},
		},
	}
	w.client = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(newNode("worker1", "8", "frugal"),
		newNode("worker2", "8", "greedy")).Build()
	view := newView(t)
	w.config = Config{
		Ledger: w.store, Live: w.live, Gate: newGate(), View: func() *kube.View { return view }, Client: w.client,
		Batches: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			access.Answer(w, http.StatusUnauthorized, "no")
		}),
		Bookings: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }),
		Power: func(node string) string {
			var n v1.Node
			_ = w.client.Get(t.Context(), types.NamespacedName{Name: node}, &n)
			return n.Labels[v1alpha1.LabelPowerState]
		},
		JobNamespaces: []string{"a", "b"},
		Sidecar: SidecarConfig{
			Book: func(_ context.Context, b *batch.Batch) error {
				w.booked = append(w.booked, b)
				return b.Validate()
			}, Final: func(error) bool { return false }, Leads: func() bool { return true },
			PodUID: func(string, string) (string, bool) { return "", false },
		},
		Now: func() time.Time { return w.now }, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	w.book(t)
	return w
}

func (w *world) book(t testing.TB) {
	t.Helper()
	b := &batch.Batch{
		Version: 1, Stream: batch.Stream{Node: "worker1", Boot: "boot", Epoch: "epoch"}, First: 1, Last: 1,
		EndSinceBoot: 5 * time.Minute,
		Source:       "package (rapl)", Quality: energy.Measured, IdlePolicy: "apart", Measured: 1_000_000_000,
		Idle: 300_000_000,
		Shares: []energy.Share{
			{ID: "pod/uid-a", Dynamic: 500_000_000, CPU: time.Minute},
			{ID: "pod/uid-b", Dynamic: 200_000_000, CPU: time.Second},
		},
	}
	b.SetWall(noon.Add(-time.Hour))
	booking := &ledger.Booking{
		Batch: b, Received: noon.Add(-time.Hour), Rates: ledger.Rates{
			Site: "de", PUE: 1.2, Carbon: 300, Signal: "average", Price: 0.3, Currency: "EUR",
		},
		Consumers: []*ledger.Consumer{
			{Key: "pod/uid-a", Pod: "train-x", Account: ledger.Account{
				Kind: ledger.Workload, Namespace: "a", OwnerKind: "Job", Owner: "train", Parent: "CronJob/nightly",
				Strategy: "carbon+window",
			}},
			{Key: "pod/uid-b", Pod: "secret-y", Account: ledger.Account{
				Kind: ledger.Workload, Namespace: "b", OwnerKind: "Job", Owner: "secret",
			}},
		},
	}
	if _, errs, err := w.store.Book(t.Context(), []*ledger.Booking{booking}); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	for _, namespace := range []string{"a", "b"} {
		record := ledger.Record{
			ID: "record-" + namespace, At: noon.Add(-time.Minute), Action: "place", Namespace: namespace,
			OwnerKind: "Job", Owner: "job-of-" + namespace,
			UID: "uid-" + namespace, Strategy: "carbon+window", Node: "worker1", Reason: "cheapest",
			Snapshot: []byte("snapshot"), Intensity: 250,
		}
		if err := w.store.Record(t.Context(), []ledger.Record{record}); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) handler() http.Handler { return New(w.config) }

// ask sends a request and returns the response. Headers are given as pairs of name and value.
func ask(t testing.TB, h http.Handler, method, target, token, body string,
	headers ...string,
) *httptest.ResponseRecorder {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, from)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

// get sends a GET request as an administrator and decodes the response.
func get[T any](t testing.TB, h http.Handler, target string) T {
	t.Helper()
	answer := ask(t, h, "GET", target, admin, "")
	if answer.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", target, answer.Code, answer.Body)
	}
	var v T
	if err := json.Unmarshal(answer.Body.Bytes(), &v); err != nil {
		t.Fatalf("GET %s: %v in %s", target, err, answer.Body)
	}
	return v
}

func wantStatus(t testing.TB, answer *httptest.ResponseRecorder, want int, what string) {
	t.Helper()
	if answer.Code != want {
		t.Errorf("%s: %d, want %d: %.300s", what, answer.Code, want, answer.Body)
	}
	if answer.Code >= http.StatusBadRequest {
		var e api.Error
		if err := json.Unmarshal(answer.Body.Bytes(), &e); err != nil || e.Error == "" {
			t.Errorf("%s: the body is not a JSON error: %.300s", what, answer.Body)
		}
	}
}

// filled returns the path of the route with values for its wildcards.
func (rt *route) filled(namespace string) string {
	return strings.NewReplacer("{namespace}", namespace, "{pod}", "train-x").Replace(rt.path)
}

func (rt *route) example() string {
	if rt.body == nil {
		return ""
	}
	return rt.body.example
}

func decode(t testing.TB, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}
