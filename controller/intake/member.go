package intake

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kubenergy/kubenergy/central/api"
	"github.com/kubenergy/kubenergy/controller/access"
	"github.com/kubenergy/kubenergy/energy/batch"
	"github.com/kubenergy/kubenergy/ledger"
)

// What a request of a member may hold.
const (
	mostForwardedBytes = 32 << 20
	mostPacked         = 4 << 20 // bytes of it, compressed

	mostUnpacks = 2 // bodies of members in memory
)

// member is what is remembered of a cluster that forwards what it books. A lie of a member reaches no further than its
// own nodes: their names begin with its own, and they draw no more than the configuration says.
type member struct {
	access.Member
	place chan struct{} // of its request: one at a time, so that bookings stay in order
	rate  *rate.Limiter // of bookings
	news  novelties

	mu    sync.Mutex
	nodes [2]*cache.LRUExpireCache // node, by name: with an agent, and without
}

func (h *Handler) addMembers() {
	h.members, h.unpacks = map[string]*member{}, make(chan struct{}, mostUnpacks)
	for name, m := range h.c.Members {
		nodes := func() *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(m.Nodes, clock(h.c.Now)) }
		h.members[name] = &member{
			Member: m, place: make(chan struct{}, 1), nodes: [2]*cache.LRUExpireCache{nodes(), nodes()},
			rate: rate.NewLimiter(rate.Limit(m.Bookings)/60, m.Bookings), //nolint:mnd // seconds of a minute
		}
	}
}

// ServeMember takes what a cluster has booked: POST /api/v1/clusters/{cluster}/bookings. Its caller has made sure that
// the sender may book for the cluster.
func (h *Handler) ServeMember(w http.ResponseWriter, r *http.Request) {
	m := h.members[r.PathValue("cluster")]
	if m == nil {
		access.Answer(w, http.StatusNotFound, "no bookings are taken of this cluster: name it in --members-file")
		return
	}
	reply := h.serveMember(w, r, m)
	h.metrics.batches.WithLabelValues("forwarded_" + reply.result).Inc()
	reply.write(w)
}

func (h *Handler) serveMember(w http.ResponseWriter, r *http.Request, m *member) *reply {
	select {
	case m.place <- struct{}{}:
		defer func() { <-m.place }()
	default:
		return busy(time.Second, "another request of this cluster is not done")
	}
	h.hurry(w)
	packed, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostPacked))
	if err != nil {
		return unreadable(err)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	select {
	case h.unpacks <- struct{}{}:
		defer func() { <-h.unpacks }()
	case <-time.After(busyAfter):
		return busy(busyAfter, "too many bookings at once")
	}
	d, err := m.read(packed)
	switch {
	case errors.Is(err, errMuch):
		return refused("too_large", http.StatusRequestEntityTooLarge, err.Error())
	case err != nil:
		return refused("malformed", http.StatusBadRequest, err.Error())
	case !m.rate.AllowN(h.c.Now(), 1+len(d.errs)):
		return later("busy", http.StatusTooManyRequests, busyAfter, "too many bookings of this cluster in a minute")
	}
	if err := h.bookStreams(r.Context(), m, d); err != nil {
		h.c.Log.Warn("booking what a cluster forwards", "cluster", m.Name, "error", err)
		return busy(readOnlyAfter, "booking fails now")
	}
	var said api.Forwarded
	for line, err := range d.errs {
		if err == nil {
			said.Booked++
		} else {
			said.Refused = append(said.Refused, api.Refused{Line: line, Error: err.Error()})
		}
	}
	body, _ := json.Marshal(said) // texts can always be written
	return &reply{"booked", func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that is gone asks again
	}}
}

// A delivery is a request of a member.
type delivery struct {
	bookings []*ledger.Booking
	errs     []error                // by line: why it will never be booked as it is
	streams  map[batch.Stream][]int // lines
}

var errMuch = fmt.Errorf("a request has at most %d bookings, and %d bytes when it is unpacked", api.MostForwarded,
	mostForwardedBytes)

