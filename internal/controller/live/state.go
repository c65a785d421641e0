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

// Options configures a State.
type Options struct {
	Now func() time.Time
	// Container returns the name of a pod's container, or "" if it is unknown. It must be fast.
	Container func(podUID, containerID string) string
	// Implausible reports whether a power value contradicts the hardware model of a node. It is called for every
	// value.
	Implausible func(node string, power energy.Watts) bool
	// Hottest returns the maximum temperature at which a node accepts pods, or 0 if there is no limit.
	Hottest func(node string) energy.Celsius
}

const (
	maxAge    = 45 * time.Second // maximum age of a batch or reading
	longest   = 2 * time.Minute  // maximum length of a batch that represents the current power
	smoothing = 5 * time.Minute  // time constant of the workload statistics
	maxOwners = 20_000           // maximum number of owners; the least recently updated are removed

	forgetAfter = time.Hour         // removes nodes without updates
	sweepEvery  = time.Minute       // interval of the cleanup
	freshFor    = 3 * time.Minute   // how long a pod is listed as fresh
	maxFresh    = 256               // per node; the scheduler also detects new pods by their age
	podsAfter   = 5 * time.Minute   // hides the pods of nodes without updates
	nodesEvery  = time.Second       // minimum interval between updates of the node list
	ownersEvery = time.Minute       // same for the workload list, which is larger and changes less often
	maxWatts    = energy.Watts(1e5) // higher values are implausible
)

// State is the current power consumption of the cluster. It is safe for concurrent use, but Booked must be called
// by a single goroutine.
type State struct {
	o         Options
	maxOwners int

	mu     sync.RWMutex
	nodes  map[string]*node
	owners map[ownerKey]*owner
	swept  time.Time

	nodeList     atomic.Pointer[listed[api.NodesPower]]
	workloadList atomic.Pointer[listed[api.WorkloadsPower]]
}

// listed is a cached list with the time of its creation.
type listed[T any] struct {
	answer T
	at     time.Time
}

// New returns an empty State.
func New(o Options) *State {
	return &State{o: o, nodes: map[string]*node{}, owners: map[ownerKey]*owner{}, maxOwners: maxOwners}
}

// value is a power value of a node.
type value struct {
	power       energy.Watts
	asOf        time.Time // zero if there is no value
	quality     energy.Quality
	source      string
	implausible bool
}

// node is the state of a node.
type node struct {
	value            // reported by its agent, or an estimate if it has no agent
	agentless bool   // the value is an estimate
	host      string // host of the virtual machine as reported by its agent; empty if unknown
	wall      value  // reading of a network meter, which takes precedence
	heat      sched.Heat
	findings  []string
	heard     time.Time
	met       bool            // an earlier batch has listed its pods
	pods      map[string]*pod // by UID
	fresh     []freshPod
}

type freshPod struct {
	uid   string
	since time.Time
}

// best returns the reading of the network meter if it is recent, otherwise the value reported for the node.
func (n *node) best(now time.Time) value {
	if !n.wall.asOf.IsZero() && now.Sub(n.wall.asOf) <= maxAge || n.asOf.IsZero() {
		return n.wall
	}
	return n.value
}

// Booked updates the state from a batch after it was committed. It is a hook of the ledger.
func (s *State) Booked(b *ledger.Booking, r ledger.Receipt) {
	if !r.Booked {
		return
	}
	now := s.o.Now()
	asOf := b.Batch.End
	asOf = timeutil.Earlier(asOf, b.Received) // a clock ahead of ours must not extend the validity
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	n := s.node(b.Batch.Stream.Node)
	if b.Temperature != nil {
		n.heat = n.heat.Next(*b.Temperature, s.o.Hottest(b.Batch.Stream.Node), b.Received.UTC())
	}
	measured := b.Batch.End.Sub(b.Batch.Start) - b.Batch.Unmeasured
	if measured <= 0 {
		return
	}
	current := now.Sub(n.asOf) <= maxAge
	if current && (b.Agentless && !n.agentless || asOf.Before(n.asOf)) {
		return // a better or more recent value exists
	}
	n.heard = now
	if ledger.ClusterOf(b.Batch.Stream.Node) == "" { // pods of other clusters are not tracked
		s.attribute(n, b, measured, asOf)
	}
	// A batch that is mostly unmeasured, outdated or long does not represent the current power.
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

// Wall records a reading of a network power meter. While the reading is recent, it takes precedence over the value
// of the node's agent.
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

// Found sets the findings of the agent of a node. They are shown once the node has a power value.
func (s *State) Found(name string, findings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(name)
	n.findings, n.heard = findings, s.o.Now()
}

// Forget removes a deleted node.
func (s *State) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// AgentWatts returns the power reported by the node's agent, ignoring network meters. It returns false if the agent
// has not reported a recent value.
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

// sweep removes nodes without updates and the least recently updated owners above the limit.
func (s *State) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery && len(s.owners) <= s.maxOwners+s.maxOwners/10 {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.nodes, func(_ string, n *node) bool { return now.Sub(n.heard) > forgetAfter })
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
