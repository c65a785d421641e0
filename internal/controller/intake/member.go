package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Limits of a request of a member.
const (
	maxForwardedBytes = 32 << 20
	maxPacked         = 4 << 20 // compressed, in bytes
	maxConsumers      = 10 * batch.MaxShares
	maxObjects        = 3*maxConsumers + 4*api.MaxForwarded // in JSON; a consumer and its share are three objects

	maxBooking = 64 // streams of a request that are recorded concurrently
)

// member is the state of a cluster that forwards its bookings. A compromised member can only forge data of its own
// nodes. Their names start with its name, and their power is limited by the configuration.
type member struct {
	access.Member
	place chan struct{} // limits requests to one at a time, so that bookings stay in order
	rate  *rate.Limiter // limits bookings
	nodes nameQuota     // limits the names of nodes
	news  nameQuota     // limits the names of consumers
}

// ServeMember records the bookings of a member. It serves POST /api/v1/clusters/{cluster}/bookings. The caller must
// have verified that the sender may write bookings of the cluster.
func (h *Handler) ServeMember(w http.ResponseWriter, r *http.Request) {
	reply := h.serveMember(w, r, h.members[r.PathValue("cluster")])
	h.metrics.batches.WithLabelValues("forwarded_" + reply.result).Inc()
	reply.write(w)
}

func (h *Handler) serveMember(w http.ResponseWriter, r *http.Request, m *member) *reply {
	if m == nil {
		return refused("unknown", http.StatusNotFound, "the cluster is not a member: add it to --members-file")
	}
	select {
	case m.place <- struct{}{}:
		defer func() { <-m.place }()
	default:
		return busy(time.Second, "another request from this cluster is in progress")
	}
	if m.rate.TokensAt(h.c.Now()) < 1 {
		return later("busy", http.StatusTooManyRequests, busyAfter, "too many bookings per minute from this cluster")
	}
	b := &body{memory: h.unpacks, limit: maxForwardedBytes}
	defer b.free()
	no := h.receive(w, r, b, maxPacked, true, true)
	var lines []*forwarded
	var streams map[batch.Stream][]*forwarded
	if no == nil {
		lines, streams, no = m.unpack(b.data)
	}
	// Rejected requests are charged, too, and large requests are charged like several bookings. If the charge
	// exceeds the remaining tokens, the next request is delayed.
	m.rate.ReserveN(h.c.Now(), min(m.rate.Burst(), max(1+len(lines), cap(b.data)/firstBuffer)))
	if no != nil {
		return no
	}
	var all errgroup.Group
	all.SetLimit(maxBooking)
	for of, lines := range streams {
		all.Go(func() error { return h.bookStream(r.Context(), m, of.Node, lines) })
	}
	if err := all.Wait(); err != nil {
		h.c.Log.Warn("Failed to record forwarded bookings", "cluster", m.Name, "error", err)
		return busy(readOnlyAfter, "recording the bookings failed temporarily")
	}
	said := api.Forwarded{Refused: map[int]string{}}
	for i, l := range lines {
		if l.err != nil {
			said.Refused[i] = l.err.Error()
		}
	}
	said.Booked = len(lines) - len(said.Refused)
	body, _ := json.Marshal(said) // strings can always be encoded
	return answered("booked", body)
}

// A forwarded booking is a line of a request.
type forwarded struct {
	*ledger.Booking
	err error // the reason why it can never be recorded in this form
}

// unpack parses the lines of a body. It returns a response if they exceed a limit or have no stream.
func (m *member) unpack(data []byte) (all []*forwarded, streams map[batch.Stream][]*forwarded, no *reply) {
	tooMany := refused("too_large", http.StatusRequestEntityTooLarge, fmt.Sprintf(
		"a request may contain at most %d bookings and %d consumers", api.MaxForwarded, maxConsumers))
	streams = map[batch.Stream][]*forwarded{}
	objects, newline := 0, []byte("\n")
	for line := range bytes.SplitSeq(bytes.TrimSuffix(data, newline), newline) {
		objects += bytes.Count(line, []byte("{")) // invalid lines count, too
		if objects > maxObjects || len(all) == api.MaxForwarded {
			return nil, nil, tooMany
		}
		of, booking, err := ledger.Unpack(line, m.Name)
		if of == nil {
			return nil, nil, refused("malformed", http.StatusBadRequest, err.Error())
		}
		all = append(all, &forwarded{booking, err})
		streams[*of] = append(streams[*of], all[len(all)-1])
	}
	return all, streams, nil
}

// bookStream records the forwarded bookings of a stream in order. It returns an error if the client should retry.
// It skips all bookings after a rejected one, because a higher number acknowledges all lower numbers.
func (h *Handler) bookStream(ctx context.Context, m *member, node string, lines []*forwarded) error {
	for i, l := range lines {
		if l.err == nil {
			l.err = errPanicked
			panics.Survive(h.c.Log, "intake", "a forwarded booking", func() {
				l.err = h.bookForwarded(ctx, m, l.Booking)
			})
		}
		switch {
		case l.err == nil:
			continue
		case !Permanent(l.err):
			return l.err
		}
		h.logThrottled("Rejected forwarded booking", "cluster", m.Name, "node", node, "error", l.err)
		for _, rest := range lines[i:] {
			rest.err = l.err
		}
		return nil
	}
	return nil
}

var errPanicked = fmt.Errorf("%w: recording the booking panicked", ErrRefused)

// bookForwarded checks, prices and records a booking of a member.
func (h *Handler) bookForwarded(ctx context.Context, m *member, b *ledger.Booking) error {
	var receipt ledger.Receipt
	now, bt := h.c.Now(), b.Batch
	name := bt.Stream.Node
	if !m.nodes.admit("", name, now) {
		return fmt.Errorf("%w: cluster %s has more than %d nodes in a day", ErrRefused, m.Name, m.Nodes)
	}
	n := h.node(keyOf(name, b.Agentless))
	acked, err := h.acked(ctx, n, bt)
	if err != nil || bt.Last <= acked {
		return err
	}
	undo, _, ok := n.begins(bt, b.Agentless, now)
	if !ok {
		return fmt.Errorf("%w: too many streams or gaps from this node", ErrRefused)
	}
	defer func() { // rejected bookings are sent again every minute
		if !receipt.New {
			undo()
		}
	}()
	corrected := h.correct(*bt, now)
	if b.Agentless {
		n.envelope.count(now)
	}
	limits := func(string, ledger.Seen) Limits { return Limits{MaxPower: m.MaxPower} }
	claim, err := h.check(ctx, n, &corrected, limits, b.Agentless, now)
	if err != nil {
		return err
	}
	defer claim.end()
	for i, c := range b.Consumers { // each name adds a row to the ledger
		if !m.news.admit(name, fmt.Sprint(*c), now) {
			b.Consumers[i] = &overflow
		}
	}
	b.Batch, b.Received, b.NodeSince = &corrected, now, claim.since
	b.Rates = h.c.Rates(name, corrected.Start, corrected.End)
	receipt, err = h.commit(ctx, n, b, claim)
	if err == nil && receipt.Booked {
		h.metrics.energy.Add(joules(bt.Measured))
	}
	return err
}