func (m *member) read(packed []byte) (*delivery, error) {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(zip, mostForwardedBytes+1))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(data) > mostForwardedBytes || len(lines) > api.MostForwarded {
		return nil, errMuch
	}
	d := &delivery{streams: map[batch.Stream][]int{}}
	for i, line := range lines {
		of, booking, err := ledger.Unpack(line, m.Name)
		if of == nil {
			return nil, err
		}
		d.bookings, d.errs = append(d.bookings, booking), append(d.errs, err)
		d.streams[*of] = append(d.streams[*of], i)
	}
	return d, nil
}

// bookStreams books all that can be. An error says that some may be booked later, as they are. The order within a
// stream stays, and nothing is booked behind what is refused: a later number acknowledges all before it.
func (h *Handler) bookStreams(ctx context.Context, m *member, d *delivery) error {
	var all errgroup.Group
	for of, lines := range d.streams {
		all.Go(func() error {
			for i, line := range lines {
				err := d.errs[line]
				if err == nil {
					if err = h.bookForwarded(ctx, m, d.bookings[line]); err != nil && !Permanent(err) {
						return err
					}
				}
				if err != nil {
					h.tell("a booking of a cluster is refused", "cluster", m.Name, "node", of.Node, "error", err)
					for _, rest := range lines[i:] {
						d.errs[rest] = err
					}
					break
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// bookForwarded checks, prices and books what a member has booked.
func (h *Handler) bookForwarded(ctx context.Context, m *member, b *ledger.Booking) error {
	now, bt := h.c.Now(), b.Batch
	n, err := m.node(bt.Stream.Node, b.Agentless, now)
	if err != nil {
		return err
	}
	acked, err := h.acked(ctx, n, bt)
	if err != nil || bt.Last <= acked {
		return err
	}
	undo := func() {}
	if _, known := n.last(&bt.Stream); !known || !b.Agentless {
		var ok bool
		if undo, _, ok = n.begins(bt, now); !ok {
			return fmt.Errorf("%w: too many streams of this node, or gaps in them", ErrRefused)
		}
	}
	h.correct(bt, now)
	if b.Agentless {
		n.envelope.count(now)
	} else if err := n.envelope.recall(ctx, h.c.Ledger, bt.Stream.Node, now); err != nil {
		return err
	}
	done, since, broken := n.envelope.reserve(bt, Limits{MaxPower: m.MaxPower, Cores: DefaultCores}, now)
	if broken != nil {
		h.metrics.breaches.WithLabelValues(broken.limit).Inc()
		return fmt.Errorf("%w: %w", ErrRefused, broken)
	}
	m.name(b, now)
	b.Received, b.NodeSince, b.Rates = now, since, h.c.Rates(bt.Stream.Node, bt.Start, bt.End)
	receipt, err := h.commit(ctx, n, b, done)
	if !receipt.New {
		undo()
	}
	if err == nil && receipt.Booked {
		h.metrics.energy.Add(joules(bt.Measured))
	}
	return err
}

// node returns what is remembered of a node of a member, of which it may name so many in a day.
func (m *member) node(name string, agentless bool, now time.Time) (*node, error) {
	all := m.nodes[0]
	if agentless {
		all = m.nodes[1]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known, _ := all.Get(name)
	n, ok := known.(*node)
	if !ok {
		if len(all.Keys()) >= m.Nodes {
			return nil, fmt.Errorf("%w: cluster %s names more than %d nodes in a day", ErrRefused, m.Name, m.Nodes)
		}
		n = newNode(now)
	}
	all.Add(name, n, noveltiesFor)
	return n, nil
}

// name bounds what a member may name, as each name is a row in the ledger.
func (m *member) name(b *ledger.Booking, now time.Time) {
	for i, c := range b.Consumers {
		if !m.news.admit(b.Batch.Stream.Node, fmt.Sprint(*c), now) {
			b.Consumers[i] = crowd()
		}
	}
}
