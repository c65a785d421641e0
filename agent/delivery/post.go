package delivery

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/energy/batch"
)

// A poster makes the requests.
type poster struct {
	opts   PushOptions
	client *http.Client
	ca     []byte // what the client trusts
	zip    *gzip.Writer
	// when the central unit wants to be asked again; a clock that is set does not move it
	until atomic.Pointer[time.Time]
}

const (
	longestPause = 15 * time.Minute // that a central unit can ask for
	errorBytes   = 200              // of an answer's text that are logged
	maxToken     = 64 << 10
)

func checkURL(opts *PushOptions) error {
	u, err := url.Parse(opts.URL)
	if err != nil {
		return fmt.Errorf("parsing URL: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("URL %q: http or https, with a host", u.Redacted())
	case u.User != nil:
		return errors.New("the URL holds a password: use a token file")
	case (opts.CertFile == "") != (opts.KeyFile == ""):
		return errors.New("a client certificate needs both its file and its key's")
	case u.Scheme == "http" && (opts.TokenFile != "" || opts.CertFile != "" || opts.CAFile != "") &&
		!loopback(u.Hostname()):
		return fmt.Errorf("URL %q: tokens and certificates need https", u.Redacted())
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// send makes one request and returns the acknowledgement, which is yet to be compared with the batch.
func (p *poster) send(ctx context.Context, b *batch.Batch) (*batch.Ack, error) {
	request, err := p.request(ctx, b)
	if err != nil {
		return nil, err
	}
	client, err := p.connect()
	if err != nil {
		return nil, &failure{reason: reasonConnection, lasting: true, err: err}
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, &failure{reason: reasonConnection, err: err}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, p.refusal(response)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, batch.MaxAckBytes+1))
	if err != nil {
		return nil, &failure{reason: reasonAnswer, err: fmt.Errorf("reading acknowledgement: %w", err)}
	}
	ack, err := batch.DecodeAck(data)
	if err != nil {
		return nil, &failure{reason: reasonAnswer, err: err}
	}
	return ack, nil
}

func (p *poster) request(ctx context.Context, b *batch.Batch) (*http.Request, error) {
	data, err := batch.Encode(b)
	if err != nil {
		return nil, &failure{reason: reasonRefused, lasting: true, err: err}
	}
	var body bytes.Buffer // a new one: the connection may still read from that of a request that failed
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(&body, gzip.BestSpeed) // the level is a valid one
	}
	p.zip.Reset(&body)
	if _, err := p.zip.Write(data); err != nil {
		return nil, &failure{reason: reasonRefused, lasting: true, err: err}
	}
	if err := p.zip.Close(); err != nil {
		return nil, &failure{reason: reasonRefused, lasting: true, err: err}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.opts.URL, bytes.NewReader(body.Bytes()))
	if err != nil {
		return nil, &failure{reason: reasonRefused, lasting: true, err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Content-Encoding", "gzip")
	request.Header.Set("User-Agent", "kubenergy-agent")
	if p.opts.TokenFile != "" {
		token, err := readToken(p.opts.TokenFile)
		if err != nil {
			return nil, &failure{reason: reasonCredentials, err: err}
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

func readToken(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading token: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fmt.Errorf("reading token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("reading token: %s holds none", file)
	}
	return token, nil
}

// refusal says what an answer without an acknowledgement means. It never means that the batch may be dropped.
func (p *poster) refusal(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, errorBytes)) // what there is of it
	f := &failure{reason: reasonServer, err: fmt.Errorf("%s: %q", response.Status, text)}
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		f.reason, f.lasting = reasonCredentials, true
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		f.reason = reasonBusy
		f.after = retryAfter(response.Header.Get("Retry-After"))
		until := time.Now().Add(f.after)
		p.until.Store(&until)
	case code == http.StatusConflict:
		f.reason, f.lasting = reasonConflict, true
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		f.reason, f.lasting = reasonRefused, true
	case code >= 300 && code < 400:
		// Following it would show the token to whoever is named there.
		f.lasting = true
		f.err = fmt.Errorf("%s: redirects are not followed; the URL should be the right one", response.Status)
	}
	return f
}

// retryAfter reads the header, which holds seconds or a date.
func retryAfter(value string) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, longestPause)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(time.Until(at), 0), longestPause)
	}
	return 0
}

// paused returns an error while the central unit has asked to be left alone.
func (p *poster) paused() error {
	until := p.until.Load()
	if until == nil {
		return nil
	}
	if left := time.Until(*until); left > 0 {
		return &failure{
			reason: reasonBusy, after: left, err: fmt.Errorf("the central unit wants to be asked again in %v",
				left.Round(time.Second)),
		}
	}
	return nil
}

// connect returns a client that trusts what the CA file holds now.
func (p *poster) connect() (*http.Client, error) {
	var ca []byte
	if p.opts.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(p.opts.CAFile); err != nil {
			return nil, fmt.Errorf("reading CA certificates: %w", err)
		}
	}
	if p.client != nil && bytes.Equal(ca, p.ca) {
		return p.client, nil
	}
	transport := p.opts.transport
	if transport == nil {
		t := &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    p.opts.Timeout,
			MaxIdleConns:           1,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 32 << 10,
		}
		if err := p.trust(t.TLSClientConfig, ca); err != nil {
			return nil, err
		}
		transport = t
	}
	p.close()
	p.client, p.ca = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, ca
	return p.client, nil
}

func (p *poster) trust(config *tls.Config, ca []byte) error {
	if p.opts.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return fmt.Errorf("reading CA certificates: %s holds none", p.opts.CAFile)
		}
	}
	if p.opts.CertFile != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(p.opts.CertFile, p.opts.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("reading client certificate: %w", err)
			}
			return &certificate, nil
		}
	}
	return nil
}

func (p *poster) close() {
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}
