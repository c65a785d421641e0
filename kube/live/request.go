package live

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	mostBody   = 32 << 20
	mostHeader = 32 << 10
	mostToken  = 64 << 10
	mostCA     = 1 << 20
	mostError  = 200 // bytes of an answer's text that are told
)

// route is one thing to ask for.
type route struct {
	caller  *caller
	name    string
	url     string
	etag    string // of the last answer that was understood
	failing bool   // the last request did, and it was said
}

// get asks, and reads the answer into a value. skew is how far our clock is ahead of the other's; news is false if the
// answer is still the last one.
func (r *route) get(ctx context.Context, into any) (skew time.Duration, news bool, err error) {
	defer func() { asked.WithLabelValues(r.name, result(news, err)).Inc() }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return 0, false, fmt.Errorf("asking for live watts: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "kubenergy-scheduler")
	if r.etag != "" {
		request.Header.Set("If-None-Match", r.etag)
	}
	response, err := r.caller.do(request)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	answered := r.caller.c.Now()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		return 0, false, nil
	default:
		text, _ := io.ReadAll(io.LimitReader(response.Body, mostError)) // what there is of it
		return 0, false, fmt.Errorf("asking for live watts: %s: %q", response.Status, text)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostBody+1))
	if err != nil {
		return 0, false, fmt.Errorf("reading live watts: %w", err)
	}
	if len(body) > mostBody {
		return 0, false, fmt.Errorf("reading live watts: more than %d bytes", mostBody)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return 0, false, fmt.Errorf("reading live watts: %w", err)
	}
	if r.etag = response.Header.Get("ETag"); len(r.etag) > longestName {
		r.etag = ""
	}
	return clockSkew(response.Header.Get("Date"), answered), true, nil
}

// clockSkew returns how far our clock is ahead of the one that stamped an answer. Stamps are whole seconds.
func clockSkew(stamp string, answered time.Time) time.Duration {
	at, err := http.ParseTime(stamp)
	if err != nil {
		return 0
	}
	skew := answered.Sub(at)
	if skew >= 0 && skew <= 2*time.Second {
		return 0 // the stamp's resolution, and the way of the answer
	}
	return skew
}

func result(news bool, err error) string {
	switch {
	case err != nil:
		return "error"
	case news:
		return "news"
	}
	return "unchanged"
}

// caller makes the requests.
type caller struct {
	c      Config
	client *http.Client
	ca     []byte // what the client trusts
}

func (c *caller) do(request *http.Request) (*http.Response, error) {
	if c.c.TokenFile != "" {
		token, err := readToken(c.c.TokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for live watts: %w", err)
	}
	return response, nil
}

// connect makes a client that trusts what the CA file holds now.
func (c *caller) connect() error {
	var ca []byte
	if c.c.CAFile != "" {
		var err error
		if ca, err = readFile(c.c.CAFile, mostCA); err != nil {
			return fmt.Errorf("reading CA certificates: %w", err)
		}
	}
	if c.client != nil && bytes.Equal(ca, c.ca) {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.c.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return fmt.Errorf("reading CA certificates: %s holds none", c.c.CAFile)
		}
	}
	c.close()
	c.client, c.ca = &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true,
			MaxIdleConns: 2, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: mostHeader,
		},
		// Following a redirect would show the token to whoever is named there.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, ca
	return nil
}

func (c *caller) close() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}

func readToken(file string) (string, error) {
	data, err := readFile(file, mostToken)
	if err != nil {
		return "", fmt.Errorf("reading token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("reading token: %s holds none", file)
	}
	return token, nil
}

func readFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = errors.New("it is too large")
	}
	return data, err
}
