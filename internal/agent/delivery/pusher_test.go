package delivery

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// wire calls a handler without a network, which allows tests to use fake time.
type wire struct{ handler http.Handler }

func (w wire) RoundTrip(r *http.Request) (response *http.Response, err error) {
	defer func() {
		if recover() != nil {
			err = io.ErrUnexpectedEOF
		}
	}()
	recorder := httptest.NewRecorder()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		w.handler.ServeHTTP(recorder, r)
	}()
	select {
	case failed := <-done:
		if failed != nil {
			return nil, io.ErrUnexpectedEOF
		}
		return recorder.Result(), nil
	case <-r.Context().Done():
		<-done
		return nil, r.Context().Err()
	}
}

// metered is a node that runs ticks in fake time and delivers to a sink.
type metered struct {
	t      *testing.T
	sink   sinktest.Sink
	queue  *Queue
	pusher *Pusher
	at     time.Duration
	used   energy.Microjoules
	names  atomic.Pointer[map[string]batch.Names]
}

func meter(t *testing.T, q QueueOptions, p PushOptions) *metered {
	q.Node, q.Boot = "node1", "boot"
	m := &metered{t: t, at: time.Minute}
	var err error
	if m.queue, err = OpenQueue(q, quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.queue.Close() })
	p.URL, p.Transport = "http://sink.example/batches", wire{&m.sink}
	p.OnNames = func(names map[string]batch.Names) { m.names.Store(&names) }
	if m.pusher, err = NewPusher(p, m.queue, quiet); err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs the pusher while during is executed.
func (m *metered) run(during func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(m.t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { m.pusher.Run(ctx) })
	during(ctx)
	cancel()
	wait.Wait()
}

func (m *metered) tick() {
	m.t.Helper()
	a := &energy.Attribution{
		Start: m.at, End: m.at + time.Second, Measured: 1000, Unknown: 100,
		Shares: []energy.Share{{ID: "pod/a/1", Dynamic: 900}},
	}
	if err := m.queue.Add(a, Meta{Wall: time.Now(), Source: "package (rapl)", IdlePolicy: "requests"}); err != nil {
		m.t.Fatal(err)
	}
	m.at = a.End
	m.used += 1000
	if err := m.queue.Save([]byte("state")); err != nil {
		m.t.Fatal(err)
	}
}

func (m *metered) seconds(n int) {
	for range n {
		bubble.Advance(time.Second)
		m.tick()
	}
}

// exact reports an error unless all energy was recorded exactly once.
func (m *metered) exact() {
	m.t.Helper()
	total := m.sink.Totals()
	if total.Measured != m.used || total.Consumers["pod/a/1"] != m.used/10*9 || m.sink.Breaches() != nil ||
		total.Gaps != 0 {
		m.t.Errorf("used %d µJ, recorded %+v, breaches %v", m.used, total, m.sink.Breaches())
	}
}

func TestPushEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, QueueOptions{Dir: t.TempDir()}, PushOptions{})
		m.sink.Names = map[string]batch.Names{"a": {
			Namespace: "shop", Pod: "web-0",
			Containers: map[string]string{"1": "web"},
		}}
		m.run(func(context.Context) { m.seconds(100) })
		m.exact()
		if n := m.sink.Requests(); n != 7 { // six intervals and the final batch
			t.Errorf("%d requests", n)
		}
		if names := m.names.Load(); names == nil || !cmp.Equal(*names, m.sink.Names) {
			t.Errorf("names %v", names)
		}
		if s := m.pusher.Stats(); s.Failing != "" || len(s.Failures) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestPushAfterAnHour covers an hour without a controller in which the response to the first batch is lost.
func TestPushAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, QueueOptions{Dir: t.TempDir(), MaxBatches: 32}, PushOptions{})
		began := time.Now()
		m.sink.Fault = func(n int) sinktest.Fault {
			if time.Since(began) < time.Hour {
				return sinktest.Fault{Cut: true, Booked: n == 0}
			}
			return sinktest.Fault{}
		}
		m.run(func(context.Context) {
			m.seconds(3600)
			if s := m.queue.Stats(); s.Pending > 32 || s.Folded < 200 || s.Age < 59*time.Minute {
				t.Errorf("%+v", s)
			}
			if n := m.sink.Requests(); n > 140 {
				t.Errorf("%d requests in an hour without a response", n)
			}
			m.seconds(120)
		})
		m.exact()
		if f := m.pusher.Stats().Failures; f[reasonConnection] < 50 {
			t.Errorf("%v", f)
		}
	})
}

