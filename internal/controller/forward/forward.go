// Package forward sends the usage records of this cluster to the controller of its federation with exactly-once
// semantics. A record is added to the store's outbox in the same transaction that commits it to the ledger, and
// remains there until the federation acknowledges it. The federation detects duplicates by the sequence numbers of
// each stream. Only a single Forwarder may run, in the process that writes the ledger.
//
// Records are sent in order of age. If the federation rejects a record of a stream, the remaining records of that
// stream are skipped until the next pass over the outbox. Other streams are not affected.
package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/instrument"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Options configures a Forwarder.
type Options struct {
	URL       string // URL of the federation's controller
	Cluster   string // name of this cluster in the federation
	TokenFile string
	CAFile    string // defaults to the system's CA certificates
	// Most is the maximum number of records in the outbox. If it is exceeded, the oldest records are dropped,
	// counted and logged.
	Most       int64
	Outbox     func() (ledger.Outbox, error)
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil disables metrics

	Transport http.RoundTripper // for testing only
}

const (
	maxBytes    = 1 << 20 // maximum size of a request with several records, compressed
	maxAnswer   = 1 << 20
	timeout     = time.Minute
	lookEvery   = time.Second // polling interval of the outbox
	passEvery   = time.Minute
	longestRest = 15 * time.Minute // upper limit of Retry-After
	more        = 16               // additional records in the next request after a success
)

// A Forwarder sends the records of an outbox. Its methods must not be called concurrently.
type Forwarder struct {
	o      Options
	client *apiclient.Client

	after   int64           // last number processed in this pass
	began   time.Time       // start of this pass
	resting map[string]bool // streams with a rejected record in this pass
	most    int             // maximum records of the next request
	wait    time.Duration   // time to wait before the next step

	backlog, oldest prometheus.Gauge
	sent, dropped   prometheus.Counter
	failures        *prometheus.CounterVec
}

// New validates the options and returns a Forwarder. Files are read with each request and may be created later.
func New(o Options) (*Forwarder, error) {
	client, err := apiclient.New(apiclient.Options{
		URL: o.URL, TokenFile: o.TokenFile, CAFile: o.CAFile, UserAgent: "kubenergy-controller", Timeout: timeout,
		Node: true, Transport: o.Transport,
	})
	if err != nil {
		return nil, fmt.Errorf("--forward-to: %w", err)
	}
	with := instrument.With(o.Registerer)
	return &Forwarder{
		o: o, client: client, most: api.MaxForwarded,
		backlog: with.Gauge("kubenergy_forward_backlog", "Upper bound of unacknowledged records."),
		oldest: with.Gauge("kubenergy_forward_oldest_timestamp_seconds",
			"Time of the oldest record that the federation has not acknowledged, 0 if there is none."),
		sent: with.Counter("kubenergy_forward_bookings_total", "Records acknowledged by the federation."),
		dropped: with.Counter("kubenergy_forward_dropped_total",
			"Records that were dropped because the outbox was full or they were corrupted on disk."),
		failures: with.Counters("kubenergy_forward_failures_total",
			"Failed requests to the federation and records that it rejected, by reason.", "reason"),
	}, nil
}

// Run forwards records until ctx is done. It always returns nil.
func (f *Forwarder) Run(ctx context.Context) error {
	apiclient.Keep(ctx, func(ctx context.Context) bool {
		f.wait = 0
		err := panics.Try(f.o.Log, "forward", "forwarding records", func() error { return f.Step(ctx) })
		if err != nil && ctx.Err() == nil {
			f.o.Log.Warn("Failed to forward records", "url", f.o.URL, "error", err)
		}
		return err == nil
	}, func(ctx context.Context, pause time.Duration) {
		kube.Pause(ctx, max(pause, f.wait))
	})
	f.client.Close()
	return nil
}

