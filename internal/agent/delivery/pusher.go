package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// PushOptions say where batches go. Zero durations stand for the defaults.
type PushOptions struct {
	URL       string
	TokenFile string // of a bearer token; read before each request, because tokens are rotated
	CAFile    string // of certificates to trust instead of the system's; read anew when it changes
	CertFile  string // of a client certificate and its key; read at each handshake
	KeyFile   string

	Interval time.Duration // between batches; 15 s
	Timeout  time.Duration // of a request; 0: that of package apiclient

	// OnNames, if set, is told the names of pods that an acknowledgement brought, by pod UID. It is called by the
	// goroutine that runs the pusher.
	OnNames func(map[string]batch.Names)

	// Hardware, if set, returns what the node is made of. It is told with the first batch, and each hour again.
	Hardware func() *batch.Hardware
	// Temperature, if set, returns how hot the node is, once for each time that it was read; nil: there is no news.
	Temperature func() *energy.Celsius

	transport http.RoundTripper // of tests
}

// A Pusher sends the batches of a queue, one at a time and the oldest first, until each is acknowledged.
type Pusher struct {
	opts  PushOptions
	queue *Queue
	log   *slog.Logger
	post  poster

	reported time.Time // when the controller was told of the hardware
	wake     chan struct{}
	resting  map[batch.Stream]rest

	mu      sync.Mutex
	waiting []chan error // calls of Push
	stats   PushStats
}

// PushStats say how delivery goes.
type PushStats struct {
	Failures map[string]uint64 // by reason, each of Reasons
	Failing  string            // the reason why the last request failed; "" if it did not
}

// A rest keeps a stream apart whose oldest batch is refused for good, so that others go on.
type rest struct {
	retry backoff
	until time.Time
}

// Reasons of failures, as in metrics.
const (
	reasonConnection  = "connection"  // no answer
	reasonCredentials = "credentials" // 401, 403, or no token to send
	reasonRefused     = "refused"     // 4xx: this batch will never be taken as it is
	reasonConflict    = "conflict"    // 409, or more was acknowledged than was sent
	reasonBusy        = "busy"        // 429, 503
	reasonServer      = "server"      // other answers
	reasonAnswer      = "answer"      // no acknowledgement, or one of something else
)

// Reasons lists what deliveries fail for.
var Reasons = []string{
	reasonConnection, reasonCredentials, reasonRefused, reasonConflict, reasonBusy, reasonServer, reasonAnswer,
}

// NewPusher checks the options. Files are read when they are needed: a token may come later.
func NewPusher(opts PushOptions, queue *Queue, log *slog.Logger) (*Pusher, error) {
	opts.Interval = cmp.Or(opts.Interval, 15*time.Second)
	client, err := newClient(&opts)
	if err != nil {
		return nil, fmt.Errorf("delivery: %w", err)
	}
	return &Pusher{
		opts: opts, queue: queue, log: log,
		post:    poster{client: client},
		wake:    make(chan struct{}, 1),
		resting: map[batch.Stream]rest{},
		stats:   PushStats{Failures: map[string]uint64{}},
	}, nil
}

// Run seals a batch each interval and delivers what is sealed, until the context is done; then it seals what is there
// and tries for a limited time to deliver it. What is not delivered stays in the state directory.
func (p *Pusher) Run(ctx context.Context) {
	var sealing sync.WaitGroup
	sealing.Go(func() { p.sealEachInterval(ctx) })
	p.deliver(ctx)
	sealing.Wait()
	p.finish(context.WithoutCancel(ctx))
	p.post.client.Close()
}

func (p *Pusher) sealEachInterval(ctx context.Context) {
	ticker := time.NewTicker(p.opts.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.queue.Seal()
		case <-ctx.Done():
			return
		}
	}
}

// deliver sends what is sealed; after a failure it waits, longer each time.
func (p *Pusher) deliver(ctx context.Context) {
	var retry backoff
	for ctx.Err() == nil {
		calls := p.calls()
		err := p.drain(ctx, len(calls) > 0)
		for _, call := range calls {
			call <- err
		}
		if err == nil || failureOf(err).lasting {
			retry = backoff{}
			p.wait(ctx, p.queue.ready, p.nextRest())
		} else {
			p.wait(ctx, nil, retry.next(err))
		}
	}
	for _, call := range p.calls() {
		call <- errors.New("the agent is being stopped")
	}
}

// wait returns when there is something to do, at the latest after d.
func (p *Pusher) wait(ctx context.Context, ready <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	case <-p.wake:
	case <-ctx.Done():
	}
}

// nextRest returns the time until a stream's rest is over.
func (p *Pusher) nextRest() time.Duration {
	d := slowWait
	for _, r := range p.resting {
		d = min(d, max(time.Until(r.until), 0))
	}
	return d
}

func (p *Pusher) calls() []chan error {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.waiting
	p.waiting = nil
	return calls
}

