package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// attempts is the number of times that each attack is repeated.
const attempts = 10_000

// post sends a batch and returns the status code of the response.
func (c *controllerProcess) post(t *testing.T, body []byte, token string) (int, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/api/v1/batches", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// joules returns a batch of 100 W for ten seconds.
func joules(t *testing.T, node, epoch string, number uint64) []byte {
	t.Helper()
	const used = energy.Microjoules(1000e6)
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: node, Boot: "boot-" + node, Epoch: epoch}, First: number,
		Last:           number,
		StartSinceBoot: time.Duration(number) * 10 * time.Second, EndSinceBoot: time.Duration(number+1) * 10 *
			time.Second,
		Source: "forged", Quality: energy.Measured, IdlePolicy: "apart", Measured: used, Idle: used,
		Shares: []energy.Share{},
	}
	b.SetWall(time.Now())
	data, err := batch.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// flood sends n batches concurrently and returns the number of responses by status code.
func (c *controllerProcess) flood(t *testing.T, n int, fn func(i int) (body []byte, token string)) map[int]int {
	t.Helper()
	const senders = 8
	statuses := map[int]int{}
	var mu sync.Mutex
	var next atomic.Int64
	var all sync.WaitGroup
	var failed error
	for range senders {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				body, token := fn(int(i))
				status, err := c.post(t, body, token)
				mu.Lock()
				statuses[status]++
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	return statuses
}

func (c *controllerProcess) energyOf(t *testing.T, node string) energy.Microjoules {
	t.Helper()
	var a ledger.Answer
	q := url.Values{
		"from": {"-1h"}, "to": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}, "node": {node},
		"groupBy": {"node"},
	}
	if err := c.ask(t, "/api/v1/ledger?"+q.Encode(), &a); err != nil {
		t.Fatal(err)
	}
	return a.Total.Energy()
}

// TestForgedAndReplayed attacks the ledger with the token of an agent, using forged batches of other nodes and
// replayed batches.
func TestForgedAndReplayed(t *testing.T) {
	w := shared
	c := w.controller(t, nil)
	pod := w.agentPod(t, "node-0")
	own := w.Token(t, "kubenergy-agent", pod)
	unbound := w.Token(t, "kubenergy-agent", nil) // not bound to a node
	other := w.Token(t, "kubenergy-viewer", nil)  // not the account of an agent
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(3600)), Audiences: []string{"https://somewhere.example.com"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		},
	}}
	elsewhere, err := w.Client.CoreV1().ServiceAccounts(cluster.AgentNamespace).CreateToken(t.Context(), "kubenergy-agent",
		request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forger := []struct{ node, token string }{
		{"node-1", own},
		{"elsewhere", own},
		{"node-1", unbound},
		{"node-0", unbound},
		{"node-0", other},
		{"node-0", elsewhere.Status.Token},
		{"node-0", ""},
		{"node-0", "garbage"},
		{"node-0", own[:len(own)-2] + "xx"},
	}
	statuses := c.flood(t, attempts, func(i int) ([]byte, string) {
		f := forger[i%len(forger)]
		return joules(t, f.node, fmt.Sprintf("forged-%d", i), uint64(i+1)), f.token
	})
	for status := range statuses {
		// Clients that send too many requests or too many invalid tokens are rate-limited.
		if !slices.Contains([]int{
			http.StatusForbidden, http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable,
		}, status) {
			t.Errorf("unexpected status %d for a forged batch", status)
		}
	}
	if used := c.energyOf(t, "node-0") + c.energyOf(t, "node-1") + c.energyOf(t, "elsewhere"); used != 0 {
		t.Errorf("forged batches were recorded: %d µJ", used)
	}
	t.Logf("sent %d forged batches: %v", attempts, statuses)

	first := joules(t, "node-0", "replayed", 1)
	kit.Eventually(t, time.Minute, "a valid batch is accepted after the rate limit expires", func() bool {
		status, err := c.post(t, first, own)
		return err == nil && status == http.StatusOK
	})
	booked := c.energyOf(t, "node-0")
	statuses = c.flood(t, attempts, func(int) ([]byte, string) { return first, own })
	if statuses[http.StatusOK] == 0 ||
		statuses[http.StatusOK]+statuses[http.StatusTooManyRequests]+statuses[http.StatusServiceUnavailable] != attempts {
		t.Errorf("unexpected statuses for replayed batches: %v", statuses)
	}
	if again := c.energyOf(t, "node-0"); booked != 1000e6 || again != booked {
		t.Errorf("recorded %d µJ, and %d µJ after %d replays, want no change", booked, again, attempts)
	}
	t.Logf("sent %d replays: %v", attempts, statuses)
}

