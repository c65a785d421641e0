package live

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Options are what a State needs.
type Options struct {
	Now func() time.Time
	// Container returns the name of a pod's container, "" where it is not known. It must be fast.
	Container func(podUID, containerID string) string
	// Implausible reports whether a model of a node's hardware contradicts a value. It is asked about every value.
	Implausible func(node string, power energy.Watts) bool
	// Hottest returns how hot a node may be and take pods; 0: there is no limit.
	Hottest func(node string) energy.Celsius
}

const (
	maxAge    = 45 * time.Second // of a batch or a reading when it comes
	longest   = 2 * time.Minute  // batch whose mean says something about now
	smoothing = 5 * time.Minute  // time constant of what is expected of workloads
	maxOwners = 20_000           // that are remembered: of more, those that were seen last

	forgetAfter = time.Hour         // that a node is silent
	sweepEvery  = time.Minute       //
	freshFor    = 3 * time.Minute   // a pod's energy is told of as new
	maxFresh    = 256               // of a node: the scheduler knows a pod by its age as well
	podsAfter   = 5 * time.Minute   // a node's pods are not shown any more
	nodesEvery  = time.Second       // at most, the list of nodes is made anew
	ownersEvery = time.Minute       // and that of workloads, which is large and slow to change
	maxWatts    = energy.Watts(1e5) // what no node draws
)

// State is what is drawn now. One goroutine calls Booked, any number may read.
type State struct {
	o         Options
	maxOwners int

	mu      sync.RWMutex
	nodes   map[string]*node
	owners  map[ownerKey]*owner
	swept   time.Time
	changes uint64

	nodeList     atomic.Pointer[listed[api.NodesPower]]
	workloadList atomic.Pointer[listed[api.WorkloadsPower]]
}

// listed is an answer, and when and of what it was made.
type listed[T any] struct {
	answer  T
	at      time.Time
	changes uint64
}

// New returns a State that knows nothing.
func New(o Options) *State {
	return &State{o: o, nodes: map[string]*node{}, owners: map[ownerKey]*owner{}, maxOwners: maxOwners}
}

// value is one answer to the question what a node draws.
type value struct {
	power       energy.Watts
	asOf        time.Time // zero: there is none
	quality     energy.Quality
	source      string
	implausible bool
}

// node is what is known of one.
type node struct {
	value            // by its agent, or estimated where it has none
	agentless bool   // it is the latter
	host      string // whose virtual machine it is, by its agent; "": none is known
	wall      value  // by a meter on the network, which knows better
	heat      sched.Heat
	heard     time.Time
	met       bool            // batches have told of its pods before
	pods      map[string]*pod // by UID
	fresh     []freshPod
}

type freshPod struct {
	uid   string
	since time.Time
}

// best returns what counts: a meter's reading while it is fresh.
func (n *node) best(now time.Time) value {
	if !n.wall.asOf.IsZero() && now.Sub(n.wall.asOf) <= maxAge || n.asOf.IsZero() {
		return n.wall
	}
	return n.value
}

// Booked is told of a batch that was booked. It is a hook of the ledger.
func (s *State) Booked(b *ledger.Booking, r ledger.Receipt) {
	if !r.Booked {
		return
	}
	now := s.o.Now()
	asOf := b.Batch.End
	asOf = timeutil.Earlier(asOf, b.Received) // a clock that is ahead does not make a value younger
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	n := s.node(b.Batch.Stream.Node)
	if b.Temperature != nil {
		n.heat = n.heat.Next(*b.Temperature, s.o.Hottest(b.Batch.Stream.Node), b.Received.UTC())
		s.changes++
	}
	measured := b.Batch.End.Sub(b.Batch.Start) - b.Batch.Unmeasured
	if measured <= 0 {
		return
	}
	current := now.Sub(n.asOf) <= maxAge
	if current && (b.Agentless && !n.agentless || asOf.Before(n.asOf)) {
		return // something better, or younger, is known
	}
	n.heard = now
	s.changes++
	if ledger.ClusterOf(b.Batch.Stream.Node) == "" { // of others, no pod is placed or expected here
		s.attribute(n, b, measured, asOf)
	}
	// What is mostly not measured, is old or covers a long time is no value of now.
	length := b.Batch.End.Sub(b.Batch.Start)
	if b.Batch.Unmeasured > length/2 || length > longest || now.Sub(asOf) > maxAge {
		return
	}
	drawn := power(b.Batch.Measured, measured)
	n.value, n.agentless = value{
		power: drawn, asOf: asOf, quality: b.Batch.Quality, source: b.Batch.Source,
		implausible: s.contradicts(b.Batch.Stream.Node, drawn),
	}, b.Agentless
	n.host = b.Account(ledger.Unknown).Host
}

// Wall is told of the reading of a meter on the network. While it is fresh it counts in place of what the node's agent
// says of the whole node.
func (s *State) Wall(name string, power energy.Watts, asOf time.Time, quality energy.Quality, source string) {
	now := s.o.Now()
	if !(power >= 0) || math.IsInf(float64(power), 1) {
		return
	}
	asOf = timeutil.Earlier(asOf, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(name)
	if asOf.Before(n.wall.asOf) && now.Sub(n.wall.asOf) <= maxAge {
		return
	}
	n.wall = value{power: power, asOf: asOf, quality: quality, source: source, implausible: s.contradicts(name, power)}
	n.heard = now
	s.changes++
}

func (s *State) contradicts(node string, power energy.Watts) bool {
	return power > maxWatts || s.o.Implausible(node, power)
}

func (s *State) node(name string) *node {
	n := s.nodes[name]
	if n == nil {
		n = &node{}
		s.nodes[name] = n
	}
	return n
}

// Forget drops a node that is gone.
func (s *State) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
	s.changes++
}

// AgentWatts returns what a node's own agent says that it draws, whatever a meter on the network says. ok is false
// where it does not say so now.
func (s *State) AgentWatts(name string) (power energy.Watts, ok bool) {
	now := s.o.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.nodes[name]
	if n == nil || n.asOf.IsZero() || n.agentless || now.Sub(n.asOf) > maxAge {
		return 0, false
	}
	return n.power, true
}

// sweep forgets nodes that are silent, and owners beyond the limit.
func (s *State) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery && len(s.owners) <= s.maxOwners+s.maxOwners/10 {
		return
	}
	s.swept = now
	for name, n := range s.nodes {
		if now.Sub(n.heard) > forgetAfter {
			delete(s.nodes, name)
			s.changes++
		}
	}
	if len(s.owners) <= s.maxOwners {
		return
	}
	all := slices.SortedFunc(maps.Values(s.owners), func(a, b *owner) int {
		return b.power.At().Compare(a.power.At())
	})
	for _, o := range all[s.maxOwners:] {
		o.gone = true
		delete(s.owners, o.key)
	}
}
