package karmada

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/karmada"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/test/kit"
)

var (
	policies = schema.GroupVersionResource{
		Group: "policy.karmada.io", Version: "v1alpha1", Resource: "propagationpolicies",
	}
	rebalancers = schema.GroupVersionResource{
		Group: "apps.karmada.io", Version: "v1alpha1", Resource: "workloadrebalancers",
	}
)

// stage is a federation without Karmada. Its definitions are real, and the test performs the tasks of Karmada's
// programs.
type stage struct {
	*federation
	ours    *rest.Config // client configuration with the account of kubenergy-karmada
	objects *kube.Objects
	ahead   atomic.Int64 // offset of the driver's clock in nanoseconds

	mu    sync.Mutex
	taken []taken
}

// taken is a recorded decision with its input.
type taken struct {
	ledger.Record
	question []byte
}

// newStage starts three control planes and performs the installation described in docs/how-to/karmada.md.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{federation: &federation{t: t, dir: kit.Dir(t, "stage"), members: map[string]*server{}}}
	s.pki = newPKI(t, s.dir)
	north, south := boxes("n", 3), boxes("s", 3)
	north[0].Labels["disk"] = "ssd"
	north[1].Taints = []v1.Taint{{Key: "dedicated", Value: "db", Effect: v1.TaintEffectNoSchedule}}
	few := []string{"--controllers=namespace,serviceaccount"} // without the Job controller, Jobs get no pods
	first := startPlane(t, "cp", planeOptions{Managers: few})
	pods := planeOptions{Managers: few, API: []string{"--disable-admission-plugins=ServiceAccount"}}
	pods.Nodes = north
	ready := map[string]func() *server{"north": startPlane(t, "north", pods)}
	pods.Nodes = south
	ready["south"] = startPlane(t, "south", pods)
	s.server = first()
	s.install()
	for name, ready := range ready {
		s.members[name] = ready()
		s.members[name].apply(t, s.file("member.yaml"))
	}
	s.ours = s.front("kubenergy-karmada")
	return s
}

// definitions returns the files with the definitions of Karmada if they are available, and otherwise a file without
// schemas.
func definitions() (files []string) {
	folder := filepath.Join(kit.Root, "..", "shared", "data", "karmada-crds", "bases")
	if _, err := os.Stat(folder); err != nil {
		return []string{"testdata/karmada.yaml"}
	}
	for _, name := range []string{
		"work/work.karmada.io_resourcebindings", "apps/apps.karmada.io_workloadrebalancers",
		"policy/policy.karmada.io_propagationpolicies",
	} {
		files = append(files, filepath.Join(folder, name+".yaml"))
	}
	return files
}

