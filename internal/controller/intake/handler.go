package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A Booker writes bookings and returns the progress of streams. The progress is read first, so that batches that
// are already in the ledger are acknowledged without any further check.
type Booker interface {
	Book(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error)
	Acked(ctx context.Context, s batch.Stream) (acked uint64, known bool, err error)
	// Reported returns the total time that the agent of a node has reported.
	Reported(ctx context.Context, node string) (ledger.Reported, error)
}

// Config is the configuration of a Handler.
type Config struct {
	Ledger    Booker
	Gate      *access.Gate
	Agents    *access.HostTokens // agents outside the cluster; nil if there are none
	AgentUser string             // user of agents in the cluster: system:serviceaccount:NAMESPACE:NAME
	PodIndex  *PodIndex
	// Ready reports whether the caches of the cluster have synced. Until then, agents in the cluster must retry.
	Ready func() bool
	// Rates returns the emissions and the cost of a joule on a node.
	Rates func(node string, from, to time.Time) ledger.Rates
	// Envelope returns the limits of a node. seen is the hardware that the node reported first.
	Envelope func(node string, seen ledger.Seen) Limits
	// Power returns the power state of a node's machine, such as asleep or booting. Nil means that all are awake.
	Power func(node string) string
	// Members are the clusters that forward their bookings to this one. Forward is set if this cluster forwards its
	// bookings.
	Members access.Members
	Forward bool
	// Hardware is called with the hardware that the agent of a node of the cluster reports. It may be nil.
	Hardware func(node string, reported *batch.Hardware)
	// Findings is called with the problems that the agent of a node reports with a batch. It may be nil.
	Findings func(node string, all []string)
	// Known reports whether a node exists. It is not called for nodes that have sent batches.
	Known func(node string) bool

	ReadTimeout time.Duration // for reading a body; defaults to 15 s
	Now         func() time.Time
	Log         *slog.Logger
	Registerer  prometheus.Registerer // nil if metrics are not exported
}

// ErrRefused is the error of an invalid batch. Retrying with the same batch cannot succeed.
var ErrRefused = errors.New("refused")

const (
	// memory is the maximum number of bytes for batches that are read and recorded concurrently. It suffices for
	// 256 batches of the usual size. Rejecting further requests with Retry-After is cheaper than queueing them.
	memory = 192 << 20

	readTimeout   = 15 * time.Second // for a body
	bookTimeout   = 30 * time.Second
	maxConcurrent = 4 // requests per node; the protocol needs one, but clients may time out and retry

	busyAfter     = 5 * time.Second
	readOnlyAfter = 30 * time.Second
	maxRetryAfter = 15 * time.Minute // the maximum that agents respect
)

// A Handler serves POST /api/v1/batches as described in docs/reference/protocol.md. It is safe for concurrent use.
type Handler struct {
	c       Config
	memory  *semaphore.Weighted
	news    nameQuota
	members map[string]*member
	unpacks *semaphore.Weighted // like memory, for members, so that they cannot use the memory of agents
	metrics *metrics
	audit   *rate.Limiter
	unsaid  atomic.Int64 // number of suppressed log lines

	mu    sync.Mutex
	nodes *cache.LRUExpireCache // *node by name
	most  hour                  // of the node that reported the most time
}

type clock func() time.Time

// Now implements [cache.Clock].
func (c clock) Now() time.Time { return c() }

// New returns a Handler without any node state.
func New(c Config) *Handler {
	c.ReadTimeout = cmp.Or(c.ReadTimeout, readTimeout)
	const lines = 20
	h := &Handler{
		c: c, memory: semaphore.NewWeighted(memory),
		nodes: cache.NewLRUExpireCacheWithClock(maxNodes, clock(c.Now)),
		audit: rate.NewLimiter(rate.Every(time.Second), lines), metrics: newMetrics(c.Registerer, c.PodIndex),
		members: map[string]*member{}, unpacks: semaphore.NewWeighted(memory),
	}
	for name, m := range c.Members {
		h.members[name] = &member{
			Member: m, place: make(chan struct{}, 1), nodes: nameQuota{most: m.Nodes},
			rate: rate.NewLimiter(rate.Limit(m.Bookings)/60, m.Bookings), //nolint:mnd // seconds of a minute
		}
	}
	promauto.With(c.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubenergy_ingest_told_ratio",
		Help: "Hours that a node reported within the current or the previous hour, as the maximum of all nodes. " +
			"The value is high if an agent delivers a backlog or reports time that has not passed.",
	}, h.reportedRatio)
	return h
}

