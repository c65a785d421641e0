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

// SidecarAnswer is the answer of POST /metrics-ingest.
type SidecarAnswer struct {
	Nodes []SidecarNode `json:"nodes"`
}

// SidecarNode is what became of what was told of a node.
type SidecarNode struct {
	Node string `json:"node"`
	// Booked is the energy since the post before. The first one books nothing: since when it counts is unknown.
	Booked energy.Microjoules `json:"bookedMicrojoules"`
	// Unmeasured is time that nothing is known about.
	UnmeasuredSeconds float64 `json:"unmeasuredSeconds,omitempty"`
	Note              string  `json:"note,omitempty"`
}

// sidecar makes batches of counters that others have read. A joule is booked at most once: what was read before this
// process began, or across a counter that fell, is not booked.
type sidecar struct {
	began time.Time
	boot  string // of all streams: another process, another boot

	mu    sync.Mutex
	nodes map[string]*sidecarNode
}

// sidecarNode is what is remembered of a node.
type sidecarNode struct {
	mu     sync.Mutex
	sent   uint64        // number of the last batch
	epoch  string        // of the stream
	at     time.Duration // end of the last interval, since began
	energy uint64        // the counter then
	power  uint64        // the gauge then
	known  bool          // energy holds
	gauged bool          // power holds
	// dropped is set while the counter is below energy. Was it reset, or did an old post overtake? The next one says.
	dropped   bool
	droppedAt time.Duration
	low       uint64
	pending   *batch.Batch // made, and perhaps booked: it is sent again as it is
	seen      time.Time
}

const (
	maxSidecarNodes = 10_000
	// After so long without a post a counter may have wrapped, and a gauge says nothing about the time in between.
	maxSidecarGap = 15 * time.Minute
	forgetSidecar = time.Hour
	sidecarSource = "scaphandre (sidecar)"
)

func (s *server) postMetrics(w http.ResponseWriter, r *http.Request, q *query) error {
	if !s.Sidecar.Leads() {
		return &failure{http.StatusServiceUnavailable, "another replica counts", busyFor}
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

// nodeOfCaller returns the node that the caller posts for, "" if labels say. A token that is bound to a node speaks of
// that one.
func nodeOfCaller(u *access.User, q *query) (string, error) {
	whose := q.text("node")
	if whose != "" && !isNode(whose) {
		return "", fail(http.StatusBadRequest, "node is %.80q: that is no name of one", whose)
	}
	if u.Node() == "" {
		return whose, nil
	}
	if whose != "" && whose != u.Node() {
		return "", fail(http.StatusForbidden, "the token is of node %s", u.Node())
	}
	return u.Node(), nil
}

// of returns what is remembered of a node. It forgets nodes without posts.
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
			return nil, fail(http.StatusTooManyRequests, "metrics of more than %d nodes", maxSidecarNodes)
		}
		n = &sidecarNode{epoch: rand.Text()}
		s.nodes[name] = n
	}
	n.seen = now
	return n, nil
}

// bookPost books what a node has used since the post before.
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
		// Whether it was booked is not known: the same batch again is booked once in any case.
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

// book books the pending batch, and keeps it where another try may succeed.
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
		n.pending = nil // it never will be
		s.Log.Warn("energy that a sidecar told of is refused", "node", b.Stream.Node, "error", err)
		answer.Note = fmt.Sprintf("refused: %.200s", err)
		return nil
	case errors.Is(err, ledger.ErrReadOnly):
		return err
	}
	s.Log.Warn("booking what a sidecar told", "node", b.Stream.Node, "error", err)
	return &failure{http.StatusServiceUnavailable, "it cannot be booked at the moment", busyFor}
}

// interval is what was used since the post before.
type interval struct {
	start, end time.Duration // since began; nothing is booked if there is no time between
	energy     energy.Microjoules
	unmeasured time.Duration
	quality    energy.Quality
	note       string
}

// next returns the interval that a post ends.
func (n *sidecarNode) next(t *nodePost, at time.Duration) interval {
	first := !n.known && !n.gauged
	i := interval{start: n.at, end: at, quality: energy.Derived}
	switch {
	case first:
		n.base(t, at)
		return interval{note: "the first post books nothing"}
	case at <= n.at:
		return interval{note: "no time has passed"}
	case at-n.at > maxSidecarGap:
		i.unmeasured, i.note = at-n.at, "too long after the post before"
		n.base(t, at)
		return i
	case t.hasEnergy && n.known:
		return n.counted(t, i)
	case !t.hasEnergy && !n.known && t.hasPower && n.gauged:
		// Sidecars that tell no counter: the mean of both gauges, which is an estimate.
		mean := (float64(t.power) + float64(n.power)) / 2 //nolint:mnd // of two
		i.energy, i.quality = energy.Microjoules(math.Round(mean*i.length().Seconds())), energy.Estimated
	default:
		i.unmeasured, i.note = i.length(), "it told something else before"
	}
	n.base(t, at)
	return i
}

func (i *interval) length() time.Duration { return i.end - i.start }

func (n *sidecarNode) base(t *nodePost, at time.Duration) {
	n.at, n.energy, n.known, n.power, n.gauged, n.dropped = at, t.energy, t.hasEnergy, t.power, t.hasPower, false
}

// counted takes the difference of two values of a counter. One that fell was reset or wrapped, unless the post came
// late and the next one goes on from where the counter was: then nothing must be counted twice. Two in a row that
// come late look like a reset; only the node's envelope bounds what they can do.
func (n *sidecarNode) counted(t *nodePost, i interval) interval {
	switch {
	case t.energy >= n.energy:
		i.energy = energy.Microjoules(t.energy - n.energy)
	case !n.dropped || t.energy < n.low:
		n.dropped, n.low, n.droppedAt = true, t.energy, i.end
		return interval{note: "the counter fell: the next post says whether it was reset"}
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

// shares divides energy as the gauges of processes say. Parts are rounded down; the rest is unknown.
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
	return batch.Condense(shares, batch.MaxShares/2) //nolint:mnd // as agents do
}
