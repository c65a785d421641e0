package delivery

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// A poster makes the requests.
type poster struct {
	client *apiclient.Client
	zip    *gzip.Writer
	// when the controller wants to be asked again; a clock that is set does not move it
	until atomic.Pointer[time.Time]
}

const longestPause = 15 * time.Minute // that a controller can ask for

func newClient(o *PushOptions) (*apiclient.Client, error) {
	return apiclient.New(apiclient.Options{
		URL: o.URL, TokenFile: o.TokenFile, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile,
		UserAgent: "kubenergy-agent", Timeout: o.Timeout, Node: true, Transport: o.transport,
	})
}

// send makes one request and returns the acknowledgement, which is yet to be compared with the batch. What is told of
// the node are headers, where it is not empty. A panic is a failure: what the controller answers does not end
// metering.
func (p *poster) send(ctx context.Context, b *batch.Batch, reported map[string]string) (ack *batch.Ack, err error) {
	defer func() {
		if what := recover(); what != nil {
			p.zip = nil // whatever state it is in
			ack, err = nil, &failure{reason: reasonAnswer, err: fmt.Errorf("that panicked: %v", what)}
		}
	}()
	body, err := p.body(b)
	if err != nil {
		return nil, &failure{reason: reasonRefused, lasting: true, err: err}
	}
	header := map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}
	for name, value := range reported {
		if value != "" {
			header[name] = value
		}
	}
	answer, err := p.client.Do(ctx, &apiclient.Request{
		Method: http.MethodPost, Body: body, Most: batch.MaxAckBytes, Header: header,
	})
	refused, isRefused := errors.AsType[*apiclient.Refused](err)
	switch {
	case isRefused:
		return nil, p.refusal(refused)
	case errors.Is(err, apiclient.ErrToken):
		return nil, &failure{reason: reasonCredentials, err: err}
	case errors.Is(err, apiclient.ErrAnswer):
		return nil, &failure{reason: reasonAnswer, err: err}
	case err != nil:
		return nil, &failure{reason: reasonConnection, lasting: errors.Is(err, apiclient.ErrTrust), err: err}
	case answer.Status != http.StatusOK:
		return nil, p.refusal(&apiclient.Refused{Status: answer.Status})
	}
	ack, err = batch.DecodeAck(answer.Body)
	if err != nil {
		return nil, &failure{reason: reasonAnswer, err: err}
	}
	return ack, nil
}

// body returns a batch as it is sent. It is a new one each time: the connection may still read from that of a request
// that failed.
func (p *poster) body(b *batch.Batch) ([]byte, error) {
	data, err := batch.Encode(b)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(&body, gzip.BestSpeed) // the level is a valid one
	}
	p.zip.Reset(&body)
	_, err = p.zip.Write(data)
	err = errors.Join(err, p.zip.Close())
	return body.Bytes(), err
}

// refusal tells what an answer without an acknowledgement means. It never means that the batch may be dropped.
func (p *poster) refusal(refused *apiclient.Refused) error {
	f := &failure{reason: reasonServer, err: refused}
	switch code := refused.Status; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		f.reason, f.lasting = reasonCredentials, true
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		f.reason = reasonBusy
		f.after = retryAfter(refused.Header.Get("Retry-After"))
		p.until.Store(new(time.Now().Add(f.after)))
	case code == http.StatusConflict:
		f.reason, f.lasting = reasonConflict, true
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		f.reason, f.lasting = reasonRefused, true
	case code >= 300 && code < 400:
		f.lasting = true
		f.err = fmt.Errorf("%w: redirects are not followed; the URL should be the right one", refused)
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

// paused returns an error while the controller has asked to be left alone.
func (p *poster) paused() error {
	until := p.until.Load()
	if until == nil {
		return nil
	}
	if left := time.Until(*until); left > 0 {
		return &failure{
			reason: reasonBusy, after: left,
			err: fmt.Errorf("the controller wants to be asked again in %v", left.Round(time.Second)),
		}
	}
	return nil
}