// TestFailures verifies that a batch is kept until it is acknowledged, regardless of the sink's response.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		fault  sinktest.Fault
		reason string
		within time.Duration // maximum time until the next attempt
		after  time.Duration
	}{
		"no connection":     {sinktest.Fault{Cut: true}, reasonConnection, 2 * time.Second, 0},
		"answer lost":       {sinktest.Fault{Cut: true, Booked: true}, reasonConnection, 2 * time.Second, 0},
		"slow":              {sinktest.Fault{Delay: 30 * time.Second}, reasonConnection, 32 * time.Second, 0},
		"500":               {sinktest.Fault{Status: 500}, reasonServer, 2 * time.Second, 0},
		"500 after booking": {sinktest.Fault{Status: 500, Booked: true}, reasonServer, 2 * time.Second, 0},
		"408":               {sinktest.Fault{Status: 408}, reasonServer, 2 * time.Second, 0},
		"429": {
			sinktest.Fault{Status: 429, RetryAfter: 100},
			reasonBusy, 126 * time.Second,
			100 * time.Second,
		},
		"503": {sinktest.Fault{Status: 503}, reasonBusy, 2 * time.Second, 0},
		"503 for a day": {
			sinktest.Fault{Status: 503, RetryAfter: 86400},
			reasonBusy, 1126 * time.Second,
			900 * time.Second,
		},
		"400":            {sinktest.Fault{Status: 400}, reasonRefused, 31 * time.Second, 15 * time.Second},
		"413":            {sinktest.Fault{Status: 413}, reasonRefused, 31 * time.Second, 15 * time.Second},
		"422":            {sinktest.Fault{Status: 422}, reasonRefused, 31 * time.Second, 15 * time.Second},
		"409":            {sinktest.Fault{Status: 409}, reasonConflict, 31 * time.Second, 15 * time.Second},
		"401":            {sinktest.Fault{Status: 401}, reasonCredentials, 31 * time.Second, 15 * time.Second},
		"403":            {sinktest.Fault{Status: 403}, reasonCredentials, 31 * time.Second, 15 * time.Second},
		"301":            {sinktest.Fault{Status: 301}, reasonServer, 31 * time.Second, 15 * time.Second},
		"204":            {sinktest.Fault{Status: 204}, reasonServer, 2 * time.Second, 0},
		"garbage":        {sinktest.Fault{Body: "<html>"}, reasonAnswer, 2 * time.Second, 0},
		"much garbage":   {sinktest.Fault{Body: strings.Repeat(" ", 2<<20)}, reasonAnswer, 2 * time.Second, 0},
		"other epoch":    {sinktest.Fault{Epoch: "other"}, reasonAnswer, 2 * time.Second, 0},
		"nothing booked": {sinktest.Fault{Epoch: "same"}, reasonAnswer, 2 * time.Second, 0},
		"more than was sent": {
			sinktest.Fault{Booked: true, Ahead: 3},
			reasonConflict, 31 * time.Second,
			15 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := meter(t, QueueOptions{}, PushOptions{})
				if c.fault.Epoch == "same" {
					c.fault.Epoch = m.queue.stream.Epoch
				}
				var failed, again time.Time
				m.sink.Fault = func(n int) sinktest.Fault {
					switch n {
					case 0:
						failed = time.Now()
						return c.fault
					case 1:
						again = time.Now()
					}
					return sinktest.Fault{}
				}
				m.run(func(context.Context) {
					m.seconds(1207)
				})
				m.exact()
				if waited := again.Sub(failed); waited < c.after || waited > c.within {
					t.Errorf("retried after %v", waited)
				}
				if s := m.pusher.Stats(); s.Failures[c.reason] != 1 || len(s.Failures) != 1 || s.Failing != "" {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestRefusedStreamRests verifies that a permanently rejected batch of a previous boot does not block other
// streams.
func TestRefusedStreamRests(t *testing.T) {
	dir := t.TempDir()
	n := &node{dir: dir, now: time.Second, trouble: disktrouble{kill: -1}}
	n.start(t.Fatal, false)
	n.now += time.Second
	n.used[0] = 7
	n.add(t.Fatal, noParent)
	n.queue.Save(n.state())
	n.abandon()
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, QueueOptions{Dir: dir}, PushOptions{})
		var taken atomic.Bool
		m.pusher.opts.Transport = wire{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _, err := sinktest.Read(r)
			if err != nil {
				t.Error(err)
			}
			if b.Stream.Boot == "boot-0" && !taken.Load() {
				http.Error(w, "never", http.StatusUnprocessableEntity)
				return
			}
			ack, err := m.sink.Book(b)
			if err != nil {
				t.Error(err)
				return
			}
			data, _ := sinktest.EncodeAck(ack)
			w.Write(data)
		})}
		var err error
		if m.pusher.client, err = apiclient.New(m.pusher.opts.Options); err != nil {
			t.Fatal(err)
		}
		m.run(func(ctx context.Context) {
			m.seconds(600)
			if err := m.pusher.Push(ctx); failureOf(err).reason != reasonRefused {
				t.Errorf("%v", err)
			}
			if total := m.sink.Totals(); total.Measured != m.used || m.pusher.Stats().Failures[reasonRefused] > 8 {
				t.Errorf("recorded %d of %d µJ; %v", total.Measured, m.used, m.pusher.Stats().Failures)
			}
			taken.Store(true)
			bubble.Advance(6 * time.Minute)
			if total := m.sink.Totals(); total.Measured != m.used+7 {
				t.Errorf("recorded %d of %d µJ", total.Measured, m.used+7)
			}
		})
	})
}

func TestPushNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, QueueOptions{Dir: t.TempDir()}, PushOptions{Interval: time.Hour})
		var down atomic.Bool
		m.sink.Fault = func(int) sinktest.Fault {
			if down.Load() {
				return sinktest.Fault{Status: http.StatusTooManyRequests, RetryAfter: 60}
			}
			return sinktest.Fault{}
		}
		m.run(func(ctx context.Context) {
			m.seconds(3)
			var calls sync.WaitGroup
			for range 50 {
				calls.Go(func() {
					if err := m.pusher.Push(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			m.exact()
			if n := m.sink.Requests(); n != 1 {
				t.Errorf("50 calls sent %d requests", n)
			}

			// A batch that is not covered by the saved state is not sent yet.
			m.seconds(1)
			m.queue.mu.Lock()
			m.queue.dirty = true
			m.queue.mu.Unlock()
			calls.Go(func() {
				if err := m.pusher.Push(ctx); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			if n := m.sink.Requests(); n != 1 {
				t.Error("sent a batch that is not covered by the saved state")
			}
			m.queue.Save(nil)
			calls.Wait()
			m.exact()

			down.Store(true)
			m.seconds(1)
			if err := m.pusher.Push(ctx); failureOf(err).reason != reasonBusy {
				t.Errorf("%v", err)
			}
			before := m.sink.Requests()
			if err := m.pusher.Push(ctx); failureOf(err).reason != reasonBusy || m.sink.Requests() != before {
				t.Errorf("sent a request during the pause: %v", err)
			}
			down.Store(false)
			bubble.Advance(time.Minute)
			if err := m.pusher.Push(ctx); err != nil {
				t.Error(err)
			}
			m.exact()
			short, cancel := context.WithCancel(ctx)
			cancel()
			if err := m.pusher.Push(short); !errors.Is(err, context.Canceled) && err != nil {
				t.Error(err)
			}
		})
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, QueueOptions{}, PushOptions{Interval: time.Hour})
		m.sink.Fault = func(n int) sinktest.Fault { return sinktest.Fault{Cut: n < 2} }
		m.run(func(context.Context) { m.seconds(10) })
		m.exact()

		m = meter(t, QueueOptions{}, PushOptions{Interval: time.Hour})
		m.sink.Fault = func(int) sinktest.Fault { return sinktest.Fault{Delay: time.Hour} }
		began := time.Now()
		m.run(func(context.Context) { m.seconds(10) })
		if m.queue.Stats().Pending != 1 {
			t.Error("the batch was dropped")
		}
		t.Logf("stopped after %v", time.Since(began)-10*time.Second)
	})
}

// TestPauseHolds verifies that a Push during a request that is answered with a pause does not cause another request
// within the pause, and that the nodes do not all retry at the same time when the pause ends.
func TestPauseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, QueueOptions{}, PushOptions{Interval: time.Hour})
		var requests []time.Time
		m.sink.Fault = func(n int) sinktest.Fault {
			requests = append(requests, time.Now())
			if n == 0 {
				return sinktest.Fault{Delay: 5 * time.Second, Status: http.StatusTooManyRequests, RetryAfter: 100}
			}
			return sinktest.Fault{}
		}
		m.run(func(ctx context.Context) {
			m.seconds(1)
			var calls sync.WaitGroup
			push := func() {
				if err := m.pusher.Push(ctx); failureOf(err).reason != reasonBusy {
					t.Errorf("%v", err)
				}
			}
			calls.Go(push)
			bubble.Advance(time.Second)
			calls.Go(push)
			calls.Wait()
			bubble.Advance(200 * time.Second)
		})
		m.exact()
		if len(requests) != 2 {
			t.Fatalf("%d requests", len(requests))
		}
		if waited := requests[1].Sub(requests[0]); waited < 105*time.Second {
			t.Errorf("retried after %v, want at least 100 s", waited)
		}
		different := map[time.Duration]bool{}
		for range 20 {
			different[new(backoff).next(&failure{reason: reasonBusy, after: time.Minute, err: io.EOF})] = true
		}
		if len(different) < 2 {
			t.Error("all nodes retry at the same time")
		}
	})
}