// TestRoutesAreClosed sends requests to every route without a token and with a token without permissions.
func TestRoutesAreClosed(t *testing.T) {
	w := shared
	c := w.controller(t, nil)
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := c.ask(t, "/openapi/v3.json", &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Paths) < 10 {
		t.Fatalf("OpenAPI document contains only %d paths", len(document.Paths))
	}
	powerless := w.account(t, "default", "nobody", "")
	for pattern, methods := range document.Paths {
		path := strings.NewReplacer("{ns}", "default", "{namespace}", "default", "{pod}", "x", "{name}",
			"x").Replace(pattern)
		for method := range methods {
			for token, want := range map[string]int{
				"": http.StatusUnauthorized, "x": http.StatusUnauthorized, powerless: http.StatusForbidden,
			} {
				status := c.do(t, strings.ToUpper(method), path, token)
				// Every authenticated account can read the API description. Tokens for another audience are
				// rejected for batches.
				if token == powerless && (strings.Contains(path, "openapi") && status == http.StatusOK ||
					path == "/api/v1/batches" && status == http.StatusUnauthorized) {
					continue
				}
				if status != want {
					t.Errorf("%s %s: status = %d, want %d", method, path, status, want)
				}
			}
		}
	}
	for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/api", "/api/v1", "/healthz", "/../etc/passwd"} {
		if status := c.do(t, http.MethodGet, path, ""); status != http.StatusUnauthorized &&
			status != http.StatusNotFound && status != http.StatusForbidden {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func (c *controllerProcess) do(t *testing.T, method, path, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// account returns the token of a new service account. If views is not empty, the account can view that namespace.
func (w *world) account(t *testing.T, namespace, name, views string) string {
	t.Helper()
	ignoreExisting := func(err error) {
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatal(err)
		}
	}
	_, err := w.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	ignoreExisting(err)
	if views != "" {
		_, err := w.Client.RbacV1().RoleBindings(views).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view",
			},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		}, metav1.CreateOptions{})
		ignoreExisting(err)
	}
	got, err := w.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

// TestTenants verifies that an account that can view one namespace only has access to the usage of that namespace.
func TestTenants(t *testing.T) {
	w := shared
	c := w.controller(t, nil)
	for _, ns := range []string{"tenant-a", "tenant-b"} {
		w.Namespace(t, ns, enforced)
	}
	token := w.account(t, "tenant-a", "reader", "tenant-a")
	// Aggregated roles and new bindings become effective after a short delay.
	kit.Eventually(t, 30*time.Second, "the tenant can access its namespace", func() bool {
		status, _ := c.get(t, "/api/v1/namespaces/tenant-a/ledger?from=-1h", token)
		return status == http.StatusOK
	})
	for _, path := range []string{
		"/api/v1/namespaces/tenant-b/ledger?from=-1h", "/api/v1/namespaces/tenant-b/pods",
		"/api/v1/namespaces/tenant-b/jobs",
		"/api/v1/namespaces/tenant-b/decisions", "/api/v1/ledger?from=-1h",
		"/api/v1/ledger?from=-1h&namespace=tenant-a", "/api/v1/pods",
		"/api/v1/pods?namespace=tenant-b", "/api/v1/nodes", "/api/v1/nodes/power", "/api/v1/workloads/power",
		"/api/v1/decisions", "/api/v1/ledger/audit",
		"/api/v1/namespaces/tenant-a%2F..%2Ftenant-b/ledger?from=-1h",
		"/api/v1/namespaces/tenant-a/../tenant-b/ledger?from=-1h",
	} {
		if status, body := c.get(t, path, token); status == http.StatusOK {
			t.Errorf("unexpected access to %s: %d %s", path, status, body)
		}
	}
	status, body := c.get(t, "/api/v1/namespaces/tenant-a/ledger?from=-1h&namespace=tenant-b&namespace=tenant-a", token)
	if status == http.StatusOK && strings.Contains(body, "tenant-b") {
		t.Errorf("response to the tenant contains another namespace: %s", body)
	}
}
