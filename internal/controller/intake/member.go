package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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

// bookForwarded records a booking of a member. It takes the quota of names of nodes first, even if the booking is then
// rejected, because each name occupies memory.
func (h *Handler) bookForwarded(ctx context.Context, m *member, b *ledger.Booking) error {
	now, name := h.c.Now(), b.Batch.Stream.Node
	if !m.nodes.admit("", name, now) {
		return fmt.Errorf("%w: cluster %s has more than %d nodes in a day", ErrRefused, m.Name, m.Nodes)
	}
	n := h.node(keyOf(name, b.Agentless))
	limits := func(string, ledger.Seen) Limits { return Limits{MaxPower: m.MaxPower} }
	_, err := h.admit(ctx, n, b.Batch, b.Agentless, func() (ledger.Receipt, error) {
		if b.Agentless {
			n.envelope.count(now)
		}
		_, receipt, err := h.record(ctx, n, *b, limits, m.limitNames)
		return receipt, err
	})
	return err
}

// limitNames returns a booking without the consumers beyond the quota of names, because each name adds a row to the
// ledger.
func (m *member) limitNames(b ledger.Booking, _ *Limits) ledger.Booking {
	b.Consumers = slices.Clone(b.Consumers)
	for i, c := range b.Consumers {
		if !m.news.admit(b.Batch.Stream.Node, fmt.Sprint(*c), b.Received) {
			b.Consumers[i] = new(overflow)
		}
	}
	return b
}
