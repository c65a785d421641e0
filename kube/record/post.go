package record

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

const (
	path         = "/api/v1/decisions"
	timeout      = 10 * time.Second
	errorBytes   = 200 // of an answer that are logged
	maxFile      = 1 << 20
	maxIdleConns = 2
)

// poster makes the requests. It is used by one goroutine.
type poster struct {
	url, tokenFile, caFile string
	client                 *http.Client
	ca                     []byte // what the client trusts
}

// refusedError is an answer that is no success.
type refusedError struct {
	status  int
	text    string
	lasting bool // the same will not be taken later either
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the central unit answered %d %s: %s", e.status, http.StatusText(e.status), e.text)
}

func newPoster(o *Options) (poster, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return poster{}, errors.New("the URL of the central unit cannot be read") // it may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return poster{}, fmt.Errorf("URL %q: want http or https, and a host", u.Redacted())
	case u.User != nil:
		return poster{}, errors.New("the URL holds a password: use a token file")
	case u.Scheme == "http" && (o.TokenFile != "" || o.CAFile != "") && !loopback(u.Hostname()):
		return poster{}, fmt.Errorf("URL %q: tokens and certificates need https", u.Redacted())
	}
	return poster{url: strings.TrimSuffix(u.String(), "/") + path, tokenFile: o.TokenFile, caFile: o.CAFile}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (p *poster) send(ctx context.Context, records []ledger.Record) error {
	body, err := json.Marshal(map[string]any{"decisions": records})
	if err != nil {
		return &refusedError{text: err.Error(), lasting: true} // a number that JSON does not have
	}
	client, err := p.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kubenergy-scheduler")
	if p.tokenFile != "" {
		token, err := readFile(p.tokenFile)
		if err != nil {
			return fmt.Errorf("reading the token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, errorBytes)) // for the log: what there is of it
	status := response.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	lasting := status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
	return &refusedError{status: status, text: strings.ToValidUTF8(strings.Join(strings.Fields(string(text)), " "), "?"), lasting: lasting}
}

// connect returns a client that trusts what the file says now.
func (p *poster) connect() (*http.Client, error) {
	var ca []byte
	if p.caFile != "" {
		var err error
		if ca, err = readFile(p.caFile); err != nil {
			return nil, fmt.Errorf("reading the certificates to trust: %w", err)
		}
	}
	if p.client != nil && bytes.Equal(ca, p.ca) {
		return p.client, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.caFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s holds no certificate", p.caFile)
		}
	}
	p.close()
	p.ca = ca
	p.client = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConns: maxIdleConns, TLSHandshakeTimeout: timeout, IdleConnTimeout: time.Minute,
		},
		// They would show the token to others.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p.client, nil
}

func (p *poster) close() {
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = fmt.Errorf("%s is empty", name)
	}
	return data, err
}
