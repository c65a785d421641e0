package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

var discard = slog.New(slog.DiscardHandler)

// listening serves on a free loopback port.
func listening(t *testing.T, handler http.Handler, config *tls.Config) (address string, stop func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeOn(ctx, listener, handler, config, discard) }()
	t.Cleanup(cancel)
	return listener.Addr().String(), func() error { cancel(); return <-ended }
}

// certified returns the configuration of a server with a certificate, and a pool with its CA.
func certified(t *testing.T) (config *tls.Config, pool *x509.CertPool) {
	t.Helper()
	dir, pool := t.TempDir(), x509.NewCertPool()
	issue(t, dir, "one", pool)
	config, err := Certificates(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), discard)
	if err != nil {
		t.Fatal(err)
	}
	return config, pool
}

func TestServe(t *testing.T) {
	config, pool := certified(t)
	address, stop := listening(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}), config)
	for _, version := range []uint16{tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: version,
		}, ForceAttemptHTTP2: true}
		answer, err := (&http.Client{Transport: transport}).Get("https://" + address)
		if version < tls.VersionTLS12 {
			if err == nil {
				t.Errorf("TLS version %x was accepted, want an error", version)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if string(body) != "HTTP/2.0" {
			t.Errorf("protocol = %s, want HTTP/2.0", body)
		}
		transport.CloseIdleConnections()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestIdleHTTP2 verifies that an HTTP/2 connection without any request, which needs no token, is closed.
func TestIdleHTTP2(t *testing.T) {
	t.Parallel()
	config, pool := certified(t)
	address, _ := listening(t, http.NotFoundHandler(), config)
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const prefaceAndSettings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(c, prefaceAndSettings); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(idleHTTP2 + 20*time.Second))
	began := time.Now()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open after %v", time.Since(began))
	}
	if open := time.Since(began); open < idleHTTP2/2 {
		t.Errorf("the connection was already closed after %v", open)
	}
}

func TestServeLimits(t *testing.T) {
	for _, addr := range []string{
		":0", "0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.org:80", "nowhere", "127.0.0.1.example.org:0",
	} {
		if daemon.Loopback(addr) {
			t.Errorf("Loopback(%q) = true, want false", addr)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:8080", "localhost:1", "127.8.8.8:1"} {
		if !daemon.Loopback(addr) {
			t.Errorf("Loopback(%q) = false, want true", addr)
		}
	}
	config, pool := certified(t)
	address, stop := listening(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}), config)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
	}}
	answer, err := client.Get("https://" + address)
	if err != nil || answer.StatusCode != http.StatusTeapot {
		t.Fatal(answer, err)
	}
	answer.Body.Close()
	r, err := http.NewRequest("GET", "https://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X", strings.Repeat("x", 128<<10))
	if answer, err := client.Do(r); err == nil {
		answer.Body.Close()
		if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("large headers: %d", answer.StatusCode)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := Serve(t.Context(), taken.Addr().String(), http.NotFoundHandler(), config, discard); err == nil {
		t.Error("Serve() on a port in use succeeded, want an error")
	}
}

// TestServeFinishes verifies that an active request is completed during shutdown.
func TestServeFinishes(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	config, pool := certified(t)
	address, stop := listening(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-proceed
		_, _ = io.WriteString(w, "all of it")
	}), config)
	got := make(chan string, 1)
	go func() {
		answer, err := (&http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
		}}).Get("https://" + address)
		if err != nil {
			got <- err.Error()
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		got <- string(body)
	}()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until new connections are refused
		c, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		c.Close()
	}
	close(proceed)
	if body := <-got; body != "all of it" {
		t.Errorf("body = %q, want the complete response", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestCertificateFiles replaces the certificate files with valid and invalid ones.
func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := Certificates(cert, key, discard); err == nil {
		t.Error("Certificates() without files succeeded, want an error")
	}
	for _, pair := range [][2]string{{cert, ""}, {"", key}} {
		if _, err := Certificates(pair[0], pair[1], discard); err == nil {
			t.Error("Certificates() with one file succeeded, want an error")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		issue(t, dir, "one", nil)
		var log strings.Builder
		config, err := Certificates(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		want := func(want string) {
			t.Helper()
			bubble.Advance(time.Second)
			pair, err := config.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := pair.Leaf.Subject.CommonName; got != want {
				t.Errorf("the certificate is %q, want %q", got, want)
			}
		}
		want("one")
		issue(t, dir, "two", nil)
		want("two")
		if err := os.WriteFile(cert, []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
		want("two")
		want("two")
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("the broken file was logged %d times, want once: %s", n, &log)
		}
		issue(t, dir, "three", nil)
		want("three")
	})
}

// issue writes a self-signed certificate.
func issue(t *testing.T, dir, name string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pool != nil {
		pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
}
