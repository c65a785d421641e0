package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var apiNames = []string{"kubenergy-controller.kubenergy-system.svc", "localhost"}

func TestCertificateIsKept(t *testing.T) {
	folder, now := t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	drafts := []string{filepath.Join(folder, ".api.crt5"), filepath.Join(folder, ".api.key123")}
	for _, draft := range drafts {
		if err := os.WriteFile(draft, []byte("a key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, err := SignOnce(folder, apiNames, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, draft := range drafts {
		if _, err := os.Stat(draft); err == nil {
			t.Errorf("the temporary file %s was not removed", draft)
		}
	}
	pair, err := tls.LoadX509KeyPair(first.CertFile, first.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(first.pem)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, DNSName: apiNames[0], CurrentTime: now,
	}); err != nil {
		t.Errorf("verifying the certificate with the bundle: %v", err)
	}
	if info, err := os.Stat(first.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("unexpected mode of the key %v, %v", info.Mode(), err)
	}
	same := func(at time.Time, names []string) bool {
		t.Helper()
		again, err := SignOnce(folder, names, at)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Equal(first.pem, again.pem)
	}
	if !same(now.AddDate(0, 0, 89), apiNames) {
		t.Error("a valid certificate was replaced")
	}
	if err := os.Chmod(first.KeyFile, 0o660); err != nil { // volumes may change the permissions of files
		t.Fatal(err)
	}
	if same(now.AddDate(0, 0, 91), apiNames) {
		t.Error("an expired certificate was not replaced")
	}
	if first, err = SignOnce(folder, apiNames, now); err != nil {
		t.Fatal(err)
	}
	if current, err := os.Stat(first.KeyFile); err != nil || current.Mode().Perm() != 0o600 {
		t.Errorf("unexpected mode of the new key %v, %v", current.Mode(), err)
	}
	if same(now, []string{"other"}) {
		t.Error("a certificate for other names was not replaced")
	}
	first, err = SignOnce(folder, apiNames, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.CertFile, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if same(now, apiNames) {
		t.Error("a damaged certificate was not replaced")
	}
}

// TestCertificateRotates verifies that a certificate is renewed while the process is running, and that clients with
// a bundle that is four weeks old, such as agents outside the cluster, can always verify the served certificate.
func TestCertificateRotates(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := SignOnce(t.TempDir(), apiNames, now)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{
		Client: fake.NewClientBuilder().Build(), Namespace: "kubenergy-system", AgentNamespace: "kubenergy-system",
		Certificate: s, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	}
	const step = 6 * time.Hour
	var bundles [][]byte // in chronological order
	serials := map[string]bool{}
	for turn := range 400 * 4 {
		if turn == 250 { // a restart must not change the certificate
			if a.Certificate, err = SignOnce(filepath.Dir(s.CertFile), apiNames, now); err != nil {
				t.Fatal(err)
			}
		}
		// The API server is unavailable on day 60, when the first successor is signed. This day must not count.
		if day := turn / 4; day == 60 {
			if err := a.Certificate.Renew(now); err != nil {
				t.Fatal(err)
			}
		} else if err := a.renewOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		serials[pair.Leaf.SerialNumber.String()] = true
		var m v1.ConfigMap
		if err := a.Client.Get(t.Context(), types.NamespacedName{Namespace: a.Namespace, Name: AuthorityName},
			&m); err != nil {
			t.Fatal(err)
		}
		bundles = append(bundles, []byte(m.Data[authorityKey]))
		for _, bundle := range [][]byte{bundles[max(0, len(bundles)-28*4)], bundles[len(bundles)-1]} {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(bundle)
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: apiNames[1], CurrentTime: now,
			}); err != nil {
				t.Fatalf("%v: a client failed to verify the certificate: %v", now, err)
			}
		}
		now = now.Add(step)
	}
	if n := len(serials); n < 5 || n > 8 {
		t.Errorf("got %d certificates in 400 days", n)
	}
}

