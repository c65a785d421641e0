package delivery

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// PushOptions configures a Pusher.
type PushOptions struct {
	apiclient.Options // of the client of the controller

	Interval time.Duration // between batches; defaults to 15 s

	// OnNames, if set, is called with the pod names of each acknowledgement, by pod UID. It is called from the
	// goroutine that runs the pusher.
	OnNames func(map[string]batch.Names)

	// Hardware, if set, returns the node's hardware. It is sent with the first batch and then once per hour.
	Hardware func() *batch.Hardware
	// Temperature, if set, returns the node's temperature, or nil if there is no new reading.
	Temperature func() *energy.Celsius
	// Findings, if set, returns the problems found on the node. They are sent with each batch.
	Findings func() []string
}

// Pusher sends the batches of a queue, oldest first and one at a time, until each is acknowledged.
type Pusher struct {
	opts  PushOptions
	queue *Queue
	log   *slog.Logger

	turn     chan struct{} // held while sending; guards the next fields
	client   *apiclient.Client
	zip      *gzip.Writer
	until    time.Time // end of the pause requested by the controller; includes the monotonic clock reading
	reported time.Time // time when the hardware was last sent

	mu      sync.Mutex
	resting map[batch.Stream]rest
	stats   PushStats
}

// PushStats contains statistics of a Pusher.
type PushStats struct {
	Failures map[string]uint64 // number of failures by reason, see Reasons
	Failing  string            // reason of the failure of the last request; empty if it succeeded
}

// rest suspends a stream while its oldest batch is permanently rejected, so that other streams can continue.
type rest struct {
	retry backoff
	until time.Time
}

// Reasons of failures, used as metric labels.
const (
	reasonConnection  = "connection"  // no response
	reasonCredentials = "credentials" // 401, 403, or the token cannot be read
	reasonRefused     = "refused"     // other 4xx: the batch is rejected permanently
	reasonConflict    = "conflict"    // 409, or acknowledgement of batches that were not sent
	reasonBusy        = "busy"        // 429, 503
	reasonServer      = "server"      // other status codes
	reasonAnswer      = "answer"      // invalid or unexpected acknowledgement
)

// Reasons lists all reasons of delivery failures.
var Reasons = []string{
	reasonConnection, reasonCredentials, reasonRefused, reasonConflict, reasonBusy, reasonServer, reasonAnswer,
}

// NewPusher validates the options and returns a Pusher. It does not require the credential files to exist yet,
// because they are read for each request.
func NewPusher(opts PushOptions, queue *Queue, log *slog.Logger) (*Pusher, error) {
	opts.Interval = cmp.Or(opts.Interval, 15*time.Second)
	opts.UserAgent, opts.Node = "kubenergy-agent", true
	client, err := apiclient.New(opts.Options)
	if err != nil {
		return nil, fmt.Errorf("delivery: %w", err)
	}
	return &Pusher{
		opts: opts, queue: queue, log: log, client: client,
		turn:    make(chan struct{}, 1),
		resting: map[batch.Stream]rest{},
		stats:   PushStats{Failures: map[string]uint64{}},
	}, nil
}

// Run seals a batch per interval and delivers sealed batches until ctx is done. It then seals the open batch and
// tries for a limited time to deliver all batches. Undelivered batches remain in the state directory.
func (p *Pusher) Run(ctx context.Context) {
	var sealing sync.WaitGroup
	sealing.Go(func() { p.sealEachInterval(ctx) })
	p.deliver(ctx)
	sealing.Wait()
	p.finish(context.WithoutCancel(ctx))
	p.client.Close()
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

// deliver sends sealed batches until ctx is done. It retries failures with exponential backoff.
func (p *Pusher) deliver(ctx context.Context) {
	var retry backoff
	for ctx.Err() == nil {
		err := p.drain(ctx, false)
		if err == nil || failureOf(err).lasting {
			retry = backoff{}
			p.wait(ctx, p.queue.ready, p.nextRest())
		} else {
			p.wait(ctx, nil, retry.next(err))
		}
	}
}

// wait returns when a batch is ready, d has elapsed, or ctx is done.
func (p *Pusher) wait(ctx context.Context, ready <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// nextRest returns the time until the next suspended stream is retried.
func (p *Pusher) nextRest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := slowWait
	for _, r := range p.resting {
		d = min(d, max(time.Until(r.until), 0))
	}
	return d
}

// drain delivers all sealed batches. A stream with a permanently rejected batch is suspended, and the other streams
// continue. If all is true, suspended streams are retried too. drain returns the first failure, and stops at a
// failure that affects all streams. During a pause that the controller requested, it sends no batches, even if Push
// was called. Concurrent calls send one after the other.
func (p *Pusher) drain(ctx context.Context, all bool) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return fmt.Errorf("delivering: %w", ctx.Err())
	}
	if left := time.Until(p.until); left > 0 {
		return &failure{
			reason: reasonBusy, after: left,
			err: fmt.Errorf("the controller requested to retry in %v", left.Round(time.Second)),
		}
	}
	var first error
	passOver := map[batch.Stream]bool{}
	p.mu.Lock()
	for stream, r := range p.resting {
		passOver[stream] = !all && time.Now().Before(r.until)
	}
	p.mu.Unlock()
	for {
		b := p.queue.next(passOver)
		if b == nil {
			return first
		}
		err := p.send(ctx, b)
		if err != nil && ctx.Err() != nil {
			return err // the client of Push disconnected, or the agent is stopping
		}
		p.note(b.Stream, err)
		if err != nil && !failureOf(err).lasting {
			return err
		}
		first = cmp.Or(first, err)
		passOver[b.Stream] = err != nil
	}
}