// ServeHTTP records a batch and writes the acknowledgement.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.c.Now()
	reply := h.serve(w, r)
	h.metrics.batches.WithLabelValues(reply.result).Inc()
	h.metrics.seconds.Observe(h.c.Now().Sub(began).Seconds())
	reply.write(w)
}

// reply is the response to a request.
type reply struct {
	result string // a label value of the metric
	write  func(http.ResponseWriter)
}

// refused returns the response to an invalid request.
func refused(result string, status int, text string) *reply {
	return &reply{result, func(w http.ResponseWriter) { access.Answer(w, status, text) }}
}

// later returns the response to a request that the client should retry after a delay.
func later(result string, status int, after time.Duration, text string) *reply {
	return &reply{result, func(w http.ResponseWriter) { access.Busy(w, status, after, text) }}
}

func busy(after time.Duration, text string) *reply {
	return later("busy", http.StatusServiceUnavailable, after, text)
}

// stranger returns the response to a request that is not authenticated.
func (h *Handler) stranger(result string, err error) *reply {
	return &reply{result, func(w http.ResponseWriter) { h.c.Gate.Refuse(w, err) }}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *reply {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return refused("malformed", http.StatusMethodNotAllowed, "only POST is allowed")
	}
	h.hurry(w)
	from, no := h.sender(r)
	if no != nil {
		return no
	}
	if wait, ok := h.c.Gate.AdmitAgent(from.node); !ok {
		return later("busy", http.StatusTooManyRequests, wait, "too many requests from this node")
	}
	if !from.outside && !h.c.Ready() {
		return busy(busyAfter, "the controller has not listed all pods yet")
	}
	if reported := r.Header.Get(batch.HardwareHeader); reported != "" && h.c.Hardware != nil && !from.outside {
		h.hardware(from, reported)
	}
	n := h.node(from.node)
	select {
	case n.places <- struct{}{}:
		defer func() { <-n.places }()
	default:
		return busy(time.Second, "too many concurrent requests from this node")
	}
	data, free, no := h.read(w, r, from.node)
	defer free()
	if no != nil {
		return no
	}
	b, err := batch.Decode(data)
	if err != nil {
		return refused("malformed", http.StatusUnprocessableEntity, err.Error())
	}
	var heat *energy.Celsius // optional
	if reported := r.Header.Get(batch.TemperatureHeader); reported != "" {
		if heat, err = batch.DecodeTemperature(reported); err != nil {
			h.logThrottled("Ignored invalid temperature of a node", "node", from.node, "error", err)
		}
	}
	if found, err := batch.DecodeFindings(r.Header.Get(batch.FindingsHeader)); err != nil {
		h.logThrottled("Ignored invalid findings of a node", "node", from.node, "error", err)
	} else if h.c.Findings != nil {
		h.c.Findings(from.node, found)
	}
	return h.bookBatch(r.Context(), from, n, b, heat)
}

// hardware passes on the reported hardware of a node. Invalid data does not affect the batch.
func (h *Handler) hardware(from *sender, reported string) {
	hardware, err := batch.DecodeHardware(reported)
	if err != nil {
		h.logThrottled("Ignored invalid hardware of a node", "node", from.node, "error", err)
		return
	}
	h.c.Hardware(from.node, hardware)
}