// TestCertificateHeals verifies that the published successor is served after an interrupted promotion, the loss of
// files or a long downtime.
func TestCertificateHeals(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, harm := range map[string]func(s *Certificate){
		"between two files": func(s *Certificate) { // the key has already been replaced
			if err := os.Rename(s.next().KeyFile+".copy", s.KeyFile); err != nil {
				t.Fatal(err)
			}
		},
		"removed":       func(s *Certificate) { _ = os.Remove(s.CertFile) },
		"long downtime": func(*Certificate) { now = now.AddDate(0, 0, 31) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := SignOnce(t.TempDir(), apiNames, now)
			if err != nil {
				t.Fatal(err)
			}
			now = now.AddDate(0, 0, 61)
			if err := s.Renew(now); err != nil {
				t.Fatal(err)
			}
			reported := s.successor.pem
			key, err := os.ReadFile(s.next().KeyFile)
			if err == nil {
				err = os.WriteFile(s.next().KeyFile+".copy", key, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			harm(s)
			again, err := SignOnce(filepath.Dir(s.CertFile), apiNames, now)
			if err != nil || !bytes.Equal(again.pem, reported) {
				t.Errorf("the served certificate was not published: %v", err)
			}
			pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
			if err != nil || !holds(pair.Leaf, now) {
				t.Errorf("the served certificate is invalid: %v", err)
			}
		})
	}
}

func TestAuthorityIsPublished(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	api := fake.NewClientBuilder().Build()
	publish := func(own []byte, at time.Time) []byte {
		t.Helper()
		a := &Authority{
			Client: api, Namespace: "kubenergy-system", Certificate: &Certificate{pem: own},
			Now: func() time.Time { return at }, Log: slog.New(slog.DiscardHandler),
		}
		if err := a.publish(t.Context(), a.Namespace); err != nil {
			t.Fatal(err)
		}
		var m v1.ConfigMap
		if err := api.Get(t.Context(), types.NamespacedName{Namespace: "kubenergy-system", Name: AuthorityName},
			&m); err != nil {
			t.Fatal(err)
		}
		return []byte(m.Data[authorityKey])
	}
	newOne := func(at time.Time) []byte {
		t.Helper()
		certificate, _, err := sign(apiNames, at)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
	first, second := newOne(now), newOne(now.AddDate(0, 0, 60))
	if got := publish(first, now); !bytes.Equal(got, first) {
		t.Fatalf("got published bundle %q", got)
	}
	for range 2 { // publishing it again must not change the bundle
		if got := publish(second, now); !bytes.Equal(got, append(bytes.Clone(first), second...)) {
			t.Fatal("the bundle does not contain both certificates")
		}
	}
	m := &v1.ConfigMap{}
	name := types.NamespacedName{Namespace: "kubenergy-system", Name: AuthorityName}
	if err := api.Get(t.Context(), name, m); err != nil {
		t.Fatal(err)
	}
	m.Data["other"] = "kept"
	if err := api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	publish(second, now)
	if err := api.Get(t.Context(), name, m); err != nil || m.Data["other"] != "kept" {
		t.Errorf("another key of the ConfigMap was removed: %v, %v", m.Data, err)
	}
	if got := publish(second, now.AddDate(0, 0, 100)); !bytes.Equal(got, second) {
		t.Error("the bundle contains an expired certificate")
	}
	for range 2 * maxAuthorities {
		last := newOne(now)
		got := publish(last, now)
		if !bytes.HasSuffix(got, last) || bytes.Count(got, []byte("BEGIN")) > maxAuthorities {
			t.Fatal("the bundle is too large or lacks the newest certificate")
		}
	}
}

// TestAuthorityIsToldToAgents verifies that the certificate is published in the agents' namespace as soon as the
// permission exists.
func TestAuthorityIsToldToAgents(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := SignOnce(t.TempDir(), apiNames, now)
	if err != nil {
		t.Fatal(err)
	}
	var refusal error
	api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption,
		) error {
			if key.Namespace == "kubenergy-agent" && refusal != nil {
				return refusal
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	var log bytes.Buffer
	a := &Authority{
		Client: api, Namespace: "kubenergy-system", AgentNamespace: "kubenergy-agent", Certificate: s,
		Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	configMaps := schema.GroupResource{Resource: "configmaps"}
	for _, refusal = range []error{
		errors.New("unavailable"), apierrors.NewForbidden(configMaps, AuthorityName, nil),
		apierrors.NewForbidden(configMaps, AuthorityName, nil), nil,
	} {
		if err := a.renewOnce(t.Context()); (err != nil) != (refusal != nil && !apierrors.IsForbidden(refusal)) {
			t.Errorf("rejected with %v: got error %v", refusal, err)
		}
		var m v1.ConfigMap
		key := types.NamespacedName{Namespace: a.Namespace, Name: AuthorityName}
		if err := api.Get(t.Context(), key, &m); err != nil || m.Data[authorityKey] != string(s.pem) {
			t.Errorf("rejected with %v: own namespace has bundle %q, %v", refusal, m.Data, err)
		}
	}
	var m v1.ConfigMap
	key := types.NamespacedName{Namespace: a.AgentNamespace, Name: AuthorityName}
	if err := api.Get(t.Context(), key, &m); err != nil || m.Data[authorityKey] != string(s.pem) {
		t.Errorf("got bundle %q for agents, %v", m.Data, err)
	}
	if n := strings.Count(log.String(), "level=INFO"); n != 1 || strings.Contains(log.String(), "level=WARN") {
		t.Errorf("unexpected log output:\n%s", &log)
	}
}

// TestTornCertificate verifies that a new certificate is signed if the files are inconsistent, as after a power
// failure. A controller that fails to start would be worse than a new certificate.
func TestTornCertificate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	_, stranger, err := sign(apiNames, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{
		"an empty key": {}, "a torn key": stranger[:len(stranger)/2], "the key of another pair": stranger,
	} {
		folder := t.TempDir()
		first, err := SignOnce(folder, apiNames, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(first.KeyFile, key, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := SignOnce(folder, apiNames, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := tls.LoadX509KeyPair(again.CertFile, again.KeyFile); err != nil {
			t.Errorf("%s: loading the stored pair: %v", name, err)
		}
		if bytes.Equal(first.pem, again.pem) {
			t.Errorf("%s: the certificate was not replaced", name)
		}
	}
}