// drain delivers all that is sealed. A stream whose batch is refused for good rests and the others go on; all tries the
// resting ones too. It returns the first failure, and stops at one that concerns all streams. While the controller
// wants to be left alone, nothing is sent, not even for a Push.
func (p *Pusher) drain(ctx context.Context, all bool) error {
	if err := p.post.paused(); err != nil {
		return err
	}
	var first error
	passOver := map[batch.Stream]bool{}
	for stream, r := range p.resting {
		passOver[stream] = !all && time.Now().Before(r.until)
	}
	for {
		b := p.queue.next(passOver)
		if b == nil {
			return first
		}
		err := p.send(ctx, b)
		p.note(err)
		if err == nil {
			delete(p.resting, b.Stream)
			continue
		}
		if !failureOf(err).lasting {
			return err
		}
		first = cmp.Or(first, err)
		r := p.resting[b.Stream]
		r.until = time.Now().Add(r.retry.next(err))
		p.resting[b.Stream] = r
		passOver[b.Stream] = true
	}
}

// send delivers one batch.
func (p *Pusher) send(ctx context.Context, b *batch.Batch) error {
	hardware, temperature := "", ""
	if p.opts.Hardware != nil && time.Since(p.reported) >= notifyAgain {
		hardware = batch.EncodeHardware(p.opts.Hardware())
	}
	if p.opts.Temperature != nil {
		temperature = batch.EncodeTemperature(p.opts.Temperature())
	}
	ack, err := p.post.send(ctx, b, map[string]string{
		batch.HardwareHeader: hardware, batch.TemperatureHeader: temperature,
	})
	if err != nil {
		return err
	}
	if hardware != "" {
		p.reported = time.Now()
	}
	if ack.Epoch != b.Stream.Epoch {
		return &failure{reason: reasonAnswer, err: fmt.Errorf("an acknowledgement of epoch %.40q for one of epoch %q",
			ack.Epoch, b.Stream.Epoch)}
	}
	if err := p.queue.acked(b, ack.Acked); err != nil {
		f := &failure{reason: reasonAnswer, err: fmt.Errorf("batch %d, acknowledged %d: %w", b.Last, ack.Acked, err)}
		if errors.Is(err, errNotSent) {
			f.reason, f.lasting = reasonConflict, true
		}
		return f
	}
	if p.opts.OnNames != nil && len(ack.Names) > 0 {
		p.opts.OnNames(ack.Names)
	}
	return nil
}

// note keeps the numbers, and logs when things change.
func (p *Pusher) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.stats.Failing
	if err == nil {
		p.stats.Failing = ""
		if before != "" {
			p.log.Info("batches are delivered again", "url", p.opts.URL)
		}
		return
	}
	reason := failureOf(err).reason
	p.stats.Failures[reason]++
	p.stats.Failing = reason
	if reason != before {
		p.log.Warn("delivering batches", "url", p.opts.URL, "reason", reason, "err", err)
	}
}

// Push seals the open batch and returns when everything is delivered, or with the first failure. Calls at the same time
// share the work. The pusher must be running.
func (p *Pusher) Push(ctx context.Context) error {
	if err := p.queue.sealNow(ctx); err != nil {
		return err
	}
	if err := p.post.paused(); err != nil {
		return err
	}
	done := make(chan error, 1)
	p.mu.Lock()
	p.waiting = append(p.waiting, done)
	p.mu.Unlock()
	poke(p.wake)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("delivering: %w", ctx.Err())
	}
}

// finish is what is done when the agent stops.
func (p *Pusher) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastBatches)
	defer cancel()
	p.queue.Seal()
	var retry backoff
	for {
		err := p.drain(ctx, true)
		if err == nil {
			return
		}
		if !failureOf(err).lasting {
			p.wait(ctx, nil, retry.next(err))
		}
		if failureOf(err).lasting || ctx.Err() != nil {
			p.log.Warn("stopping before everything was delivered",
				"batches", p.queue.Stats().Pending, "inStateDir", p.queue.onDisk(), "err", err)
			return
		}
	}
}

// Stats returns the present numbers.
func (p *Pusher) Stats() PushStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Failures = maps.Clone(s.Failures)
	return s
}

// A failure is why a batch was not delivered.
type failure struct {
	reason  string
	lasting bool          // trying again soon is of no use
	after   time.Duration // when the controller wants to hear of it again; 0 if it did not say
	err     error
}

func (f *failure) Error() string { return f.reason + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failureOf returns the failure that an error is.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{reason: reasonConnection, err: err}
}

// A backoff counts failures in a row and says how long to wait: longer each time, and not all nodes equally long, or a
// controller that comes back would be met by all of them at once.
type backoff struct{ failures int }

const (
	firstWait   = time.Second
	longestWait = time.Minute

	// Between tries of what does not get better by itself.
	firstSlowWait = 30 * time.Second
	slowWait      = 5 * time.Minute

	// Between two times that hardware is told: some is changed while it runs, and a Node may be made anew.
	notifyAgain = time.Hour

	lastBatches = 5 * time.Second // how long these may take after the context is done
)

func (b *backoff) next(err error) time.Duration {
	f, doublings := failureOf(err), min(b.failures, 8)
	b.failures++
	wait := min(firstWait<<doublings, longestWait)
	if f.lasting {
		wait = min(firstSlowWait<<doublings, slowWait)
	}
	wait = wait/2 + rand.N(wait/2)
	if f.after > 0 {
		wait = max(wait, f.after+rand.N(f.after/4+1))
	}
	return wait
}
