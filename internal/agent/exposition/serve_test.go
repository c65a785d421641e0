package exposition

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// start serves on a free port until the end of the test, and returns the address.
func start(t *testing.T, config string, h http.Handler) (address string, stop func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, listener, config, h, slog.New(slog.DiscardHandler)) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return listener.Addr().String(), stop
}

func routes() http.Handler {
	return Routes{
		Metrics: fixture(), Healthy: func() error { return nil }, Forward: func(context.Context) error { return nil },
	}.Handler()
}

func TestServe(t *testing.T) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	address, stop := start(t, "", routes())
	answer, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != 200 || answer.ContentLength != int64(len(body)) ||
		answer.Header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%d, %d bytes, %q, %v", answer.StatusCode, len(body), answer.Header.Get("Content-Type"), err)
	}
	wantConserved(t, parse(t, string(body)))

	large, err := http.NewRequest(http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	large.Header.Set("X", strings.Repeat("x", 2*maxHeaderBytes))
	if answer, err := client.Do(large); err == nil {
		answer.Body.Close()
		if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("large headers: %d", answer.StatusCode)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the server is still listening")
	}
}

// TestServeFinishes verifies that pending responses are completed when the agent stops.
func TestServeFinishes(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	address, stop := start(t, "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-proceed
		_, _ = io.WriteString(w, "all of it")
	}))
	got := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		answer, err := client.Get("http://" + address)
		if err != nil {
			got <- err.Error()
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		got <- string(body)
	}()
	select {
	case <-begun:
	case body := <-got:
		t.Fatalf("got %q before the response", body)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until the listener is closed while the first request is pending
		conn, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		conn.Close()
	}
	close(proceed)
	if body := <-got; body != "all of it" {
		t.Errorf("got %q", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServeRefuses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	broken := write(t, dir, "broken.yml", "tls_server_config: {cert_file: absent.pem, key_file: absent.pem}\n")
	unknown := write(t, dir, "unknown.yml", "tls: {}\n")
	password := write(t, dir, "password.yml", "basic_auth_users: {prometheus: plain}\n")
	for _, o := range []struct{ address, config string }{
		{address: listener.Addr().String()},
		{address: "nowhere"},
		{"127.0.0.1:0", broken},
		{"127.0.0.1:0", unknown},
		{"127.0.0.1:0", password},
		{"127.0.0.1:0", filepath.Join(dir, "absent")},
	} {
		if err := Serve(t.Context(), o.address, o.config, routes(), slog.New(slog.DiscardHandler)); err == nil ||
			!strings.HasPrefix(err.Error(), "serving metrics") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// authority is a certificate authority for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key, a.pem = sign(t, template, nil)
	a.pool.AddCert(a.cert)
	return a
}

// issue returns a certificate and its key in PEM format.
func (a *authority) issue(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	_, private, certificate := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func sign(t *testing.T, template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestAuthentication verifies authentication by password and, after the file has changed, also by client
// certificate.
func TestAuthentication(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	cert, key := ours.issue(t, "worker-1")
	write(t, dir, "tls.crt", cert)
	write(t, dir, "tls.key", key)
	write(t, dir, "ca.crt", ours.pem)
	const hash = "$2a$04$2ubv29t45liYOYEMrwmq2.X1hVNp1PipxOKAaR9cVsIr/6YButztW" // of fakepassword, with minimal cost
	config := write(t, dir, "web.yml", "tls_server_config: {cert_file: tls.crt, key_file: tls.key, min_version: "+
		"TLS13}\nbasic_auth_users: {prometheus: "+hash+"}\n")
	address, _ := start(t, config, routes())

	ask := func(a *authority, client *tls.Certificate, method, path, password string) string {
		settings := &tls.Config{RootCAs: ours.pool, ServerName: "worker-1"}
		if client != nil {
			settings.Certificates = []tls.Certificate{*client}
		}
		if a != nil {
			settings.RootCAs = a.pool
		}
		transport := &http.Transport{TLSClientConfig: settings}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequest(method, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			r.SetBasicAuth("prometheus", password)
		}
		answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(r)
		if err != nil {
			return "no response"
		}
		defer answer.Body.Close()
		return strconv.Itoa(answer.StatusCode)
	}
	want := func(got, want, what string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	want(ask(nil, nil, "GET", "/metrics", "fakepassword"), "200", "with the password")
	want(ask(nil, nil, "POST", "/forward-metrics", "fakepassword"), "200", "delivery with the password")
	want(ask(nil, nil, "GET", "/metrics", "wrong"), "401", "with a wrong password")
	want(ask(nil, nil, "GET", "/metrics", ""), "401", "without a password")
	want(ask(nil, nil, "POST", "/forward-metrics", ""), "401", "delivery without a password")
	want(ask(theirs, nil, "GET", "/metrics", "fakepassword"), "no response", "with another trusted authority")
	if answer, err := http.Get("http://" + address + "/metrics"); err == nil {
		answer.Body.Close()
		want(strconv.Itoa(answer.StatusCode), "400", "without TLS")
	}

	pair := func(a *authority, name string) *tls.Certificate {
		cert, key := a.issue(t, name)
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return &pair
	}
	write(t, dir, "web.yml",
		"tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_auth_type: RequireAndVerifyClientCert, "+
			"client_ca_file: ca.crt, client_allowed_sans: [prometheus]}\n")
	want(ask(nil, pair(ours, "prometheus"), "GET", "/metrics", ""), "200", "with a certificate")
	want(ask(nil, pair(ours, "somebody"), "GET", "/metrics", ""), "no response", "with a certificate of another client")
	want(ask(nil, pair(theirs, "prometheus"), "GET", "/metrics", ""), "no response",
		"with a certificate of another authority")
	want(ask(nil, nil, "GET", "/healthz", "fakepassword"), "no response", "without a certificate")

	// A certificate is renewed by replacing the files.
	cert, key = theirs.issue(t, "worker-1")
	write(t, dir, "tls.crt", cert)
	write(t, dir, "tls.key", key)
	want(ask(theirs, pair(ours, "prometheus"), "GET", "/metrics", ""), "200", "with a new certificate of the agent")
	// While the configuration is invalid, all clients are rejected.
	write(t, dir, "web.yml", "basic_auth_users: [\n")
	want(ask(theirs, pair(ours, "prometheus"), "GET", "/metrics", ""), "no response", "with a broken configuration")
}