// TestOnDisk verifies the log entry about undelivered batches at shutdown.
func TestOnDisk(t *testing.T) {
	for name, c := range map[string]struct {
		disk, broken bool
		seal         bool
		want         bool
	}{
		"saved":                 {disk: true, want: true},
		"sealed":                {disk: true, seal: true, want: true},
		"the save failed":       {disk: true, broken: true},
		"a sealed batch failed": {disk: true, broken: true, seal: true},
		"in memory":             {seal: true},
	} {
		n := &node{now: time.Second, trouble: disktrouble{kill: -1}}
		if c.disk {
			n.dir = t.TempDir()
		}
		n.start(t.Fatal, false)
		for i := range 2 {
			n.now += time.Second
			n.used[0]++
			n.add(t.Fatal, noParent)
			n.trouble.dead = c.broken && i == 1
			n.queue.Save(n.state())
		}
		if c.seal {
			n.queue.Seal()
		}
		if got := n.queue.onDisk(); got != c.want {
			t.Errorf("%s: onDisk() = %v", name, got)
		}
		n.abandon()
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]apiclient.Options{
		"no host":         {URL: "https:///x"},
		"no scheme":       {URL: "sink/x"},
		"a file":          {URL: "file:///x"},
		"a password":      {URL: "https://me:secret@sink/x"},
		"a token in view": {URL: "http://sink/x", TokenFile: "token"},
		"half a pair":     {URL: "https://sink/x", CertFile: "c"},
		"no URL at all":   {URL: "https://sink\n/x"},
	} {
		if _, err := NewPusher(PushOptions{Options: o}, nil, quiet); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []apiclient.Options{
		{URL: "http://localhost:1/x", TokenFile: "token"},
		{URL: "http://[::1]/", TokenFile: "t"},
		{URL: "https://sink/x", TokenFile: "t"},
	} {
		if _, err := NewPusher(PushOptions{Options: o}, nil, quiet); err != nil {
			t.Error(err)
		}
	}
}

// TestCredentials verifies that certificates and tokens can be rotated at runtime.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(file(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sink := &sinktest.Sink{Token: "first"}
	server := httptest.NewUnstartedServer(sink)
	certificate, key := selfSigned(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(certificate)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()

	q, err := OpenQueue(QueueOptions{Node: "node1", Boot: "boot"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPusher(PushOptions{Options: apiclient.Options{
		URL: server.URL, TokenFile: file("token"), CAFile: file("ca"), CertFile: file("cert"), KeyFile: file("key"),
		Timeout: time.Minute,
	}}, q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer p.client.Close()
	at := time.Second
	try := func(want string) {
		t.Helper()
		if err := q.Add(&energy.Attribution{Start: at, End: at + 1, Measured: 1, Unknown: 1},
			Meta{Wall: time.Now(), Source: "s", IdlePolicy: "apart"}); err != nil {
			t.Fatal(err)
		}
		at++
		q.Seal()
		err := p.drain(t.Context(), true)
		if got := failureOf(err).reason; err != nil && got != want || err == nil && want != "" {
			t.Fatalf("got %v, want %q", err, want)
		}
	}
	put("ca", []byte("no certificate"))
	put("token", []byte(" \n"))
	try(reasonCredentials)
	put("token", []byte("first\n"))
	try(reasonConnection)
	put("ca", certificate)
	try(reasonConnection) // a valid certificate of another server
	put("ca", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	try(reasonConnection) // the client certificate is still missing
	put("cert", certificate)
	put("key", key)
	try("")
	sink.Token = "second"
	try(reasonCredentials)
	put("token", []byte("second"))
	try("")
	if got := sink.Totals().Measured; got != 7 {
		t.Errorf("recorded %d µJ", got)
	}
}

func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: []string{"agent"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// TestRedirectsAreNotFollowed verifies that redirects are not followed, because that would expose the token to the
// target.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	q, err := OpenQueue(QueueOptions{Node: "node1", Boot: "boot"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPusher(PushOptions{Options: apiclient.Options{URL: server.URL}}, q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer p.client.Close()
	if err := q.Add(&energy.Attribution{Start: 1, End: 2},
		Meta{Wall: time.Now(), Source: "s", IdlePolicy: "apart"}); err != nil {
		t.Fatal(err)
	}
	q.Seal()
	if err := p.drain(t.Context(), true); err == nil || followed.Load() {
		t.Errorf("error %v, followed redirect: %v", err, followed.Load())
	}
}

// TestAnAnswerThatPanics verifies that a response that causes a panic counts as a failure, and that the batch is
// sent again.
func TestAnAnswerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, QueueOptions{Dir: t.TempDir()}, PushOptions{})
		opts, left := m.pusher.opts, 2
		opts.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if left--; left >= 0 {
				panic("planted")
			}
			return wire{&m.sink}.RoundTrip(r)
		})
		var err error
		if m.pusher.client, err = apiclient.New(opts.Options); err != nil {
			t.Fatal(err)
		}
		m.run(func(context.Context) { m.seconds(60) })
		m.exact()
		if n := m.pusher.Stats().Failures[reasonAnswer]; n != 2 {
			t.Errorf("counted %d failures", n)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestHardwareIsTold verifies that the hardware is sent until the first acknowledgement, and again after an hour.
func TestHardwareIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := meter(t, QueueOptions{}, PushOptions{
			Hardware: func() *batch.Hardware { return &batch.Hardware{Threads: 8 + int(time.Since(began).Hours())} },
		})
		m.sink.Fault = func(n int) sinktest.Fault { return sinktest.Fault{Cut: n == 0} }
		var reported []string
		var lock sync.Mutex
		requests := 0
		m.pusher.client = clientOf(t, wire{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock.Lock()
			defer lock.Unlock()
			requests++
			if value := r.Header.Get(batch.HardwareHeader); value != "" {
				reported = append(reported, time.Since(began).Truncate(time.Minute).String()+" "+value)
			}
			m.sink.ServeHTTP(w, r)
		})})
		m.run(func(context.Context) {
			m.seconds(4800)
		})
		want := []string{`0s {"threads":8}`, `0s {"threads":8}`, `1h0m0s {"threads":9}`}
		if diff := cmp.Diff(want, reported); diff != "" || requests < 300 {
			t.Errorf("%d requests: %s", requests, diff)
		}
		m.exact()
	})
}