// Step sends at most one request.
func (f *Forwarder) Step(ctx context.Context) error {
	box, err := f.o.Outbox()
	if err == nil {
		err = f.measure(ctx, box)
	}
	if err != nil {
		return err
	}
	if time.Since(f.began) > passEvery {
		f.after, f.began, f.resting = 0, time.Now(), map[string]bool{}
	}
	rows, err := box.Outgoing(ctx, f.after, f.most, f.resting)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		f.wait = lookEvery
		return nil
	}
	send, body, damaged, after := f.choose(rows)
	gone := damaged
	if len(send) > 0 {
		refused, err := f.post(ctx, body, len(send))
		if r, ok := errors.AsType[*apiclient.Refused](err); ok &&
			(r.Status == http.StatusBadRequest || r.Status == http.StatusRequestEntityTooLarge) {
			if f.most = len(send) / 2; f.most > 0 { // bisect to find the invalid or oversized record
				return nil
			}
			refused, err = map[int]string{0: err.Error()}, nil
		}
		if err != nil {
			return err
		}
		f.most = min(f.most+more, api.MaxForwarded)
		gone = append(gone, f.booked(send, refused)...)
	}
	if err := box.Sent(ctx, gone); err != nil {
		return err
	}
	if f.after = after; len(damaged) > 0 {
		f.dropped.Add(float64(len(damaged)))
		f.o.Log.Error("Dropped records that were corrupted on disk before they were forwarded", "dropped", len(damaged))
	}
	return nil
}

// choose returns the records to send, their body, the numbers of corrupted records, and the last number processed.
func (f *Forwarder) choose(rows []ledger.Outgoing) (send []ledger.Outgoing, body []byte, damaged []int64, after int64) {
	for _, o := range rows {
		switch {
		case f.resting[o.Stream]:
		case o.Packed == nil:
			damaged = append(damaged, o.Number)
		case len(send) > 0 && len(body)+len(o.Packed) > maxBytes:
			return send, body, damaged, after
		default:
			send, body = append(send, o), append(body, o.Packed...)
		}
		after = o.Number
	}
	return send, body, damaged, after
}

// booked returns the numbers of the acknowledged records and suspends the streams with rejected records.
func (f *Forwarder) booked(send []ledger.Outgoing, refused map[int]string) (numbers []int64) {
	for i, o := range send {
		switch why, not := refused[i]; {
		case !not:
			numbers = append(numbers, o.Number)
		case !f.resting[o.Stream]:
			f.resting[o.Stream] = true
			f.failures.WithLabelValues("refused").Inc()
			f.o.Log.Warn("Federation rejected a record", "stream", o.Stream, "why", why)
		}
	}
	f.sent.Add(float64(len(numbers)))
	return numbers
}

// measure updates the backlog metrics and drops records above the limit.
func (f *Forwarder) measure(ctx context.Context, box ledger.Outbox) error {
	b, err := box.Backlog(ctx, f.o.Most)
	if err != nil {
		return err
	}
	if b.Dropped > 0 {
		f.dropped.Add(float64(b.Dropped))
		f.o.Log.Error("Dropped unacknowledged records because the outbox is full", "dropped", b.Dropped, "kept", b.Kept)
	}
	f.backlog.Set(float64(b.Kept))
	f.oldest.Set(float64(b.Oldest))
	return nil
}

// post sends a request and returns the reasons for rejected lines.
func (f *Forwarder) post(ctx context.Context, body []byte, lines int) (map[int]string, error) {
	answer, err := f.client.Do(ctx, &apiclient.Request{
		Method: http.MethodPost, Path: "/api/v1/clusters/" + f.o.Cluster + "/bookings", Body: body, Most: maxAnswer,
		Header: map[string]string{"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"},
	})
	var said api.Forwarded
	if err == nil {
		err = json.Unmarshal(answer.Body, &said)
	}
	if err == nil && said.Booked+len(said.Refused) != lines {
		err = fmt.Errorf("federation responded for %d of %d records", said.Booked+len(said.Refused), lines)
	}
	if err == nil {
		return said.Refused, nil
	}
	reason := "connection"
	if r, ok := errors.AsType[*apiclient.Refused](err); ok {
		reason = strconv.Itoa(r.Status)
		seconds, _ := strconv.Atoi(r.Header.Get("Retry-After"))
		f.wait = min(time.Duration(max(seconds, 0))*time.Second, longestRest)
	}
	f.failures.WithLabelValues(reason).Inc()
	return nil, err
}