// send delivers one batch.
func (p *Pusher) send(ctx context.Context, b *batch.Batch) error {
	header := map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}
	if p.opts.Hardware != nil && time.Since(p.reported) >= notifyAgain {
		header[batch.HardwareHeader] = batch.EncodeHardware(p.opts.Hardware())
	}
	if p.opts.Temperature != nil {
		header[batch.TemperatureHeader] = batch.EncodeTemperature(p.opts.Temperature())
	}
	if p.opts.Findings != nil {
		header[batch.FindingsHeader] = batch.EncodeFindings(p.opts.Findings())
	}
	maps.DeleteFunc(header, func(_, value string) bool { return value == "" })
	ack, err := p.post(ctx, b, header)
	if err != nil {
		return err
	}
	if header[batch.HardwareHeader] != "" {
		p.reported = time.Now()
	}
	if ack.Epoch != b.Stream.Epoch {
		return &failure{reason: reasonAnswer, err: fmt.Errorf("acknowledgement of epoch %.40q, want epoch %q",
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

// note updates the statistics, suspends a stream after a lasting failure, and logs changes of the failure reason.
func (p *Pusher) note(stream batch.Stream, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.stats.Failing
	if err == nil {
		p.stats.Failing = ""
		delete(p.resting, stream)
		if before != "" {
			p.log.Info("Resumed delivery of batches", "url", p.opts.URL)
		}
		return
	}
	if failureOf(err).lasting {
		r := p.resting[stream]
		r.until = time.Now().Add(r.retry.next(err))
		p.resting[stream] = r
	}
	reason := failureOf(err).reason
	p.stats.Failures[reason]++
	p.stats.Failing = reason
	if reason != before {
		p.log.Warn("Failed to deliver batches", "url", p.opts.URL, "reason", reason, "err", err)
	}
}

// Push seals the open batch and delivers all batches. It returns the first failure.
func (p *Pusher) Push(ctx context.Context) error {
	if err := p.queue.sealNow(ctx); err != nil {
		return err
	}
	return p.drain(ctx, true)
}

// finish seals the open batch and tries to deliver all batches before the agent stops.
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
			p.log.Warn("Stopped before all batches were delivered",
				"batches", p.queue.Stats().Pending, "inStateDir", p.queue.onDisk(), "err", err)
			return
		}
	}
}

// Stats returns the current statistics.
func (p *Pusher) Stats() PushStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Failures = maps.Clone(s.Failures)
	return s
}

// failure is the error of a failed delivery.
type failure struct {
	reason  string
	lasting bool          // an early retry cannot succeed
	after   time.Duration // pause requested by the controller; 0 if none
	err     error
}

func (f *failure) Error() string { return f.reason + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failureOf returns the failure in the chain of err. Other errors are treated as connection failures.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{reason: reasonConnection, err: err}
}

// backoff computes exponential backoff with jitter for consecutive failures. The jitter prevents all nodes from
// sending requests at the same time when the controller becomes available again.
type backoff struct{ failures int }

const (
	firstWait   = time.Second
	longestWait = time.Minute

	// Limits of the backoff of lasting failures.
	firstSlowWait = 30 * time.Second
	slowWait      = 5 * time.Minute

	// Interval at which the hardware is sent again, because it may be changed at runtime and the Node object may be
	// recreated.
	notifyAgain = time.Hour

	lastBatches = 5 * time.Second // timeout for the final deliveries after ctx is done
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