// TestTemperatureIsTold verifies that each new temperature reading is sent with a batch.
func TestTemperatureIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := meter(t, QueueOptions{}, PushOptions{
			Temperature: func() *energy.Celsius {
				if minutes := int(time.Since(began).Minutes()); minutes != 1 {
					return new(energy.Celsius(70 + minutes))
				}
				return nil
			},
		})
		reported := map[string]int{}
		var lock sync.Mutex
		m.pusher.client = clientOf(t, wire{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock.Lock()
			defer lock.Unlock()
			reported[r.Header.Get(batch.TemperatureHeader)]++
			m.sink.ServeHTTP(w, r)
		})})
		m.run(func(context.Context) {
			m.seconds(170)
		})
		if len(reported) != 3 || reported["70.0"] < 3 || reported[""] < 3 || reported["72.0"] < 3 {
			t.Errorf("reported: %v", reported)
		}
		m.exact()
	})
}

// TestFindingsAreSent verifies that findings are sent with each batch while there are any.
func TestFindingsAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := meter(t, QueueOptions{}, PushOptions{
			Findings: func() []string { return []string{"a"}[:1-min(1, int(time.Since(began).Minutes()))] },
		})
		reported := map[string]int{}
		var lock sync.Mutex
		m.pusher.client = clientOf(t, wire{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock.Lock()
			defer lock.Unlock()
			reported[r.Header.Get(batch.FindingsHeader)]++
			m.sink.ServeHTTP(w, r)
		})})
		m.run(func(context.Context) { m.seconds(115) })
		if len(reported) != 2 || reported[`["a"]`] < 3 || reported[""] < 3 {
			t.Errorf("reported: %v", reported)
		}
	})
}

func clientOf(t *testing.T, transport http.RoundTripper) *apiclient.Client {
	client, err := apiclient.New(apiclient.Options{URL: "http://sink.example/batches", Node: true, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
