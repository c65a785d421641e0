package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// SidecarAnswer is the response of POST /metrics-ingest.
type SidecarAnswer struct {
	Nodes []SidecarNode `json:"nodes"`
}

// SidecarNode is the result for the metrics of a node.
type SidecarNode struct {
	Node string `json:"node"`
	// Booked is the energy since the previous request. It is 0 for the first one, because the start of the counter
	// is unknown.
	Booked energy.Microjoules `json:"bookedMicrojoules"`
	// UnmeasuredSeconds is the duration without a known energy.
	UnmeasuredSeconds float64 `json:"unmeasuredSeconds,omitempty"`
	Note              string  `json:"note,omitempty"`
}

// sidecar creates batches from the counters that sidecars report. Energy is recorded at most once. Energy that was
// used before this process started, or before the reset of a counter, is not recorded.
type sidecar struct {
	began time.Time
	boot  string // boot ID of all streams, unique per process

	mu    sync.Mutex
	nodes map[string]*sidecarNode
}

// sidecarNode is the state of a node between requests.
type sidecarNode struct {
	mu     sync.Mutex
	sent   uint64        // sequence number of the last batch
	epoch  string        // epoch of the stream
	at     time.Duration // end of the last interval, relative to sidecar.began
	energy uint64        // counter at that time, in µJ
	power  uint64        // gauge at that time, in µW
	known  bool          // whether energy is valid
	gauged bool          // whether power is valid
	// dropped is set while the counter is below energy. The next request shows whether the counter was reset or a
	// delayed request arrived out of order.
	dropped   bool
	droppedAt time.Duration
	low       uint64
	pending   *batch.Batch // batch that may have been recorded; it is retried unchanged
	seen      time.Time
}

const (
	maxSidecarNodes = 10_000
	// A counter may wrap within a longer gap between requests, and a gauge does not represent the time in between.
	maxSidecarGap = 15 * time.Minute
	forgetSidecar = time.Hour
	sidecarSource = "scaphandre (sidecar)"
)

func (s *server) postMetrics(w http.ResponseWriter, r *http.Request, q *query) error {
	if !s.Sidecar.Leads() {
		return &failure{http.StatusServiceUnavailable, "this replica is not the leader", busyFor}
	}
	whose, err := nodeOfCaller(access.UserOf(r.Context()), q)
	if err != nil {
		return err
	}
	data, err := unpacked(r, maxSidecar)
	if err != nil {
		return err
	}
	nodes, err := readScaphandre(data, whose)
	if errors.Is(err, errNothing) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return fail(http.StatusUnprocessableEntity, "%.300s", err)
	}
	answer := SidecarAnswer{Nodes: []SidecarNode{}}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		booked, err := s.bookPost(r.Context(), name, nodes[name])
		if err != nil {
			return err
		}
		answer.Nodes = append(answer.Nodes, booked)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// nodeOfCaller returns the node of the metrics, or an empty string if it has to be derived from labels. A token
// that is bound to a node can only report metrics of this node.
func nodeOfCaller(u *access.User, q *query) (string, error) {
	whose := q.text("node")
	if whose != "" && !isNode(whose) {
		return "", fail(http.StatusBadRequest, "node is %.80q: want a valid node name", whose)
	}
	if u.Node() == "" {
		return whose, nil
	}
	if whose != "" && whose != u.Node() {
		return "", fail(http.StatusForbidden, "the token is bound to node %s", u.Node())
	}
	return u.Node(), nil
}

// of returns the state of a node. If there are too many nodes, it removes those without recent requests.
func (s *sidecar) of(name string, now time.Time) (*sidecarNode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	if n == nil {
		if len(s.nodes) >= maxSidecarNodes {
			maps.DeleteFunc(s.nodes, func(_ string, n *sidecarNode) bool {
				return now.Sub(n.seen) > forgetSidecar
			})
		}
		if len(s.nodes) >= maxSidecarNodes {
			return nil, fail(http.StatusTooManyRequests, "too many nodes, want at most %d", maxSidecarNodes)
		}
		n = &sidecarNode{epoch: rand.Text()}
		s.nodes[name] = n
	}
	n.seen = now
	return n, nil
}

