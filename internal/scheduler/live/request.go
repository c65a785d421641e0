package live

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
)

const maxBody = 32 << 20

// route is an endpoint of the controller.
type route struct {
	name    string // for metrics and logs
	path    string
	etag    string // of the last valid response
	failing bool   // the last request failed, which has been logged
}

// get sends a request and decodes the response into a value. skew is the offset of the local clock from that of the
// controller, positive if the local clock is ahead. news is false if the response has not changed. Only the first
// of several consecutive failures is logged.
func (f *Feed) get(ctx context.Context, r *route, into any) (skew time.Duration, news bool, err error) {
	skew, news, err = f.fetch(ctx, r, into)
	result := "unchanged"
	switch {
	case err != nil:
		result = "error"
		if ctx.Err() == nil && !r.failing {
			f.log.Warn("Failed to read live power, outdated readings are ignored", "what", r.name, "error", err)
		}
	case news:
		result = "news"
	}
	r.failing = err != nil
	asked.WithLabelValues(r.name, result).Inc()
	return skew, news, err
}

func (f *Feed) fetch(ctx context.Context, r *route, into any) (skew time.Duration, news bool, err error) {
	header := map[string]string{"Accept": "application/json"}
	if r.etag != "" {
		header["If-None-Match"] = r.etag
	}
	answer, err := f.client.Do(ctx, &apiclient.Request{
		Method: http.MethodGet, Path: r.path, Header: header, Most: maxBody,
	})
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("requesting live power: %w", err)
	case answer.Status == http.StatusNotModified:
		return 0, false, nil
	case answer.Status != http.StatusOK:
		return 0, false, fmt.Errorf("requesting live power: unexpected status %d", answer.Status)
	}
	if err := json.Unmarshal(answer.Body, into); err != nil {
		return 0, false, fmt.Errorf("decoding live power: %w", err)
	}
	if r.etag = answer.Header.Get("ETag"); len(r.etag) > longestName {
		r.etag = ""
	}
	return clockSkew(answer.Header.Get("Date"), answer.At), true, nil
}

// clockSkew returns the offset of the local clock from the clock that set the Date header, which has a resolution
// of one second.
func clockSkew(stamp string, answered time.Time) time.Duration {
	at, err := http.ParseTime(stamp)
	if err != nil {
		return 0
	}
	skew := answered.Sub(at)
	if skew >= 0 && skew <= 2*time.Second {
		return 0 // within the resolution of the header and the latency of the response
	}
	return skew
}
