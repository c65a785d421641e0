package delivery

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

const longestPause = 15 * time.Minute // maximum pause that a controller can request

// post sends one batch and returns the acknowledgement, which the caller must compare with the batch. A panic is
// returned as a failure, so that an invalid response cannot stop metering.
func (p *Pusher) post(ctx context.Context, b *batch.Batch, header map[string]string) (ack *batch.Ack, err error) {
	defer func() {
		if what := recover(); what != nil {
			p.zip = nil // its state is undefined
			ack, err = nil, &failure{reason: reasonAnswer, err: fmt.Errorf("panic: %v", what)}
		}
	}()
	body, err := p.body(b)
	if err != nil {
		return nil, &failure{reason: reasonRefused, lasting: true, err: err}
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

// body returns the encoded batch. It allocates a new buffer for each request, because the connection may still read
// from the buffer of a failed request.
func (p *Pusher) body(b *batch.Batch) ([]byte, error) {
	data, err := batch.Encode(b)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(&body, gzip.BestSpeed) // the level is valid
	}
	p.zip.Reset(&body)
	_, err = p.zip.Write(data)
	err = errors.Join(err, p.zip.Close())
	return body.Bytes(), err
}

// refusal classifies a response without an acknowledgement. The batch is never dropped because of a response.
func (p *Pusher) refusal(refused *apiclient.Refused) error {
	f := &failure{reason: reasonServer, err: refused}
	switch code := refused.Status; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		f.reason, f.lasting = reasonCredentials, true
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		f.reason = reasonBusy
		f.after = apiclient.RetryAfter(refused.Header, time.Now(), longestPause)
		p.until = time.Now().Add(f.after)
	case code == http.StatusConflict:
		f.reason, f.lasting = reasonConflict, true
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		f.reason, f.lasting = reasonRefused, true
	case code >= 300 && code < 400:
		f.lasting = true
		f.err = fmt.Errorf("%w: redirects are not followed, use the final URL", refused)
	}
	return f
}
