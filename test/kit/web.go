package kit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Insecure returns a client that does not verify certificates, for servers with self-signed certificates.
func Insecure() *http.Client { return client(&tls.Config{InsecureSkipVerify: true}) }

// Trusting returns a client that trusts the certificate authorities in a file.
func Trusting(caFile string) (*http.Client, error) {
	authorities, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s contains no certificates", caFile)
	}
	return client(&tls.Config{RootCAs: roots}), nil
}

func client(c *tls.Config) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: c}}
}

// Get sends a GET request with a bearer token unless token is empty. If the request fails, status is 0 and body
// contains the error.
func Get(ctx context.Context, client *http.Client, url, token string) (status int, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// Metric returns the sum of all series of a metric on a page in the Prometheus text format that have the given
// labels, such as `verb="POST"`. found is false if there is no such series.
func Metric(t testing.TB, page, name string, labels ...string) (sum float64, found bool) {
	t.Helper()
lines:
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue lines
			}
		}
		fields := strings.Fields(rest[strings.LastIndex(rest, "}")+1:])
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum, found = sum+value, true
	}
	return sum, found
}
