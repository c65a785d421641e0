package karmada

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// TestNoOpinionOfWhatIsNotSupported verifies that there is no opinion about bindings that only karmada-scheduler
// supports or that have no placement.
func TestNoOpinionOfWhatIsNotSupported(t *testing.T) {
	for spec, want := range map[string]int{
		`"replicas": 1`:     1,
		`"replicas": 20000`: 0,
		`"placement": null`: 0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "clusterAffinities": [{}]}`:                          0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "spreadConstraints": [{"minGroups": 2}]}`:            0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "spreadConstraints": [{"spreadByField": "region"}]}`: 0,
		`"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}, "workloadAffinity": {"a": {}}}`:                      0,
	} {
		d := federated(t, 2, 1, func() time.Time { return noon })
		b := divided(t, "b", 1)
		b.Spec.SchedulerName, b.CreationTimestamp.Time = "default-scheduler", noon
		if err := json.Unmarshal([]byte(`{`+spec+`}`), &b.Spec); err != nil {
			t.Fatal(err)
		}
		if err := d.bound.GetStore().Add(b); err != nil {
			t.Fatal(err)
		}
		if o, _ := newEstimator(d).opinion(t.Context(), b.needs()); len(o) != want {
			t.Errorf("%s: got %v, want %d clusters", spec, o, want)
		}
		if d.stays(b) {
			t.Errorf("%s: the binding is considered running", spec)
		}
	}
}

// asks returns a request as it is received from the gRPC library.
func asks(cluster string, needs map[string]string) *emptypb.Empty {
	m := new(emptypb.Empty)
	m.ProtoReflect().SetUnknown(request(cluster, needs))
	return m
}

// TestAnswerSurvivesPanics verifies that the official result is returned if the opinion panics.
func TestAnswerSurvivesPanics(t *testing.T) {
	d := federated(t, 1, 1, func() time.Time { return noon })
	b := divided(t, "b", 1)
	b.Spec.SchedulerName = "default-scheduler"
	b.CreationTimestamp.Time = noon
	if err := d.bound.GetStore().Add(b); err != nil {
		t.Fatal(err)
	}
	d.View = func() *kube.View { panic("planted") }
	asked := asks("c000", map[string]string{"cpu": "2", "memory": "1Gi"})
	answer, err := newEstimator(d).answer(t.Context(), maxReplicasMethod, asked)
	if err != nil || !proto.Equal(answer, wrapperspb.Int32(noOpinion)) {
		t.Errorf("%v, %v", answer, err)
	}
}

// TestNoOpinionBesideOtherModes verifies that there is no opinion while a binding with the same request waits in a
// namespace that does not enforce.
func TestNoOpinionBesideOtherModes(t *testing.T) {
	d := federated(t, 2, 1, func() time.Time { return noon })
	view, err := (&kube.Contents{
		Sites: d.View().Sites(), Profiles: []*kube.NodeProfile{{Profile: energy.Profile{Name: "box", Idle: 100, Max: 300}}},
		DefaultProfile: "box",
		Namespaces:     []policy.NamespaceMarks{{Name: "shadow", Labels: map[string]string{v1alpha1.LabelMode: "shadow"}}},
	}).View()
	if err != nil {
		t.Fatal(err)
	}
	d.View = func() *kube.View { return view }
	waits := func(name, namespace string) *binding {
		b := divided(t, name, 1)
		b.Spec.SchedulerName, b.Spec.Resource.Namespace, b.CreationTimestamp.Time = "default-scheduler", namespace, noon
		if err := d.bound.GetStore().Add(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := waits("b", "team")
	if o, _ := newEstimator(d).opinion(t.Context(), b.needs()); !o["c000"] || len(o) != 1 {
		t.Errorf("alone: %v", o)
	}
	waits("other", "shadow")
	if o, _ := newEstimator(d).opinion(t.Context(), b.needs()); o != nil {
		t.Errorf("with a binding in shadow mode: %v", o)
	}
}

// TestAnswerWithoutTheOfficialOne verifies that preferred clusters have no opinion and others have no capacity if
// the official estimator fails, and that clusters that are not members are rejected.
func TestAnswerWithoutTheOfficialOne(t *testing.T) {
	d := federated(t, 2, 1, func() time.Time { return noon })
	d.Upstream = "127.0.0.1:1"
	b := divided(t, "b", 1)
	b.Spec.SchedulerName, b.CreationTimestamp.Time = "default-scheduler", noon
	if err := d.bound.GetStore().Add(b); err != nil {
		t.Fatal(err)
	}
	e := newEstimator(d)
	needs := map[string]string{"cpu": "2", "memory": "1Gi"}
	for cluster, want := range map[string]int32{"c000": noOpinion, "c001": 0} {
		if answer, err := e.answer(t.Context(), maxReplicasMethod, asks(cluster, needs)); err != nil ||
			!proto.Equal(answer, wrapperspb.Int32(want)) {
			t.Errorf("%s: got %v, %v, want %d", cluster, answer, err, want)
		}
	}
	if _, err := e.answer(t.Context(), maxReplicasMethod, asks("absent", needs)); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// TestEstimatorClientCA verifies that --estimator-client-ca-file requires a client certificate and a server
// certificate.
func TestEstimatorClientCA(t *testing.T) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := Flags{cert: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key"), clientCA: filepath.Join(dir, "cert")}
	if err := errors.Join(os.WriteFile(f.cert, cert, 0o600), os.WriteFile(f.key, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	f.listen = ":0" // with client certificates, all addresses are permitted
	o, err := f.Options(nil, nil)
	if err != nil || o.Estimator == nil || o.Estimator.Close() != nil || o.TLS.ClientAuth != tls.RequireAndVerifyClientCert || o.TLS.ClientCAs == nil {
		t.Errorf("%+v, %v", o.TLS, err)
	}
	for _, good := range []Flags{{listen: "127.0.0.1:0"}, {listen: "localhost:0"}, {listen: ":0", anonymous: true}} {
		if o, err := good.Options(nil, nil); err != nil || o.Estimator.Close() != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []Flags{
		{listen: ":0"}, {listen: "0.0.0.0:0", cert: f.cert, key: f.key}, {listen: "[::]:0"},
		{clientCA: f.cert}, {cert: f.cert, key: f.key, clientCA: f.key}, {upstream: "estimator:10352"},
	} {
		if o, err := bad.Options(nil, nil); err == nil {
			t.Errorf("%+v: expected an error, got %+v", bad, o.TLS)
		}
	}
}

// TestMetrics verifies that metrics and health are served.
func TestMetrics(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	var sick atomic.Bool
	healthz := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			http.Error(w, "a loop is stuck", http.StatusServiceUnavailable)
		}
	})
	go func() { ended <- serveMetrics(ctx, l, healthz, slog.New(slog.DiscardHandler)) }()
	d := federated(t, 1, 1, func() time.Time { return noon })
	d.View = func() *kube.View { panic("planted") }
	needs := map[string]string{"cpu": "2", "memory": "1Gi"}
	b := divided(t, "b", 1)
	b.Spec.SchedulerName = "default-scheduler"
	if err := d.bound.GetStore().Add(b); err != nil {
		t.Fatal(err)
	}
	if _, err := newEstimator(d).answer(t.Context(), maxReplicasMethod, asks("c000", needs)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/metrics": `kubenergy_karmada_answers_total{opinion="it panicked"}`, "/healthz": "",
	} {
		r, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(page), want) {
			t.Errorf("%s: %s, %v:\n%s", path, r.Status, err, page)
		}
	}
	sick.Store(true)
	r, err := http.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while a loop is stuck: got status %s", r.Status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