// bookPost records the energy that a node has used since its previous request.
func (s *server) bookPost(ctx context.Context, name string, t *nodePost) (SidecarNode, error) {
	now := s.Now()
	n, err := s.sidecar.of(name, now)
	if err != nil {
		return SidecarNode{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := SidecarNode{Node: name}
	if n.pending != nil {
		// It is unknown whether the batch was recorded. Sending it again is safe because the ledger ignores
		// duplicates.
		if err := s.book(ctx, n, &answer); err != nil {
			return answer, err
		}
	}
	i := n.next(t, now.Sub(s.sidecar.began))
	answer.Note = cmp.Or(answer.Note, i.note)
	if i.end <= i.start {
		return answer, nil
	}
	n.sent++
	n.pending = s.sidecar.batch(name, n, &i, s.shares(t, i.energy), now)
	return answer, s.book(ctx, n, &answer)
}

// book records the pending batch. The batch remains pending if a retry may succeed.
func (s *server) book(ctx context.Context, n *sidecarNode, answer *SidecarNode) error {
	b := n.pending
	err := s.Sidecar.Book(ctx, b)
	switch {
	case err == nil:
		n.pending = nil
		answer.Booked += b.Measured
		answer.UnmeasuredSeconds += b.Unmeasured.Seconds()
		return nil
	case s.Sidecar.Final(err):
		n.pending = nil // a retry cannot succeed
		s.Log.Warn("Rejected energy reported by a sidecar", "node", b.Stream.Node, "error", err)
		answer.Note = fmt.Sprintf("rejected: %.200s", err)
		return nil
	case errors.Is(err, ledger.ErrReadOnly):
		return err
	}
	s.Log.Warn("Failed to record energy reported by a sidecar", "node", b.Stream.Node, "error", err)
	return &failure{http.StatusServiceUnavailable, "the energy cannot be recorded at the moment", busyFor}
}

// interval is the usage since the previous request.
type interval struct {
	start, end time.Duration // relative to sidecar.began; an empty interval is not recorded
	energy     energy.Microjoules
	unmeasured time.Duration
	quality    energy.Quality
	note       string
}

// next returns the interval that ends with a request and updates the state of the node.
func (n *sidecarNode) next(t *nodePost, at time.Duration) interval {
	first := !n.known && !n.gauged
	i := interval{start: n.at, end: at, quality: energy.Derived}
	switch {
	case first:
		n.base(t, at)
		return interval{note: "no energy is recorded for the first request"}
	case at <= n.at:
		return interval{note: "no time has passed since the previous request"}
	case at-n.at > maxSidecarGap:
		i.unmeasured, i.note = at-n.at, "too long after the previous request"
		n.base(t, at)
		return i
	case t.hasEnergy && n.known:
		return n.counted(t, i)
	case !t.hasEnergy && !n.known && t.hasPower && n.gauged:
		// Without a counter, the mean of both gauges is used as an estimate.
		mean := (float64(t.power) + float64(n.power)) / 2 //nolint:mnd // mean of two values
		i.energy, i.quality = energy.Microjoules(math.Round(mean*i.length().Seconds())), energy.Estimated
	default:
		i.unmeasured, i.note = i.length(), "different metrics than in the previous request"
	}
	n.base(t, at)
	return i
}

func (i *interval) length() time.Duration { return i.end - i.start }

func (n *sidecarNode) base(t *nodePost, at time.Duration) {
	n.at, n.energy, n.known, n.power, n.gauged, n.dropped = at, t.energy, t.hasEnergy, t.power, t.hasPower, false
}

// counted returns the difference of two counter values. A decrease is a reset or wraparound, unless the request was
// delayed and the next one continues from the previous value. To avoid counting energy twice, the decision is
// postponed until the next request. Two consecutive delayed requests are indistinguishable from a reset. In this
// case only the envelope of the node limits the error.
func (n *sidecarNode) counted(t *nodePost, i interval) interval {
	switch {
	case t.energy >= n.energy:
		i.energy = energy.Microjoules(t.energy - n.energy)
	case !n.dropped || t.energy < n.low:
		n.dropped, n.low, n.droppedAt = true, t.energy, i.end
		return interval{note: "the counter decreased; the next request determines whether it was reset"}
	default:
		i.energy = energy.Microjoules(t.energy - n.low)
		i.unmeasured = n.droppedAt - i.start
		i.note = "the counter was reset"
	}
	n.base(t, i.end)
	return i
}

func (s *sidecar) batch(name string, n *sidecarNode, i *interval, shares []energy.Share, now time.Time) *batch.Batch {
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: name, Boot: s.boot, Epoch: n.epoch}, First: n.sent,
		Last: n.sent, StartSinceBoot: i.start, EndSinceBoot: i.end, Unmeasured: i.unmeasured,
		Source: sidecarSource, Quality: i.quality, IdlePolicy: energy.IdleApart.String(), Measured: i.energy,
		Unknown: i.energy, Shares: shares,
	}
	for k := range shares {
		b.Unknown -= shares[k].Dynamic
	}
	b.SetWall(now)
	return b
}

// shares divides energy in proportion to the power of the processes. Fractions are rounded down, and the remainder
// is unknown.
func (s *server) shares(t *nodePost, total energy.Microjoules) []energy.Share {
	all := t.system
	for _, power := range t.pods {
		all += power
	}
	of := max(all, t.power)
	if of == 0 || total <= 0 {
		return nil
	}
	byID := map[string]uint64{}
	if t.system > 0 {
		byID[energy.System] = t.system
	}
	for pod, power := range t.pods {
		if power == 0 {
			continue
		}
		if uid, ok := s.Sidecar.PodUID(pod.namespace, pod.name); ok && podUID.MatchString(uid) {
			byID[energy.ContainerID(uid, "")] += power
		}
	}
	shares := make([]energy.Share, 0, len(byID))
	for id, power := range byID {
		hi, lo := bits.Mul64(uint64(total), power)
		part, _ := bits.Div64(hi, lo, of) // power ≤ of
		shares = append(shares, energy.Share{ID: id, Dynamic: energy.Microjoules(part)})
	}
	slices.SortFunc(shares, func(a, b energy.Share) int { return cmp.Compare(a.ID, b.ID) })
	return batch.Condense(shares, batch.MaxShares/2) //nolint:mnd // same limit as in agents
}
