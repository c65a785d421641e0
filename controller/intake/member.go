package intake

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/central/api"
	"github.com/kubenergy/kubenergy/controller/access"
	"github.com/kubenergy/kubenergy/energy/batch"
	"github.com/kubenergy/kubenergy/ledger"
)

// What a request of a member may hold.
const (
	MostForwarded      = 256 // bookings
	mostForwardedBytes = 32 << 20
	mostPacked         = 4 << 20 // bytes of it, compressed

	mostUnpacks = 2             // bodies of members in memory
	mostStream  = MostForwarded // streams of a request that are booked at once: the ledger makes many durable together
)

// member is what is remembered of a cluster that forwards what it books. A lie of a member reaches no further than its
// own nodes: their names begin with its own, and they draw no more than the configuration says.
type member struct {
	access.Member
	place chan struct{} // of its request: one at a time, so that bookings stay in order
	rate  *rate.Limiter // of bookings
	news  novelties

	mu    sync.Mutex
	nodes [2]map[string]*node // by name: with an agent, and without
}

func (h *Handler) addMembers() {
	h.members, h.unpacks = map[string]*member{}, make(chan struct{}, mostUnpacks)
	for name, m := range h.c.Members {
		h.members[name] = &member{
			Member: m, place: make(chan struct{}, 1), nodes: [2]map[string]*node{{}, {}},
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
	lines, err := unpack(packed)
	switch {
	case errors.Is(err, errMuch):
		return refused("too_large", http.StatusRequestEntityTooLarge, err.Error())
	case err != nil:
		return refused("malformed", http.StatusBadRequest, err.Error())
	case !m.rate.AllowN(h.c.Now(), 1+len(lines)):
		return later("busy", http.StatusTooManyRequests, busyAfter, "too many bookings of this cluster in a minute")
	}
	var no refusals
	streams, err := m.read(lines)
	if err != nil {
		return refused("malformed", http.StatusBadRequest, err.Error())
	}
	if err := h.bookStreams(r.Context(), m, streams, &no); err != nil {
		h.c.Log.Warn("booking what a cluster forwards", "cluster", m.Name, "error", err)
		return busy(readOnlyAfter, "booking fails: "+ledger.ErrReadOnly.Error())
	}
	slices.SortFunc(no.all, func(a, b api.Refused) int { return cmp.Compare(a.Line, b.Line) })
	body, _ := json.Marshal(api.Forwarded{Booked: len(lines) - len(no.all), Refused: no.all}) // texts can always be written
	return &reply{"booked", func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that is gone asks again
	}}
}

var errMuch = fmt.Errorf("a request has at most %d bookings, and %d bytes when it is unpacked", MostForwarded,
	mostForwardedBytes)

// unpack returns the lines of a body.
func unpack(packed []byte) ([][]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(zip, mostForwardedBytes+1))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(data) > mostForwardedBytes || len(lines) > MostForwarded {
		return nil, errMuch
	}
	return lines, nil
}

// A forwarded is a line of a request.
type forwarded struct {
	line    int
	booking *ledger.Booking
	err     error // why there is none
}

// refusals collects the lines that are never booked as they are.
type refusals struct {
	mu  sync.Mutex
	all []api.Refused
}

func (r *refusals) add(line int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, api.Refused{Line: line, Error: err.Error()})
}

// read returns the bookings of a request by stream. The order within a stream must stay: what is booked acknowledges
// all that is before it.
func (m *member) read(lines [][]byte) (map[batch.Stream][]forwarded, error) {
	streams := map[batch.Stream][]forwarded{}
	for i, line := range lines {
		of, booking, err := ledger.Unpack(line, m.Name)
		if of == nil {
			return nil, err
		}
		streams[*of] = append(streams[*of], forwarded{i, booking, err})
	}
	return streams, nil
}

// bookStreams books all that can be. An error says that some may be booked later, as they are.
func (h *Handler) bookStreams(ctx context.Context, m *member, streams map[batch.Stream][]forwarded, no *refusals) error {
	var all errgroup.Group
	all.SetLimit(mostStream)
	for of, lines := range streams {
		all.Go(func() error {
			for i, f := range lines {
				err := f.err
				if err == nil {
					err = h.bookForwarded(ctx, m, f.booking)
				}
				if err == nil {
					continue
				}
				if f.booking != nil && !lasting(err) {
					return err
				}
				h.tell("a booking of a cluster is refused", "cluster", m.Name, "node", of.Node, "error", err)
				for _, rest := range lines[i:] {
					no.add(rest.line, err)
				}
				return nil
			}
			return nil
		})
	}
	return all.Wait()
}

// lasting reports whether booking the same again would fail in the same way.
func lasting(err error) bool {
	_, impossible := errors.AsType[*breach](err)
	return impossible || errors.Is(err, ErrRefused) || errors.Is(err, ledger.ErrOverlap) ||
		errors.Is(err, ledger.ErrPartly) || errors.Is(err, ledger.ErrInvalid)
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
		return broken
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
	if n := all[name]; n != nil {
		return n, nil
	}
	if len(all) >= m.Nodes {
		for other, n := range all {
			if now.Sub(n.lastHeard()) > noveltiesFor {
				delete(all, other)
			}
		}
	}
	if len(all) >= m.Nodes {
		return nil, fmt.Errorf("%w: cluster %s names more than %d nodes in a day", ErrRefused, m.Name, m.Nodes)
	}
	n := newNode(now)
	all[name] = n
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