func (s *stage) install() {
	t := s.t
	t.Helper()
	files := func(paths ...string) {
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s.apply(t, text)
		}
	}
	files(append(definitions(), "testdata/cluster.yaml")...)
	s.applyFolder(t, filepath.Join(kit.Root, "charts", "kubenergy", "crds"))
	for _, r := range []schema.GroupVersionResource{bindings, rebalancers, policies, clusters, zones} {
		s.await(time.Minute, r.Resource+" are served", func() bool {
			_, err := s.dynamic.Resource(r).List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
	s.apply(t, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: karmada-system}}"))
	files(filepath.Join(kit.Root, "deploy", "kubenergy.yaml"))
	s.apply(t, s.file("federation.yaml"))
	s.apply(t, deploy.HoldAdmission)
	s.apply(t, s.file("admission.yaml"))
	s.apply(t, s.file("guard.yaml"))
	s.apply(t, []byte(`
{apiVersion: kubenergy.io/v1alpha1, kind: PowerProfile, metadata: {name: box}, spec: {idleWatts: 100, maxWatts: 300}}
---
apiVersion: kubenergy.io/v1alpha1
kind: EnergyPolicy
metadata: {name: default, namespace: kubenergy-system}
spec: {mode: enforce}
`))
	for _, name := range []string{"north", "south"} {
		s.apply(t, fmt.Appendf(nil, `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: %[1]s, labels: {kubenergy.io/site: %[1]s, side: %[1]s}}
spec: {syncMode: Push}
`, name))
		api := func(version, kind string) any {
			return map[string]any{"groupVersion": version, "resources": []any{map[string]any{"kind": kind}}}
		}
		apis := []any{api("batch/v1", "Job")}
		if name == "south" {
			apis = append(apis, api("apps/v1", "Deployment"))
		}
		s.status(clusters, name, map[string]any{"apiEnablements": apis})
		s.reached(name, "True")
	}
	for r, text := range map[schema.GroupVersionResource]string{
		bindings: "{apiVersion: work.karmada.io/v1alpha2, kind: ResourceBinding, metadata: {name: try}, " +
			"spec: {resource: {apiVersion: batch/v1, kind: Job, name: try}}}",
		jobs: "{apiVersion: batch/v1, kind: Job, " +
			"metadata: {name: try, annotations: {kubenergy.io/allowed-delay: 1h}}, " +
			"spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}}",
	} {
		s.await(time.Minute, "admission suspends "+r.Resource, func() bool {
			o, err := s.dynamic.Resource(r).Namespace(metav1.NamespaceDefault).Create(t.Context(), object(t, text),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil && o.GetLabels()["kubenergy.io/held"] == "true"
		})
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// reached sets the Ready condition of a cluster.
func (s *stage) reached(name, ready string) {
	s.status(clusters, name, map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": ready, "reason": "Test", "message": "",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}})
}

// front returns a client configuration for the API server of Karmada with its proxy to members. Like Karmada, the
// proxy impersonates the requesting account in the member.
func (s *stage) front(account string) *rest.Config {
	t := s.t
	t.Helper()
	proxy := func(config *rest.Config) *httputil.ReverseProxy {
		transport, err := rest.TransportFor(config)
		to, errURL := url.Parse(config.Host)
		if err != nil || errURL != nil {
			t.Fatal(err, errURL)
		}
		return &httputil.ReverseProxy{
			Transport: transport, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		}
	}
	own, members := proxy(rest.AnonymousClientConfig(s.config)), map[string]*httputil.ReverseProxy{}
	user := "system:serviceaccount:kubenergy-system:" + account
	for name, m := range s.members {
		config := rest.CopyConfig(m.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{
			"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:kubenergy-system",
		}}
		members[name] = proxy(config)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, found := strings.CutPrefix(r.URL.Path, "/apis/cluster.karmada.io/v1alpha1/clusters/")
		name, path, proxied := strings.Cut(rest, "/proxy/")
		if !found || !proxied {
			own.ServeHTTP(w, r)
			return
		}
		if members[name] == nil || !s.mayProxy(r, user, name) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.URL.Path, r.URL.RawPath = "/"+path, ""
		r.Header.Del("Authorization")
		members[name].ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	config := s.account(account)
	config.Host, config.QPS = server.URL, -1
	config.TLSClientConfig = rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	return config
}

// mayProxy reports whether a request is from the given user and the user can access the cluster through Karmada.
func (s *stage) mayProxy(r *http.Request, user, cluster string) bool {
	review, err := s.client.AuthenticationV1().TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")},
	}, metav1.CreateOptions{})
	if err != nil || review.Status.User.Username != user {
		return false
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodDelete: "delete"}[r.Method]
	access, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(),
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: review.Status.User.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: clusters.Group, Version: clusters.Version, Resource: clusters.Resource, Subresource: "proxy",
				Name: cluster, Verb: verb,
			},
		}}, metav1.CreateOptions{})
	return err == nil && access.Status.Allowed
}

// now returns the time of the driver's clock.
func (s *stage) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// later advances the driver's clock.
func (s *stage) later(by time.Duration) { s.ahead.Add(int64(by)) }

// drive runs a driver and its informers until the test ends.
func (s *stage) drive(o karmada.Options) *karmada.Driver {
	s.t.Helper()
	log := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	var err error
	if s.objects, err = kube.NewObjects(s.ours, log); err != nil {
		s.t.Fatal(err)
	}
	o.Config, o.View, o.Log, o.Clock = s.ours, s.objects.View, log, s.now
	o.Record = func(r ledger.Record, on *sched.Snapshot) {
		question, err := codec.Encode(on)
		if err != nil {
			s.t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken = append(s.taken, taken{r, question})
	}
	d, err := karmada.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(s.objects.Run)
	s.await(10*time.Second, "the zones and policies are received", s.objects.Synced)
	s.run(d.Run)
	return d
}

// run runs a component until the test ends.
func (s *stage) run(part func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// listen returns a listener on a free local port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pair returns the TLS configuration of Karmada's servers.
func (p *pki) pair() *tls.Config {
	p.t.Helper()
	pair, err := tls.LoadX509KeyPair(p.file("tls.crt"), p.file("tls.key"))
	if err != nil {
		p.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}