// bookBatch records a batch of an authenticated sender and returns the response.
func (h *Handler) bookBatch(ctx context.Context, from *sender, n *node, b *batch.Batch, heat *energy.Celsius) *reply {
	if b.Stream.Node != from.node {
		h.logThrottled("Rejected batch of another node", "node", from.node, "user", from.user,
			"of", b.Stream.Node, "from", from.address)
		return refused("forbidden", http.StatusForbidden, "the token does not belong to node "+b.Stream.Node)
	}
	var names []byte
	receipt, err := h.admit(ctx, n, b, false, func() (receipt ledger.Receipt, err error) {
		receipt, names, err = h.book(ctx, n, b, heat, false)
		return receipt, err
	})
	if err != nil {
		return h.failed(b, err)
	}
	result := "booked"
	if !receipt.Booked {
		result = "again"
	}
	return answered(result, encodeAck(b.Stream.Epoch, receipt.Acked, names))
}

// answered returns a response with a JSON body.
func answered(result string, body []byte) *reply {
	return &reply{result, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the client retries if it has disconnected
	}}
}

// failed returns the response to a batch that was not recorded. The agent keeps the batch.
func (h *Handler) failed(b *batch.Batch, err error) *reply {
	var broken *breach
	var wait throttled
	switch {
	case errors.As(err, &wait):
		h.logThrottled("Throttled node with too many streams or gaps", "node", b.Stream.Node, "boot",
			b.Stream.Boot, "first", b.First)
		return later("streams", http.StatusTooManyRequests, min(time.Duration(wait), maxRetryAfter), err.Error())
	case errors.Is(err, ledger.ErrOverlap), errors.Is(err, ledger.ErrPartly):
		h.logThrottled("Rejected batch that conflicts with the ledger", "node", b.Stream.Node, "first", b.First,
			"last", b.Last, "error", err)
		return refused("conflict", http.StatusConflict, err.Error())
	case errors.As(err, &broken):
		h.logThrottled("Rejected impossible batch", "node", b.Stream.Node, "first", b.First, "last", b.Last,
			"error", err)
		return refused("refused", http.StatusUnprocessableEntity, err.Error())
	case errors.Is(err, ErrRefused), errors.Is(err, ledger.ErrInvalid):
		return refused("refused", http.StatusUnprocessableEntity, err.Error())
	case errors.Is(err, ledger.ErrReadOnly):
		return later("readonly", http.StatusServiceUnavailable, readOnlyAfter, ledger.ErrReadOnly.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return busy(busyAfter, "timeout while writing to the ledger")
	}
	h.c.Log.Error("Failed to record batch", "node", b.Stream.Node, "error", err)
	return refused("error", http.StatusInternalServerError, "recording the batch failed")
}

// Permanent reports whether recording the same batch again would fail with the same error.
func Permanent(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ledger.ErrOverlap) || errors.Is(err, ledger.ErrPartly) ||
		errors.Is(err, ledger.ErrInvalid)
}

// Local records a batch that the controller itself has created. The caller may retry after an error that is not
// [Permanent].
func (h *Handler) Local(ctx context.Context, b *batch.Batch, agentless bool) error {
	if err := b.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	_, _, err := h.book(ctx, h.node(keyOf(b.Stream.Node, agentless)), b, nil, agentless)
	result := "local"
	if err != nil {
		result = "local_failed"
	}
	h.metrics.batches.WithLabelValues(result).Inc()
	return err
}

// Implausible reports whether the power in the last batch of a node deviated too far from the model of its
// hardware.
func (h *Handler) Implausible(name string) bool {
	n := h.known(name)
	return n != nil && n.strange.Load()
}

// logThrottled logs a warning that senders of batches can cause. The rate of these lines is limited to one per
// second, with bursts.
func (h *Handler) logThrottled(text string, args ...any) {
	if !h.audit.Allow() {
		h.unsaid.Add(1)
		return
	}
	if n := h.unsaid.Swap(0); n > 0 {
		args = append(args, "linesLeftOut", n)
	}
	h.c.Log.Warn(text, args...) //nolint:sloglint // the callers' texts are literals
}
